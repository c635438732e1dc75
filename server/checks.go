package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// Bounds of fields that the domain has no name for.
const (
	maxPageSize     = 1000
	defaultPageSize = 50
	maxLabelLength  = 128
	maxUntil        = 10 * 366 * 24 * time.Hour
	maxViolations   = 20 // told of one request
)

// checks collects the fields of a request that are outside their limits.
type checks struct{ broken []*dispatch.FieldError }

// fail notes a field; limit is the end of "it ...".
func (c *checks) fail(field string, value any, limit string, args ...any) {
	if len(c.broken) >= maxViolations {
		return
	}
	if len(args) > 0 {
		limit = fmt.Sprintf(limit, args...)
	}
	c.broken = append(c.broken, &dispatch.FieldError{Field: field, Value: fmt.Sprint(value), Limit: limit})
}

// within puts the path of a list's element before the fields that have been
// found wrong in it: those from the n-th on. Elements are many and wrong ones
// few, so paths are made for those only.
func (c *checks) within(n int, list string, i int) {
	for _, field := range c.broken[n:] {
		at := fmt.Sprintf("%s[%d]", list, i)
		if field.Field != "" {
			at += "." + field.Field
		}
		field.Field = at
	}
}

func (c *checks) err() error {
	if len(c.broken) == 0 {
		return nil
	}
	return &invalidRequest{fields: c.broken}
}

// id checks what people name: sources, collectors, pools, scopes.
func (c *checks) id(field, value string) {
	c.name(field, value, bounds.MaxIDLength, isIDRune, "must be of a-z, 0-9, '.', '_' and '-'")
}

// name checks what must be set, has a limit and is of few letters only.
func (c *checks) name(field, value string, longest int, of func(rune) bool, letters string) {
	switch {
	case value == "":
		c.fail(field, value, "must be set")
	case len(value) > longest:
		c.fail(field, value, "is %d bytes long; the limit is %d", len(value), longest)
	case strings.ContainsFunc(value, func(r rune) bool { return !of(r) }):
		c.fail(field, value, letters)
	}
}

func isIDRune(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-'
}

// optionalID checks an id that may be left out.
func (c *checks) optionalID(field, value string) {
	if value != "" {
		c.id(field, value)
	}
}

// token checks what programs name: sessions and client tokens.
func (c *checks) token(field, value string) {
	of := func(r rune) bool { return isIDRune(r) || 'A' <= r && r <= 'Z' }
	c.name(field, value, bounds.MaxIDLength, of, "must be of A-Z, a-z, 0-9, '.', '_' and '-'")
}

// queue checks the name of a queue: a host, with a port if it has one, or what
// people chose.
func (c *checks) queue(field, value string) {
	of := func(r rune) bool { return isIDRune(r) || r == ':' || r == '[' || r == ']' }
	c.name(field, value, bounds.MaxQueueLength, of, "must be of a-z, 0-9, '.', '_', '-', ':' and brackets, as a host is in lower case and punycode")
}

func (c *checks) optionalQueue(field, value string) {
	if value != "" {
		c.queue(field, value)
	}
}

// suffix checks a name that stands for a queue and all below it. What others write before
// one would be part of the name, which no queue has.
func (c *checks) suffix(field, value string) {
	if strings.HasPrefix(value, ".") || strings.HasPrefix(value, "*") {
		c.fail(field, value, "must be a name without \".\" or \"*.\" before it: it is for that queue and all below it")
	} else {
		c.optionalQueue(field, value)
	}
}

// ids checks a list of ids, each by check.
func (c *checks) ids(field string, values []string, most int, check func(field, value string)) {
	c.count(field, len(values), 0, most)
	for i, value := range values[:min(len(values), most)] {
		n := len(c.broken)
		check("", value)
		c.within(n, field, i)
	}
}

func (c *checks) count(field string, n, least, most int) {
	if n < least || n > most {
		c.fail(field, n, "has %d entries; the limit is %d to %d", n, least, most)
	}
}

// text checks free text: a size, and no control characters but white space.
func (c *checks) text(field, value string, most int) {
	switch {
	case len(value) > most:
		c.fail(field, value, "is %d bytes long; the limit is %d", len(value), most)
	case !utf8.ValidString(value):
		c.fail(field, value, "must be UTF-8")
	case strings.ContainsFunc(value, isControl):
		c.fail(field, value, "must hold no control characters")
	}
}

func isControl(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f
}

// size checks bytes, whose value is not shown.
func (c *checks) size(field string, n, most int) {
	if n > most {
		c.fail(field, strconv.Itoa(n)+" bytes", "must be at most %d bytes", most)
	}
}

func (c *checks) metadata(field string, m map[string]string) {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
		if k == "" || strings.ContainsFunc(k, isControl) {
			c.fail(field, k, "must have keys that are not empty and hold no control characters")
		}
	}
	c.size(field, n, bounds.MaxMetadataLength)
}

