package sourcefile

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/html/charset"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
)

// maxDepth bounds how deep elements may stand in each other: the parser keeps those that are open.
const maxDepth = 100

// newXML makes a parser that knows the charsets of the web and no entities but XML's own, so that none can grow.
func newXML(in io.Reader) *xml.Decoder {
	decoder := xml.NewDecoder(in)
	decoder.CharsetReader = func(label string, in io.Reader) (io.Reader, error) {
		if strings.HasPrefix(strings.ToLower(label), "utf-16") {
			return in, nil // its byte order mark has turned it into UTF-8
		}
		return charset.NewReaderLabel(label, in)
	}
	return decoder
}

// xmlText goes through the elements of an XML file in little memory.
type xmlText struct {
	budget  *budget
	decoder *xml.Decoder
	depth   int
}

func newXMLText(in io.Reader) *xmlText {
	b := &budget{in: in}
	return &xmlText{budget: b, decoder: newXML(b)}
}

// line is where the parser stands.
func (x *xmlText) line() int {
	line, _ := x.decoder.InputPos()
	return line
}

// token gives the next token.
func (x *xmlText) token() (xml.Token, error) {
	x.budget.reset()
	token, err := x.decoder.Token()
	if err != nil {
		return nil, textfile.Fatal(x.line(), err)
	}
	switch token.(type) {
	case xml.StartElement:
		if x.depth++; x.depth > maxDepth {
			return nil, fmt.Errorf("line %d: elements stand more than %d deep in each other", x.line(), maxDepth)
		}
	case xml.EndElement:
		x.depth--
	}
	return token, nil
}

// budget is a reader that gives no more than about MaxRecord bytes between two resets, so that a parser cannot be made to
// keep a whole file in memory.
type budget struct {
	in   io.Reader
	used int
}

// Read implements [io.Reader].
func (b *budget) Read(p []byte) (int, error) {
	left := textfile.MaxRecord - b.used
	if left <= 0 {
		return 0, textfile.ErrTooLong
	}
	n, err := b.in.Read(p[:min(len(p), left)])
	b.used += n
	return n, err
}

// reset begins the next entry.
func (b *budget) reset() { b.used = 0 }

// peek is how a text begins.
func peek(text *bufio.Reader) ([]byte, error) {
	head, err := text.Peek(textfile.LookAhead)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("read: %w", err)
	}
	return head, nil
}
