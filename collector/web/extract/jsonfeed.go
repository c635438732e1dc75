package extract

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"golang.org/x/text/transform"
)

// readJSONFeed reads the fields that count of a JSON feed (https://www.jsonfeed.org/version/1.1/), and each entry for itself:
// what is odd about one costs no other.
func readJSONFeed(ctx context.Context, c *collection, text io.Reader) error {
	values := &jsonValues{text: transform.NewReader(text, &jsonText{})}
	in := json.NewDecoder(values)
	values.in = in
	if _, err := in.Token(); err != nil { // {
		return fmt.Errorf("%w: %w", errParse, err)
	}
	next, hasItems := scalar(""), false
	for in.More() {
		name, err := in.Token()
		switch {
		case err != nil:
		case name == "items":
			hasItems = true
			err = eachJSONItem(ctx, in, c.addJSONItem)
		case name == "next_url":
			err = in.Decode(&next)
		default:
			err = skipJSON(in)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("%w: %w", errParse, err)
		}
	}
	if next != "" {
		c.add(string(next))
	}
	if _, err := in.Token(); err != nil { // }
		return fmt.Errorf("%w: %w", errParse, err)
	}
	if !hasItems {
		return fmt.Errorf("%w: the object has no items", errParse)
	}
	return nil
}

// jsonValues is the text of a decoder, which holds each value as a whole; it ends within one that is over maxToken bytes, its
// long strings not counted.
type jsonValues struct {
	text io.Reader
	in   *json.Decoder
	read int64
}

// Read is that of an io.Reader.
func (v *jsonValues) Read(into []byte) (int, error) {
	if v.read-v.in.InputOffset() > maxToken {
		return 0, fmt.Errorf("a value is over %d bytes long", maxToken)
	}
	n, err := v.text.Read(into)
	v.read += int64(n)
	return n, err
}

// eachJSONItem calls f with each item of an array, or of an object, as PHP writes arrays. Items that are no objects are left out.
func eachJSONItem(ctx context.Context, in *json.Decoder, f func(*jsonItem)) error {
	token, err := in.Token()
	if err != nil || token != json.Delim('[') && token != json.Delim('{') {
		return err
	}
	for in.More() {
		if token == json.Delim('{') {
			if _, err := in.Token(); err != nil { // its name
				return err
			}
		}
		var item jsonItem
		err := in.Decode(&item)
		if odd := new(json.UnmarshalTypeError); err != nil && !errors.As(err, &odd) {
			return err
		}
		if f(&item); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	_, err = in.Token() // its end
	return err
}

// skipJSON reads over a value, of any length.
func skipJSON(in *json.Decoder) error {
	token, err := in.Token()
	if token == json.Delim('{') || token == json.Delim('[') {
		return leaveJSON(in, 1)
	}
	return err
}

// leaveJSON reads up to the end of the objects and arrays that it is in, depth of them.
func leaveJSON(in *json.Decoder, depth int) error {
	for depth > 0 {
		if depth > maxOpen {
			return fmt.Errorf("nested over %d deep", maxOpen)
		}
		token, err := in.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return nil
}

// jsonItem is what counts of an item.
type jsonItem struct {
	ID          scalar          `json:"id"`
	URL         scalar          `json:"url"`
	ExternalURL scalar          `json:"external_url"`
	Modified    scalar          `json:"date_modified"`
	Published   scalar          `json:"date_published"`
	Attachments json.RawMessage `json:"attachments"`
}

// addJSONItem adds what an item leads to.
func (c *collection) addJSONItem(item *jsonItem) {
	id := string(item.ID)
	link := cmp.Or(string(item.URL), string(item.ExternalURL))
	if link == "" && isWebURL(id) {
		link = id
	}
	c.addEntry(link, id, cmp.Or(ReadTime(string(item.Modified)), ReadTime(string(item.Published))))
	if !c.opts.Resources {
		return
	}
	var several []json.RawMessage
	if json.Unmarshal(item.Attachments, &several) != nil {
		several = []json.RawMessage{item.Attachments}
	}
	for _, one := range several[:min(len(several), maxFields)] {
		var attachment jsonItem
		if json.Unmarshal(one, &attachment) == nil && attachment.URL != "" {
			c.add(string(attachment.URL))
		}
	}
}

// scalar is a text or a number as text; empty for anything else.
type scalar string

// UnmarshalJSON takes any value.
func (s *scalar) UnmarshalJSON(value []byte) error {
	var text string
	switch {
	case json.Unmarshal(value, &text) == nil:
		*s = scalar(text)
	case value[0] == '-' || '0' <= value[0] && value[0] <= '9':
		*s = scalar(value)
	}
	return nil
}

// jsonText has spaces in place of line breaks and tabs, which strings of JSON may not have, and leaves out backslashes that
// escape nothing, commas that nothing follows, and what a string has beyond maxField: no URL and no date is as long.
type jsonText struct {
	inString bool
	length   int  // of the string
	comma    bool // it is to be written when more follows
}

// Reset begins anew.
func (j *jsonText) Reset() { *j = jsonText{} }

// Transform mends src into dst, as [transform.Transformer] wants it.
func (j *jsonText) Transform(dst, src []byte, atEOF bool) (nDst, nSrc int, err error) {
	for nSrc < len(src) {
		size, rest, b := 1, src[nSrc:], max(src[nSrc], ' ')
		if b == '\\' {
			switch {
			case len(rest) < len(`\u0000`) && !atEOF:
				return nDst, nSrc, transform.ErrShortSrc
			case !jsonEscape.Match(rest):
				nSrc++
				continue
			}
			size = 2
		}
		if nDst+1+size > len(dst) {
			return nDst, nSrc, transform.ErrShortDst
		}
		nSrc += size
		switch {
		case b == ',' && !j.inString:
			j.comma = true
			continue
		case b == '"':
			j.inString = !j.inString
			j.length = 0
		case j.inString:
			if j.length += size; j.length > maxField {
				continue
			}
		}
		if j.comma && b != ' ' {
			if j.comma = false; b != ']' && b != '}' {
				dst[nDst] = ','
				nDst++
			}
		}
		dst[nDst] = b
		nDst += copy(dst[nDst+1:], rest[1:size]) + 1
	}
	return nDst, nSrc, nil
}

var jsonEscape = regexp.MustCompile(`^\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})`)