func (c *checks) labels(field string, m map[string]string, most int) {
	c.count(field, len(m), 0, most)
	for k, v := range m {
		if k == "" {
			c.fail(field+".key", k, "must be set")
		}
		c.text(field+".key", k, maxLabelLength)
		c.text(field+"["+shorten(k)+"]", v, maxLabelLength)
	}
}

func (c *checks) number(field string, n, least, most int64) {
	if n < least || n > most {
		c.fail(field, n, "must be %d to %d", least, most)
	}
}

func (c *checks) priority(field string, n *int32) {
	if n != nil {
		c.number(field, int64(*n), 0, bounds.MaxPriority)
	}
}

// duration checks one that may be left out.
func (c *checks) duration(field string, d *durationpb.Duration, least, most time.Duration) {
	if d == nil {
		return
	}
	if err := d.CheckValid(); err != nil {
		c.fail(field, fmt.Sprintf("%ds %dns", d.GetSeconds(), d.GetNanos()), "must be a duration of %v to %v", least, most)
		return
	}
	if got := d.AsDuration(); got < least || got > most {
		c.fail(field, got, "must be %v to %v", least, most)
	}
}

// until checks an end that operators name. Whether it has passed is for the
// store's clock to say; ten years are far enough to check by any clock.
func (c *checks) until(field string, t *timestamppb.Timestamp, now time.Time) {
	switch {
	case t == nil:
	case t.CheckValid() != nil || t.AsTime().Year() < 1970:
		c.fail(field, t, "must be a time since 1970")
	case t.AsTime().Sub(now) > maxUntil:
		c.fail(field, t.AsTime().Format(time.RFC3339), "must be at most 10 years from now")
	}
}

func (c *checks) time(field string, t *timestamppb.Timestamp) {
	if t != nil && t.CheckValid() != nil {
		c.fail(field, t, "must be a time of the years 1 to 9999")
	}
}

// enum checks a value that must be one this version knows.
func (c *checks) enum(field string, value protoreflect.Enum) {
	if value.Descriptor().Values().ByNumber(value.Number()) == nil {
		c.fail(field, value.Number(), "must be a value of %s", value.Descriptor().Name())
	}
}

// page checks a page size; 0 stands for the default.
func (c *checks) page(size int32) {
	if size < 0 || size > maxPageSize {
		c.fail("page_size", size, "must be 0 (for %d) to %d", defaultPageSize, maxPageSize)
	}
}

func pageSize(size int32) int {
	if size == 0 {
		return defaultPageSize
	}
	return int(size)
}

func (c *checks) operator(by, reason string) {
	c.text("by", by, bounds.MaxIDLength)
	c.text("reason", reason, bounds.MaxMessageLength)
}

// url checks that a URL parses and has a host; empty is for the caller to judge.
func (c *checks) url(field, value string) {
	if value == "" {
		return
	}
	if _, err := canonical.Form(canonical.Plain, value); err != nil {
		c.fail(field, value, "%s", err)
	}
}

// from notes what a check of the domain found, under the field's path here.
func (c *checks) from(field string, err error) {
	limit := err.Error()
	value := ""
	if fields := fieldErrors(err); len(fields) > 0 {
		limit, value = fields[0].Limit, fields[0].Value
	}
	c.fail(field, value, "%s", limit)
}

// target checks what names a task: a URL, or a key and a queue.
func (c *checks) target(url, key, queue string) {
	c.url("url", url)
	c.identity(url, key, queue)
}

// identity is target without a look at the URL, for what the domain answers
// item by item: it parses each URL, and once is enough.
func (c *checks) identity(url, key, queue string) {
	if url == "" && (key == "" || queue == "") {
		c.fail("url", url, "must be set, unless key and queue are")
	}
	c.text("key", key, bounds.MaxURLLength)
	c.optionalQueue("queue", queue)
}

func (c *checks) taskID(field, value string) {
	if value == "" {
		c.fail(field, value, "must be set")
	} else if _, err := dispatch.ParseTaskID(value); err != nil {
		c.from(field, err)
	}
}

func (c *checks) leaseToken(field, value string) {
	if value == "" {
		c.fail(field, value, "must be set")
	} else if _, err := dispatch.ParseLeaseToken(value); err != nil {
		c.fail(field, value, "must be a lease token, \"<collector_id>/<client_token>/<fence>\"")
	}
}

// pattern checks what a queue rule matches: a name, "*." and a suffix, or "*".
func (c *checks) pattern(field, value string) {
	if value == "*" {
		return
	}
	name, suffix := strings.CutPrefix(value, "*.")
	if suffix && name == "" || strings.Contains(name, "*") || strings.HasPrefix(name, ".") {
		c.fail(field, value, "must be a name, \"*.\" and a suffix, or \"*\"")
	} else {
		c.queue(field, name)
	}
}
