package sourcefile

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// opmlSpace is the namespace of the attributes that hold what OPML has no words for, under the names of the columns of a
// CSV.
const opmlSpace = "urn:waggle:source"

// opmlReader reads the feeds of an outline.
type opmlReader struct {
	xml  *xmlText
	root bool
	// around are the names of the open outlines, empty for one that is a feed itself.
	around []string
}

// Next implements [Reader].
func (r *opmlReader) Next() (Entry, error) {
	for {
		token, err := r.xml.token()
		if errors.Is(err, io.EOF) && !r.root {
			return Entry{}, errors.New("there is no <opml> in it: it is no OPML")
		}
		if err != nil {
			return Entry{}, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if !r.root && t.Name.Local != "opml" {
				return Entry{}, fmt.Errorf("line %d: <%s> is no OPML", r.xml.line(), t.Name.Local)
			}
			r.root = true
			if t.Name.Local != "outline" {
				continue
			}
			if entry, is := r.outline(t); is {
				return entry, nil
			}
		case xml.EndElement:
			if t.Name.Local == "outline" && len(r.around) > 0 {
				r.around = r.around[:len(r.around)-1]
			}
		}
	}
}

// unspaced writes a URL without spaces, as a browser does (https://url.spec.whatwg.org/#concept-basic-url-parser): in a
// column they would stand between two.
var unspaced = strings.NewReplacer("\t", "", "\n", "", "\r", "", " ", "%20")

// outline reads an outline that begins, and reports whether it is a feed.
func (r *opmlReader) outline(start xml.StartElement) (Entry, bool) {
	plain, ours := map[string]string{}, map[string]string{}
	for _, a := range start.Attr {
		switch a.Name.Space {
		case opmlSpace:
			ours[a.Name.Local] = a.Value
		case "":
			plain[strings.ToLower(a.Name.Local)] = strings.TrimSpace(a.Value)
		}
	}
	line, title := r.xml.line(), cmp.Or(plain["text"], plain["title"])
	url, kind := plain["xmlurl"], kindFeed
	if url == "" && plain["url"] != "" {
		url, kind = plain["url"], ""
	}
	url = unspaced.Replace(url)
	if url == "" && ours["url"] == "" && ours["id"] == "" {
		r.around = append(r.around, title)
		if plain["type"] == "rss" || plain["type"] == "atom" {
			return Entry{Line: line, Err: fmt.Errorf("outline %.80q is a feed without xmlUrl", title)}, true
		}
		return Entry{}, false
	}
	spec, err := r.spec(url, kind, title, plain["category"], ours)
	r.around = append(r.around, "")
	if err != nil {
		return Entry{Line: line, Err: err}, true
	}
	return Entry{Line: line, Spec: spec}, true
}

func (r *opmlReader) spec(url, kind, title, category string, ours map[string]string) (*pb.SourceSpec, error) {
	texts := map[string]string{"url": url, "kind": kind, "name": title}
	for name, value := range ours {
		c, known := columnNamed(name)
		if !known {
			return nil, fmt.Errorf("attribute %.80q is not known; there are %s", name, columnNames())
		}
		texts[c.name] = value
		if c.name == "url" {
			texts["kind"] = ours["kind"]
		}
	}
	spec, err := fromRow(texts)
	if err != nil {
		return nil, err
	}
	if category = cmp.Or(r.path(), strings.TrimPrefix(category, "/")); category != "" && spec.GetLabels()[CategoryLabel] == "" {
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[CategoryLabel] = category
	}
	return spec, nil
}

// path is the names of the outlines around, from the outermost.
func (r *opmlReader) path() string {
	var parts []string
	for _, name := range r.around {
		if name != "" {
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, "/")
}

// opmlWriter writes an outline a source, with its category as an attribute, so that a file of any length can be written as
// it comes.
type opmlWriter struct {
	out io.Writer
	err error
}

func newOPMLWriter(out io.Writer) (*opmlWriter, error) {
	w := &opmlWriter{out: out}
	w.print("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<opml version=\"2.0\" xmlns:waggle=\"" + opmlSpace + "\">\n")
	w.print("<head><title>Sources</title></head>\n<body>\n")
	return w, w.err
}

func (w *opmlWriter) print(text string) {
	if w.err != nil {
		return
	}
	if _, err := io.WriteString(w.out, text); err != nil {
		w.err = fmt.Errorf("write: %w", err)
	}
}

func (w *opmlWriter) attribute(name, value string) {
	var quoted strings.Builder
	if err := xml.EscapeText(&quoted, []byte(value)); err != nil {
		w.err = errors.Join(w.err, err)
	}
	w.print(" " + name + `="` + quoted.String() + `"`)
}

// Write implements [Writer].
func (w *opmlWriter) Write(spec *pb.SourceSpec) ([]string, error) {
	texts := row(spec)
	back, _ := fromRow(texts) // what is wrong is not in it, and so lost
	w.print("<outline")
	w.attribute("text", cmp.Or(texts["name"], spec.GetId()))
	if texts["name"] == "" {
		w.attribute("waggle:name", "") // the text is no name
	}
	delete(texts, "name")
	if url := texts["url"]; url != "" && !strings.Contains(url, " ") {
		if texts["kind"] == kindFeed {
			w.attribute("type", "rss")
			w.attribute("xmlUrl", url)
			delete(texts, "kind")
		} else {
			w.attribute("type", "link")
			w.attribute("url", url)
		}
		delete(texts, "url")
	}
	if category := spec.GetLabels()[CategoryLabel]; category != "" {
		w.attribute("category", "/"+category)
	}
	for _, c := range columns() {
		if value := texts[c.name]; value != "" {
			w.attribute("waggle:"+c.name, value)
		}
	}
	w.print("/>\n")
	return lost(spec, back), w.err
}

// Close implements [Writer].
func (w *opmlWriter) Close() error {
	w.print("</body>\n</opml>\n")
	return w.err
}
