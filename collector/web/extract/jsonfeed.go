package extract

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// readJSONFeed reads the fields that count of a JSON feed (https://www.jsonfeed.org/version/1.1/), and each entry for itself:
// what is odd about one costs no other.
func readJSONFeed(ctx context.Context, c *collection, text io.Reader) error {
	in := json.NewDecoder(oneLine{text})
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

// eachJSONItem calls f with each item of an array. Those that are no objects are left out, and so is what is no array.
func eachJSONItem(ctx context.Context, in *json.Decoder, f func(*jsonItem)) error {
	token, err := in.Token()
	if err != nil || token != json.Delim('[') {
		if token == json.Delim('{') {
			err = leaveJSON(in, 1)
		}
		return err
	}
	for in.More() {
		var item jsonItem
		err := in.Decode(&item)
		if odd := new(json.UnmarshalTypeError); err != nil && !errors.As(err, &odd) {
			return err
		}
		if f(&item); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	_, err = in.Token() // ]
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

// oneLine has spaces in place of line breaks and tabs, which strings of JSON may not have.
type oneLine struct{ io.Reader }

func (o oneLine) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	for i, b := range p[:n] {
		if b < ' ' {
			p[i] = ' '
		}
	}
	return n, err
}
