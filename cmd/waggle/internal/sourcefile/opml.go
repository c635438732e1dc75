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
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxDepth bounds how deep outlines may stand in each other.
const maxDepth = 100

// outline is an open folder, or a feed, whose name is empty.
type outline struct {
	name string
	line int
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
			e, folder := readOutline(x, around)
			if tag != html.SelfClosingTagToken {
				around = append(around, outline{folder, x.line})
			}
			if len(around) > maxDepth {
				return fmt.Errorf("line %d: outlines stand more than %d deep in each other", x.line, maxDepth)
			}
			if e.Spec != nil || e.Err != nil {
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
		}
		return nil
	}, "opml")
}

// readOutline reads the tag of an outline: an entry if it is one, else a folder with its name.
func readOutline(x *xmlText, around []outline) (e Entry, folder string) {
	e.Line = x.line
	attributes, err := x.attributes()
	name := cmp.Or(attributes["text"], attributes["title"])
	seed := &pb.Seed{Url: unspaced(attributes["xmlurl"]), Kind: kindFeed}
	if seed.GetUrl() == "" {
		seed = &pb.Seed{Url: unspaced(attributes["url"])}
	}
	switch {
	case err != nil:
		e.Err = err
	case seed.GetUrl() != "":
		e.Spec = &pb.SourceSpec{DisplayName: name, Seeds: []*pb.Seed{seed}}
		var path []string
		for _, o := range around {
			if o.name != "" {
				path = append(path, o.name)
			}
		}
		switch category := cmp.Or(strings.Join(path, "/"), strings.TrimPrefix(attributes["category"], "/")); {
		case len(category) > bounds.MaxIDLength: // the names of folders would be held for each feed in them
			e.Err = fmt.Errorf("the label %s %.80q is %d bytes long; the limit is %d", CategoryLabel, category, len(category), bounds.MaxIDLength)
		case category != "":
			e.Spec.Labels = map[string]string{CategoryLabel: category}
		}
	case attributes["type"] == "rss" || attributes["type"] == "atom":
		e.Err = fmt.Errorf("outline %.80q is a feed without xmlUrl", name)
	default:
		return e, name
	}
	e.Mended = x.takeMended()
	return e, ""
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
		held.DisplayName = inXML(cmp.Or(spec.GetDisplayName(), spec.GetId()))
		line := fmt.Sprintf("<outline type=%q text=%s %s=%s", kind, quoted(held.GetDisplayName()), name, quoted(address))
		if category := inXML(spec.GetLabels()[CategoryLabel]); category != "" {
			line += " category=" + quoted("/"+category)
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
