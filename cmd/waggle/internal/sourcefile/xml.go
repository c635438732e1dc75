package sourcefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// xmlText reads the tags of an XML file one by one. Many OPML files break the rules of XML, so tags are read as a browser
// reads them: a mistake in one tag does not end the file.
type xmlText struct {
	tags       *html.Tokenizer
	line, next int    // where the tag begins, and the one after it
	name       string // in lower case, without the prefix of the outermost element
	text       []byte // before it, from the tag before
	mended     []Mend // not yet given with an entry
	noted      bool   // some of mended is of the tag
}

// encoding is the encoding that the first line of an XML file names.
var encoding = regexp.MustCompile(`^\s*<\?xml[^>]*\bencoding\s*=\s*["']([^"']*)`)

func newXMLText(text []byte) (*xmlText, error) {
	if label := encoding.FindSubmatch(text); label != nil {
		// UTF-16 is UTF-8 by now. UTF-8 stays as it is, so that what is not UTF-8 is found.
		if name := strings.ToLower(string(label[1])); !strings.HasPrefix(name, "utf") {
			in, err := charset.NewReaderLabel(name, bytes.NewReader(text))
			if err == nil {
				text, err = io.ReadAll(in)
			}
			if err != nil {
				return nil, fmt.Errorf("line 1: encoding: %w", err)
			}
		}
	}
	x := &xmlText{next: 1}
	var err error
	if text, x.mended, err = mend(text); err != nil {
		return nil, err
	}
	x.tags = html.NewTokenizer(bytes.NewReader(text))
	x.tags.SetMaxBuf(textfile.MaxRecord)
	return x, nil
}

// eachTag calls f with each tag of an XML file whose outermost element is one of roots, and has an end.
func eachTag(text []byte, f func(*xmlText, html.TokenType) error, roots ...string) error {
	x, err := newXMLText(text)
	root, prefix, ended := "", "", false
	for err == nil {
		tag := x.tags.Next()
		x.tags.NextIsNotRawText() // no tag of XML has text that is read in another way
		x.line, x.name = x.next, ""
		x.next += bytes.Count(x.tags.Raw(), []byte("\n"))
		switch tag { //nolint:exhaustive // of the others only their lines count
		case html.ErrorToken:
			if err = x.tags.Err(); errors.Is(err, html.ErrBufferExceeded) {
				err = textfile.ErrTooLong
			}
			err = textfile.Fatal(x.line, err)
		case html.TextToken:
			x.text = append(x.text, x.tags.Text()...)
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken:
			name, _ := x.tags.TagName()
			if root == "" {
				prefix, root = splitName(string(name))
				if !slices.Contains(roots, root) {
					return fmt.Errorf("line %d: <%s> is not <%s>", x.line, name, strings.Join(roots, "> or <"))
				}
			}
			x.name = strings.TrimPrefix(string(name), prefix)
			ended = ended || x.name == root && tag == html.EndTagToken
			err = f(x, tag)
			x.text = x.text[:0]
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case root == "":
		return fmt.Errorf("there is no <%s> in it", strings.Join(roots, "> or <"))
	case !ended:
		return fmt.Errorf("line %d: %w: there is no </%s>", x.line, io.ErrUnexpectedEOF, root)
	}
	return nil
}

// splitName is a name of XML without its prefix, and the prefix with its colon.
func splitName(name string) (prefix, local string) {
	i := strings.LastIndexByte(name, ':') + 1
	return name[:i], name[i:]
}

// attributes are those of the tag, by their names in lower case.
func (x *xmlText) attributes() (map[string]string, error) {
	raw := bytes.Clone(x.tags.Raw())
	if !utf8.Valid(raw) {
		x.note("bytes that are not UTF-8 read as Windows-1252")
	}
	all := map[string]string{}
	for more := true; more; {
		var name, value []byte
		if name, value, more = x.tags.TagAttr(); len(name) > 0 {
			all[string(name)] = strings.TrimSpace(extract.ValidText(value))
		}
	}
	// A quote that is missing makes the text up to the next one a value.
	if _, has := all["xmlurl"]; !has && bytes.Contains(bytes.ToLower(raw), []byte(`xmlurl="`)) {
		return nil, fmt.Errorf("the tag %.80q has an xmlUrl that cannot be read; is a quote missing?", raw)
	}
	return all, nil
}

// note notes what was mended in the tag.
func (x *xmlText) note(what string) {
	n := 0
	for n < len(x.mended) && x.mended[n].Line <= x.line {
		n++
	}
	x.mended, x.noted = slices.Insert(x.mended, n, Mend{x.line, what}), true
}

// takeMended gives what was mended up to the end of the token, and not given before.
func (x *xmlText) takeMended() (taken []Mend) {
	n := 0
	for n < len(x.mended) && x.mended[n].Line <= x.next {
		n++
	}
	taken, x.mended, x.noted = x.mended[:n:n], x.mended[n:], false
	return taken
}

// reference is a reference such as &amp; or what looks like one.
var reference = regexp.MustCompile(`^&(?:#[0-9]+;|#[xX][0-9a-fA-F]+;|[A-Za-z][A-Za-z0-9]*;)?`)

// mend writes the references that XML does not know as the text that they stand for: names of HTML, and & by itself. In
// comments and CDATA there are none.
func mend(text []byte) (mended []byte, mends []Mend, err error) {
	var out bytes.Buffer
	comments, sections := bytes.LastIndex(text, []byte("-->")), bytes.LastIndex(text, []byte("]]>")) // where the last of each ends
	line := 1
	for done := 0; done < len(text); {
		rest := text[done:]
		size, instead, what := bytes.IndexAny(rest, "&<"), "", ""
		switch {
		case size < 0:
			size = len(rest)
		case size > 0:
		case rest[0] == '&':
			found := string(reference.Find(rest))
			size = len(found)
			instead, what = mendReference(found)
		case bytes.HasPrefix(rest, []byte("<!--")) && done+len("<!--") <= comments:
			size = len("<!--") + bytes.Index(rest[len("<!--"):], []byte("-->")) + len("-->")
		case bytes.HasPrefix(rest, []byte("<![CDATA[")) && done+len("<![CDATA[") <= sections:
			inside, _, _ := bytes.Cut(rest[len("<![CDATA["):], []byte("]]>"))
			size, instead = len("<![CDATA[")+len(inside)+len("]]>"), html.EscapeString(string(inside))
		default:
			size = 1
		}
		switch {
		case instead != "":
			out.WriteString(instead)
		case !bytes.HasPrefix(rest, []byte("<![CDATA[]]>")):
			out.Write(rest[:size])
		}
		if what != "" {
			if mends = append(mends, Mend{line, what}); len(mends) > maxEntries {
				return nil, nil, fmt.Errorf("line %d: the file has more than %d references that XML does not know, the limit", line, maxEntries)
			}
		}
		line += bytes.Count(rest[:size], []byte("\n"))
		done += size
	}
	return out.Bytes(), mends, nil
}

// mendReference is a reference as XML knows it, and what was mended, if anything was.
func mendReference(found string) (instead, what string) {
	if strings.HasPrefix(found, "&#") || slices.Contains([]string{"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"}, found) {
		return found, ""
	}
	// A no-break space in a name would be taken for another than the one that people type.
	plain := strings.ReplaceAll(html.UnescapeString(found), "\u00a0", " ")
	if plain == found {
		return "&amp;" + found[1:], `raw "&" read as "&amp;"`
	}
	// A line break that is written out would move the lines after it.
	return strings.ReplaceAll(html.EscapeString(plain), "\n", "&#10;"), fmt.Sprintf("%q read as %q", found, plain)
}
