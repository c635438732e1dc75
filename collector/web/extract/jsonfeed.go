package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// readJSONFeed reads the fields that count of a JSON feed (https://www.jsonfeed.org/version/1.1/), and each entry for itself:
// what is odd about one costs no other.
func readJSONFeed(ctx context.Context, c *collection, text io.Reader) error {
	in := json.NewDecoder(oneLine{text})
	if _, err := in.Token(); err != nil { // {
		return fmt.Errorf("%w: %w", errParse, err)
	}
	next, hasItems := "", false
	for in.More() {
		name, err := in.Token()
		switch {
		case err != nil:
		case name == "items":
			hasItems = true
			err = eachJSON(ctx, in, c.addJSONItem)
		case name == "next_url":
			var value json.RawMessage
			err = in.Decode(&value)
			next = scalar(value)
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
		c.add(next)
	}
	if _, err := in.Token(); err != nil { // }
		return fmt.Errorf("%w: %w", errParse, err)
	}
	if !hasItems {
		return fmt.Errorf("%w: the object has no items", errParse)
	}
	return nil
}

// eachJSON calls f with each element of an array, or with what stands in its place.
func eachJSON(ctx context.Context, in *json.Decoder, f func(json.RawMessage)) error {
	token, err := in.Token()
	if err != nil || token != json.Delim('[') {
		if token == json.Delim('{') {
			err = leaveJSON(in, 1)
		}
		return err
	}
	for in.More() {
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return err
		}
		if f(value); ctx.Err() != nil {
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

// addJSONItem adds what an item leads to.
func (c *collection) addJSONItem(value json.RawMessage) {
	var item map[string]json.RawMessage
	if json.Unmarshal(value, &item) != nil {
		return
	}
	var modified time.Time
	for _, name := range []string{"date_modified", "date_published"} {
		if modified.IsZero() {
			modified = ReadTime(scalar(item[name]))
		}
	}
	id := scalar(item["id"])
	for _, link := range []string{scalar(item["url"]), scalar(item["external_url"]), id} {
		if link != "" && (link != id || isWebURL(id)) {
			c.addEntry(link, id, modified)
			break
		}
	}
	if !c.opts.Resources {
		return
	}
	attachments := item["attachments"]
	var several []json.RawMessage
	if json.Unmarshal(attachments, &several) != nil {
		several = []json.RawMessage{attachments}
	}
	for _, one := range several[:min(len(several), maxFields)] {
		var attachment map[string]json.RawMessage
		if json.Unmarshal(one, &attachment) == nil && scalar(attachment["url"]) != "" {
			c.add(scalar(attachment["url"]))
		}
	}
}

// scalar is a text or a number as text; empty for anything else.
func scalar(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	if len(value) > 0 && (value[0] == '-' || '0' <= value[0] && value[0] <= '9') {
		return string(value)
	}
	return ""
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
