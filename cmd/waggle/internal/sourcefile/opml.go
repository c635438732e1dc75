package sourcefile

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/html"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ours begins the names of attributes that hold what OPML has no words for; the rest is the name of a column of a CSV.
const ours = "waggle:"

// maxDepth bounds how deep outlines may stand in each other.
const maxDepth = 100

// opmlReader reads the feeds of an outline.
type opmlReader struct {
	xml    *xmlText
	around []outline // those that are open
}

// outline is an open folder, or a feed, whose name is empty.
type outline struct {
	name string
	line int
}

func readOPML(text []byte, add func(Entry) error) error {
	x, err := newXMLText(text)
	r, root, ended := &opmlReader{xml: x}, false, false
	for err == nil {
		var kind html.TokenType
		if kind, err = x.token(); err != nil {
			break
		}
		begins := kind == html.StartTagToken || kind == html.SelfClosingTagToken
		switch {
		case begins && !root && x.name != "opml":
			return fmt.Errorf("line %d: <%s> is no OPML", x.line, x.name)
		case begins && x.name == "outline":
			err = r.begin(kind == html.SelfClosingTagToken, add)
		case begins:
			root = true
		case kind != html.EndTagToken:
		case x.name == "outline" && len(r.around) > 0:
			r.around = r.around[:len(r.around)-1]
		case x.name == "body" || x.name == "opml":
			ended = x.name == "opml"
			err = r.end(add)
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case !root:
		return errors.New("there is no <opml> in it: it is no OPML")
	case !ended:
		return fmt.Errorf("line %d: %w: there is no </opml>", x.line, io.ErrUnexpectedEOF)
	}
	return nil
}

// end adds what is wrong with the first folder that is still open: its name stands for what was read after it.
func (r *opmlReader) end(add func(Entry) error) error {
	around := r.around
	r.around = nil
	for _, o := range around {
		if o.name != "" {
			return add(Entry{Line: o.line, Err: fmt.Errorf("outline %.80q has no end; what follows was read as part of it", o.name)})
		}
	}
	return nil
}

// unspaced writes a URL without spaces, as a browser does (https://url.spec.whatwg.org/#concept-basic-url-parser): in a
// column they would stand between two.
var unspaced = strings.NewReplacer("\t", "", "\n", "", "\r", "", " ", "%20")

// begin reads an outline that begins, and adds what is an entry.
func (r *opmlReader) begin(ends bool, add func(Entry) error) error {
	attributes, err := r.xml.attributes()
	plain, extra := map[string]string{}, map[string]string{}
	for name, value := range attributes {
		if column, is := strings.CutPrefix(name, ours); is {
			extra[column] = value
		} else {
			plain[name] = strings.TrimSpace(value)
		}
	}
	open := outline{name: cmp.Or(plain["text"], plain["title"]), line: r.xml.line}
	url, kind := unspaced.Replace(plain["xmlurl"]), kindFeed
	if url == "" && plain["url"] != "" {
		url, kind = unspaced.Replace(plain["url"]), ""
	}
	e := Entry{Line: r.xml.line, Err: err}
	switch {
	case err != nil:
	case url != "" || extra["url"] != "" || extra["id"] != "":
		e.Spec, e.Err = r.spec(url, kind, open.name, plain["category"], extra)
	case plain["type"] == "rss" || plain["type"] == "atom":
		e.Err = fmt.Errorf("outline %.80q is a feed without xmlUrl", open.name)
	}
	is := e.Spec != nil || e.Err != nil
	if is {
		open.name, e.Mended = "", r.xml.takeMended()
	}
	if r.around = append(r.around, open); ends {
		r.around = r.around[:len(r.around)-1]
	}
	switch {
	case len(r.around) > maxDepth:
		return fmt.Errorf("line %d: outlines stand more than %d deep in each other", r.xml.line, maxDepth)
	case is:
		return add(e)
	}
	return nil
}

func (r *opmlReader) spec(url, kind, title, category string, extra map[string]string) (*pb.SourceSpec, error) {
	texts := map[string]string{"url": url, "kind": kind, "name": title}
	for name, value := range extra {
		c, known := columnNamed(name)
		if !known {
			return nil, fmt.Errorf("attribute %.80q is not known; there are %s", name, columnNames())
		}
		texts[c.name] = value
		if c.name == "url" {
			texts["kind"] = extra["kind"]
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
	for _, o := range r.around {
		if o.name != "" {
			parts = append(parts, o.name)
		}
	}
	return strings.Join(parts, "/")
}

// opmlWriter writes an outline a source, with its category as an attribute, so that a file of any length can be written as
// it comes.
type opmlWriter struct{ out io.Writer }

func newOPMLWriter(out io.Writer) (*opmlWriter, error) {
	w := &opmlWriter{out: out}
	return w, w.print("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<opml version=\"2.0\" xmlns:waggle=\"urn:waggle:source\">\n<head><title>Sources</title></head>\n<body>\n")
}

func (w *opmlWriter) print(text string) error {
	if _, err := io.WriteString(w.out, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// Write implements [Writer].
func (w *opmlWriter) Write(spec *pb.SourceSpec) ([]string, error) {
	texts := row(spec)
	back, _ := fromRow(texts) // what is wrong is not in it, and so lost
	var line bytes.Buffer
	var err error
	attribute := func(name, value string) {
		line.WriteString(" " + name + `="`)
		err = errors.Join(err, xml.EscapeText(&line, []byte(value)))
		line.WriteByte('"')
	}
	attribute("text", cmp.Or(texts["name"], spec.GetId()))
	if texts["name"] == "" {
		attribute(ours+"name", "") // the text is no name
	}
	delete(texts, "name")
	if url := texts["url"]; url != "" && !strings.Contains(url, " ") {
		if texts["kind"] == kindFeed {
			attribute("type", "rss")
			attribute("xmlUrl", url)
			delete(texts, "kind")
		} else {
			attribute("type", "link")
			attribute("url", url)
		}
		delete(texts, "url")
	}
	if category := spec.GetLabels()[CategoryLabel]; category != "" {
		attribute("category", "/"+category)
	}
	for _, c := range columns() {
		if value := texts[c.name]; value != "" {
			attribute(ours+c.name, value)
		}
	}
	return lost(spec, back), errors.Join(err, w.print("<outline"+line.String()+"/>\n"))
}

// Close implements [Writer].
func (w *opmlWriter) Close() error { return w.print("</body>\n</opml>\n") }
