package sourcefile

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxDepth bounds how deep outlines may stand in each other.
const maxDepth = 100

// maxName is the longest name of a source, in bytes.
const maxName = 256

// outline is one that is open: a folder, or a feed, whose name is empty.
type outline struct {
	name    string
	line    int
	comment bool // it is commented out, with all that stands in it
}

// folders is the category of what stands in the outlines.
func folders(around []outline) string {
	var names []string
	for _, o := range around {
		if o.name != "" {
			names = append(names, o.name)
		}
	}
	return strings.Join(names, "/")
}

// readOPML reads the feeds and links of outlines.
func readOPML(text []byte, add func(Entry) error) error {
	var around []outline // those that are open
	return eachTag(text, func(x *xmlText, tag html.TokenType) error {
		ends := tag == html.EndTagToken
		switch {
		case x.name == "outline" && ends:
			around = around[:max(len(around)-1, 0)]
		case x.name == "outline":
			e, o := readOutline(x, around)
			if tag != html.SelfClosingTagToken {
				around = append(around, o)
			}
			if len(around) > maxDepth {
				return fmt.Errorf("line %d: outlines stand more than %d deep in each other", x.line, maxDepth)
			}
			if e.Spec != nil || e.Err != nil || x.noted {
				e.Mended = x.takeMended()
				return add(e)
			}
		case ends && (x.name == "body" || x.name == "opml"):
			open := around
			around = nil
			for _, o := range open {
				if o.name != "" {
					return add(Entry{Line: o.line, Err: fmt.Errorf("outline %.80q has no end; what follows was read as part of it", o.name)})
				}
			}
			if mended := x.takeMended(); len(mended) > 0 {
				return add(Entry{Line: x.line, Mended: mended})
			}
		}
		return nil
	}, "opml")
}

// readOutline reads the tag of an outline: an entry, a folder, or neither.
func readOutline(x *xmlText, around []outline) (e Entry, o outline) {
	e.Line, o.line = x.line, x.line
	if len(around) > 0 && around[len(around)-1].comment {
		o.comment = true
		return e, o
	}
	attributes, err := x.attributes()
	written := cmp.Or(attributes["text"], attributes["title"])
	name := tidy(written, maxName)
	seed := &pb.Seed{Url: unspaced(attributes["xmlurl"]), Kind: kindFeed}
	if seed.GetUrl() == "" {
		seed = &pb.Seed{Url: unspaced(attributes["url"])}
	}
	switch kind := strings.ToLower(attributes["type"]); {
	case err != nil:
		e.Err = err
	case strings.EqualFold(attributes["iscomment"], "true"):
		o.comment = true
		x.note(fmt.Sprintf("outline %.80q is commented out: left out, with all in it", name))
	case seed.GetUrl() == "" && (kind == "rss" || kind == "atom"):
		e.Err = fmt.Errorf("outline %.80q is a feed without xmlUrl", name)
	case seed.GetUrl() == "":
		inside := bounds.MaxIDLength
		if outer := folders(around); outer != "" {
			inside -= len(outer) + 1
		}
		o.name = x.instead("folder", written, tidy(strings.ReplaceAll(written, ",", ";"), inside))
	case kind == "include" || isList(seed.GetUrl()):
		e.Err = fmt.Errorf("outline %.80q is another list, %q: import it too", name, canonical.RedactedURL(seed.GetUrl()))
	case strings.Contains(kind, "+") && !strings.HasPrefix(kind, "html+"):
		e.Err = fmt.Errorf("outline %.80q is of type %q, no feed", name, attributes["type"])
	default:
		if strings.Contains(kind, "+") {
			seed.Kind = ""
			x.note(fmt.Sprintf("outline %.80q of type %q read as a page, without its rules", name, attributes["type"]))
		}
		e.Spec = &pb.SourceSpec{DisplayName: x.instead("name", written, name), Seeds: []*pb.Seed{seed}}
		listed := categories(attributes["category"])
		if category := cmp.Or(folders(around), x.instead("category", listed, tidy(listed, bounds.MaxIDLength))); category != "" {
			e.Spec.Labels = map[string]string{CategoryLabel: category}
		}
	}
	return e, o
}

// isList reports whether a URL is that of another OPML file.
func isList(url string) bool {
	url, _, _ = strings.Cut(strings.ToLower(url), "?")
	return strings.HasSuffix(url, ".opml")
}

// instead is what a text was read as, noted if that is another.
func (x *xmlText) instead(what, text, read string) string {
	if read != text {
		x.note(fmt.Sprintf("%s %.80q read as %.80q", what, text, read))
	}
	return read
}

// tidy is a text without control characters and spaces around it, of at most so many bytes.
func tidy(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.TrimSpace(text)
	if end := max(limit, 0); end < len(text) {
		for !utf8.RuneStart(text[end]) {
			end--
		}
		text = strings.TrimSpace(text[:end])
	}
	return text
}

// categories are those of a list, without the slashes that they begin with.
func categories(list string) string {
	var all []string
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimFunc(one, func(r rune) bool { return r == '/' || unicode.IsSpace(r) }); one != "" {
			all = append(all, one)
		}
	}
	return strings.Join(all, ",")
}

// unspaced writes a URL without spaces and control characters, as a browser does
// (https://url.spec.whatwg.org/#concept-basic-url-parser).
func unspaced(text string) string {
	var b strings.Builder
	for _, r := range strings.TrimFunc(text, func(r rune) bool { return r <= ' ' }) {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
		case unicode.IsSpace(r) || unicode.IsControl(r):
			b.WriteString(url.PathEscape(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

const opmlHead = `<?xml version="1.0" encoding="UTF-8"?>
<opml version="2.0">
<head><title>Sources</title></head>
<body>
`

// newOPMLWriter writes an outline a seed, with its category as an attribute, so that a file of any length can be written as
// it comes.
func newOPMLWriter(out io.Writer) (*seedWriter, error) {
	w := &seedWriter{out: out, end: "</body>\n</opml>\n"}
	w.line = func(spec *pb.SourceSpec, seed *pb.Seed) (string, *pb.SourceSpec) {
		kind, name := "link", "url"
		address := inXML(seed.GetUrl())
		held := urlSpec(address, "")
		if seed.GetKind() == kindFeed {
			kind, name = "rss", "xmlUrl"
			held.Seeds[0].Kind = kindFeed
		}
		if isList(address) {
			held.Seeds = nil
		}
		held.DisplayName = tidy(inXML(cmp.Or(spec.GetDisplayName(), spec.GetId())), maxName)
		line := fmt.Sprintf("<outline type=%q text=%s %s=%s", kind, quoted(held.GetDisplayName()), name, quoted(address))
		if category := tidy(categories(inXML(spec.GetLabels()[CategoryLabel])), bounds.MaxIDLength); category != "" {
			line += " category=" + quoted("/"+strings.ReplaceAll(category, ",", ",/"))
			held.Labels = map[string]string{CategoryLabel: category}
		}
		return line + "/>\n", held
	}
	_, err := io.WriteString(out, opmlHead)
	return w, err
}

// inXML replaces the characters of a text that XML does not have (https://www.w3.org/TR/xml/#charsets), such as controls.
func inXML(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\uFFFE' || r == '\uFFFF' {
			return utf8.RuneError
		}
		return r
	}, text)
}

// quoted is the value of an attribute.
func quoted(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes everything
	return `"` + b.String() + `"`
}
