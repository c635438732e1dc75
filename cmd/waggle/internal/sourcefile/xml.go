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
)

// xmlText reads the tags of an XML file one by one. Many OPML files break the rules of XML, so tags are read as a browser
// reads them: a mistake in one tag does not end the file.
type xmlText struct {
	tags       *html.Tokenizer
	line, next int    // where the tag begins, and the one after it
	name       string // in lower case, without the prefix of the outermost element
	text       string // before it, from the tag before
	mended     []Mend // not yet given with an entry
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
	text, x.mended = mend(text)
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
			x.text += string(x.tags.Text())
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
			x.text = ""
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
		return nil, fmt.Errorf("the tag <%s> %w", x.name, textfile.ErrNotUTF8)
	}
	all := map[string]string{}
	for more := true; more; {
		var name, value []byte
		if name, value, more = x.tags.TagAttr(); len(name) > 0 {
			all[string(name)] = strings.TrimSpace(string(value))
		}
	}
	// A quote that is missing makes the text up to the next one a value.
	if _, has := all["xmlurl"]; !has && bytes.Contains(bytes.ToLower(raw), []byte(`xmlurl="`)) {
		return nil, fmt.Errorf("the tag %.80q has an xmlUrl that cannot be read; is a quote missing?", raw)
	}
	return all, nil
}

// takeMended gives what was mended up to the end of the token, and not given before.
func (x *xmlText) takeMended() (taken []Mend) {
	n := 0
	for n < len(x.mended) && x.mended[n].Line <= x.next {
		n++
	}
	taken, x.mended = x.mended[:n:n], x.mended[n:]
	return taken
}

// reference finds references such as &amp; and what looks like one, beside comments and CDATA, where there are none.
var reference = regexp.MustCompile(`(?s)<!--.*?-->|<!\[CDATA\[.*?\]\]>|&(?:#[0-9]+;|#[xX][0-9a-fA-F]+;|[A-Za-z][A-Za-z0-9]*;)?`)

// mend writes the references that XML does not know as the text that they stand for: names of HTML, and & by itself.
func mend(text []byte) (mended []byte, mends []Mend) {
	var out bytes.Buffer
	line, done := 1, 0
	for _, at := range reference.FindAllIndex(text, -1) {
		line += bytes.Count(text[done:at[0]], []byte("\n"))
		out.Write(text[done:at[0]])
		found := string(text[at[0]:at[1]])
		done = at[1]
		switch {
		case strings.HasPrefix(found, "<!--"):
			out.WriteString(found)
		case strings.HasPrefix(found, "<!"):
			out.WriteString(html.EscapeString(found[len("<![CDATA[") : len(found)-len("]]>")]))
		case strings.HasPrefix(found, "&#"), found == "&amp;", found == "&lt;", found == "&gt;", found == "&quot;", found == "&apos;":
			out.WriteString(found)
		default:
			// A no-break space in a name would be taken for another than the one that people type.
			if plain := strings.ReplaceAll(html.UnescapeString(found), "\u00a0", " "); plain != found {
				out.WriteString(html.EscapeString(plain))
				mends = append(mends, Mend{line, fmt.Sprintf("%q read as %q", found, plain)})
			} else {
				out.WriteString("&amp;" + found[1:])
				mends = append(mends, Mend{line, `raw "&" read as "&amp;"`})
			}
		}
		line += strings.Count(found, "\n")
	}
	out.Write(text[done:])
	return out.Bytes(), mends
}
