package wire

import (
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// maxUntil is how far ahead people may put an instant.
const maxUntil = 10 * 366 * 24 * time.Hour

// operatorRequest is what each call has by which operators change something.
type operatorRequest interface {
	GetBy() string
	GetReason() string
}

// note reads who changes something, and why.
func (c *checks) note(req operatorRequest) dispatch.Note {
	return dispatch.Note{
		By:     c.text("by", req.GetBy(), bounds.MaxIDLength),
		Reason: c.text("reason", req.GetReason(), bounds.MaxMessageLength),
	}
}

// until reads an instant to come. The store's clock decides whether it has passed; ten years are far enough to
// check by any clock.
func (c *checks) until(field string, t *timestamppb.Timestamp, now time.Time) time.Time {
	switch {
	case t == nil:
		return time.Time{}
	case t.CheckValid() != nil || t.AsTime().Year() < 1970:
		c.fail(field, t, "must be a time since 1970")
	case t.AsTime().Sub(now) > maxUntil:
		c.fail(field, t.AsTime().Format(time.RFC3339), "must be at most 10 years from now")
	}
	return t.AsTime().Truncate(time.Millisecond)
}

// bulkRequest is what the bulk calls have in common.
type bulkRequest interface {
	filterRequest
	operatorRequest
	GetValidateOnly() bool
	GetPageToken() string
}

// Selection is what a bulk call has beside the ids or the query that it is about.
type Selection struct {
	After string // cursor of the page that a query goes on with
	Note  dispatch.Note
	// ValidateOnly: the call is to answer what it would do.
	ValidateOnly bool
	pages        pages
}

// NextPageToken is the token of the page behind a cursor.
func (s *Selection) NextPageToken(cursor string) string { return s.pages.token(cursor) }

// selection reads what all bulk calls have beside the ids or the filter; ids is the name of n ids.
func (c *checks) selection(ids string, n int, req bulkRequest) Selection {
	c.selects(ids, n, req)
	return Selection{Note: c.note(req), ValidateOnly: req.GetValidateOnly()}
}

// open reports what is wrong with a call, and reads the page that a call with a filter goes on with.
func (s *Selection) open(c *checks, req bulkRequest) error {
	err := c.err()
	if err != nil || req.GetFilter() == nil {
		return err
	}
	if s.pages, err = pagesOf(req, req.GetFilter()); err != nil {
		return err
	}
	s.After, err = s.pages.cursor(req.GetPageToken())
	return err
}

// selects checks that a bulk call names ids, or a filter of conditions that it takes.
func (c *checks) selects(ids string, n int, req bulkRequest) {
	c.conditions(req)
	switch filter, pageToken := req.GetFilter(), req.GetPageToken(); {
	case n > 0 && filter != nil:
		c.fail("filter", "set", "must be absent when %s are given", ids)
	case n == 0 && filter == nil:
		c.fail(ids, "", "must be set, or filter")
	case n > 0 && pageToken != "":
		c.fail("page_token", pageToken, "must be empty when %s are given", ids)
	}
}

// enum checks a value that must be one this version knows.
func (c *checks) enum(field string, value protoreflect.Enum) {
	if value.Descriptor().Values().ByNumber(value.Number()) == nil {
		c.fail(field, value.Number(), "must be a value of %s", value.Descriptor().Name())
	}
}

// named checks a value that must be a known one and not the unspecified one.
func named[E protoreflect.Enum](c *checks, field string, value E, limit string) E {
	if c.enum(field, value); value.Number() == 0 {
		c.fail(field, value, limit)
	}
	return value
}

// target checks what names a task: a URL, or a key and a queue.
func (c *checks) target(url, key, queue string) {
	if url != "" {
		if _, err := canonical.Form(canonical.Plain, url); err != nil {
			c.fail("url", url, "%s", err)
		}
	}
	c.identity(url, key, queue)
}

// suffix reads a name that stands for a queue and all below it. What others write before one would be part of the
// name, which no queue has.
func (c *checks) suffix(field, value string) string {
	if strings.HasPrefix(value, ".") || strings.HasPrefix(value, "*") {
		c.fail(field, value, "must be a name without \".\" or \"*.\" before it: it is for that queue and all below it")
		return value
	}
	return optional(c.queue, field, value)
}

// pattern reads what a queue rule matches: a name, "*." and a suffix, or "*".
func (c *checks) pattern(field, value string) string {
	name, suffix := strings.CutPrefix(value, "*.")
	switch {
	case value == "*":
	case suffix && name == "" || strings.Contains(name, "*") || strings.HasPrefix(name, "."):
		c.fail(field, value, "must be a name, \"*.\" and a suffix, or \"*\"")
	case suffix && len(value) > bounds.MaxQueueLength:
		c.tooLong(field, value, bounds.MaxQueueLength)
	default:
		c.queue(field, name)
	}
	return value
}

// mask checks that an update's mask names what can be changed; limit is that in words.
func (c *checks) mask(mask *fieldmaskpb.FieldMask, settable func(path string) bool, limit string) {
	const field = "update_mask"
	c.count(field, len(mask.GetPaths()), 0, maxLabelLength)
	for _, path := range mask.GetPaths() {
		if !settable(path) {
			c.fail(field, path, limit)
		}
	}
}

// inside puts prefix before the field paths of err, for what is checked where the request around it is not known.
func inside(prefix string, err error) error {
	fields := fieldErrors(err)
	if len(fields) == 0 {
		return err
	}
	out := make([]*dispatch.FieldError, len(fields))
	for i, field := range fields {
		path := prefix
		if field.Field != "" {
			path += "." + field.Field
		}
		out[i] = &dispatch.FieldError{Field: path, Value: field.Value, Limit: field.Limit}
	}
	return &invalidRequest{fields: out}
}
