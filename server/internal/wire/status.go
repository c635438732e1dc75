package wire

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// errorDomain is the domain of every ErrorInfo.
const errorDomain = "waggle"

// How long callers are asked to wait before they repeat a call.
const (
	retrySoon      = time.Second
	retryElsewhere = 10 * time.Millisecond // another dispatcher takes the call
	retryFull      = 5 * time.Second       // a store that is full
)

// ErrDraining is a call that this dispatcher no longer takes because it shuts down. Another dispatcher takes it.
var ErrDraining = errors.New("dispatcher is draining")

// errorKind is how a sentinel of the domain is returned to callers.
type errorKind struct {
	sentinel error
	code     codes.Code
	reason   pb.ErrorReason
	retry    time.Duration // 0: repeating does not help
}

// errorTable is walked with errors.Is, the first match counts. What matches none is a fault of Waggle's: INTERNAL.
var errorTable = [...]errorKind{
	{dispatch.ErrPageToken, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID, 0},
	{dispatch.ErrInvalid, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_FIELD, 0},
	{dispatch.ErrSourceNotFound, codes.NotFound, pb.ErrorReason_ERROR_REASON_SOURCE_NOT_FOUND, 0},
	{dispatch.ErrSourceExists, codes.AlreadyExists, pb.ErrorReason_ERROR_REASON_SOURCE_EXISTS, 0},
	{dispatch.ErrEtagMismatch, codes.Aborted, pb.ErrorReason_ERROR_REASON_ETAG_MISMATCH, 0},
	{dispatch.ErrTaskNotFound, codes.NotFound, pb.ErrorReason_ERROR_REASON_TASK_NOT_FOUND, 0},
	{dispatch.ErrRuleNotFound, codes.NotFound, pb.ErrorReason_ERROR_REASON_QUEUE_RULE_NOT_FOUND, 0},
	{dispatch.ErrQueueNotEmpty, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_QUEUE_NOT_EMPTY, 0},
	{dispatch.ErrHoldExists, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_HOLD_EXISTS, 0},
	{dispatch.ErrLeaseLost, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_LEASE_LOST, 0},
	{dispatch.ErrCollectorReplaced, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_COLLECTOR_REPLACED, 0},
	{dispatch.ErrCollectorBound, codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_COLLECTOR_BOUND, 0},
	{dispatch.ErrNoStandby, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_NO_STANDBY, 0},
	{dispatch.ErrStoreFull, codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_STORE_FULL, retryFull},
	{dispatch.ErrStoreUnavailable, codes.Unavailable, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, retrySoon},
	{dispatch.ErrTooManyWaiters, codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS, retrySoon},
	{ErrDraining, codes.Unavailable, pb.ErrorReason_ERROR_REASON_DISPATCHER_DRAINING, retryElsewhere},
}

// kindOf finds err in the table; nil when it is not in it.
func kindOf(err error) *errorKind {
	for i := range errorTable {
		if errors.Is(err, errorTable[i].sentinel) {
			return &errorTable[i]
		}
	}
	return nil
}

// Status is the status that a caller gets for err, and whether callers may see err. Of any other they get
// INTERNAL with an error id, and nothing else.
func Status(gone, err error, errorID string) (st *status.Status, known bool) {
	if refused, ok := errors.AsType[*Refusal](err); ok {
		return refused.status(), true
	}
	if st, ok := status.FromError(err); ok {
		if sentBytes(st) > maxSent {
			st = status.New(st.Code(), cut(st.Message(), maxMessage))
		}
		return st, true
	}
	interrupted := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	// The end of the caller's own context also looks like a store that did not answer.
	if gone != nil && (interrupted || errors.Is(err, dispatch.ErrStoreUnavailable)) {
		return status.FromContextError(gone), true
	}
	kind := kindOf(err)
	switch {
	case kind != nil && kind.code == codes.InvalidArgument:
		return kind.invalid(err), true
	case kind != nil:
		refusal := Refusal{Code: kind.code, Reason: kind.reason, Text: kind.sentinel.Error(), Retry: kind.retry}
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			refusal.Text += ": no room on the disk"
		}
		if what, ok := errors.AsType[*contextual](err); ok {
			refusal.Pairs = what.pairs
		}
		return refusal.status(), true
	case interrupted:
		return status.FromContextError(err), true
	}
	internal := Refusal{
		Code: codes.Internal, Reason: pb.ErrorReason_ERROR_REASON_INTERNAL,
		Text: "internal error; the dispatcher's log has the rest", Pairs: []string{"error_id", errorID},
	}
	return internal.status(), false
}

// Refusal is an error that the transport itself raises.
type Refusal struct {
	Code   codes.Code
	Reason pb.ErrorReason
	Text   string
	Pairs  []string // names and values, in turn
	Retry  time.Duration
}

// Error gives the text with its names and values.
func (e *Refusal) Error() string { return e.Text + describe(e.Pairs) }

// status has the names and values in its message and in its metadata.
func (e *Refusal) status() *status.Status {
	metadata := make(map[string]string, len(e.Pairs)/2)
	for i := 0; i+1 < len(e.Pairs); i += 2 {
		metadata[e.Pairs[i]] = shorten(e.Pairs[i+1])
	}
	var details []protoadapt.MessageV1
	if e.Retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.Retry)})
	}
	return newStatus(e.Code, e.Reason, e.Error(), metadata, details...)
}

// Bounds of a status in bytes. The trailer that has it stays under 8 KiB, the names of its fields included: grpcio drops
// longer ones at random, and so the error.
const (
	maxSent    = 7 << 10 // the message and the details, as they are encoded
	maxMessage = 768
	maxDetail  = 512 // of one text in the details
)

// sentBytes is how many bytes the message and the details of a status take in a trailer: percent-encoded, and in base64.
func sentBytes(st *status.Status) int {
	encoded := 0
	for _, b := range []byte(st.Message()) {
		if encoded++; b < ' ' || b > '~' || b == '%' {
			encoded += len("%00") - 1
		}
	}
	return encoded + base64.RawStdEncoding.EncodedLen(proto.Size(st.Proto()))
}

func newStatus(code codes.Code, reason pb.ErrorReason, message string, metadata map[string]string, details ...protoadapt.MessageV1) *status.Status {
	st := status.New(code, cut(message, maxMessage))
	for name, value := range metadata {
		metadata[name] = cut(value, maxDetail)
	}
	if reason != pb.ErrorReason_ERROR_REASON_UNSPECIFIED {
		info := &errdetails.ErrorInfo{Reason: reasonName(reason), Domain: errorDomain, Metadata: metadata}
		details = append([]protoadapt.MessageV1{info}, details...)
	}
	if detailed, err := st.WithDetails(details...); err == nil { // only OK takes no details, and nothing here is OK
		return detailed
	}
	return st
}

// invalid names the first field that err is about in words, and all of them as violations, as far as there is room.
func (k *errorKind) invalid(err error) *status.Status {
	fields := fieldErrors(err)
	message, metadata := err.Error(), map[string]string{"detail": err.Error()}
	if len(fields) == 0 {
		fields = []*dispatch.FieldError{{Limit: err.Error()}}
	} else {
		first := fields[0]
		message, metadata = first.Error(), map[string]string{"field": first.Field, "value": shorten(first.Value), "limit": first.Limit}
	}
	bad := new(errdetails.BadRequest)
	for _, field := range fields {
		description := field.Limit
		if field.Field != "" {
			description = field.Error()
		}
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: cut(field.Field, maxDetail), Description: cut(description, maxDetail), Reason: reasonName(k.reason),
		})
	}
	st, all := newStatus(k.code, k.reason, message, metadata, bad), bad.GetFieldViolations()
	for shown := len(all) - 1; shown > 0 && sentBytes(st) > maxSent; shown-- {
		more := &errdetails.BadRequest_FieldViolation{Description: fmt.Sprintf("%d more fields are invalid", len(all)-shown), Reason: reasonName(k.reason)}
		bad.FieldViolations = append(slices.Clone(all[:shown]), more)
		st = newStatus(k.code, k.reason, message, metadata, bad)
	}
	return st
}

// reasonName is a reason as ErrorInfo spells it.
func reasonName(reason pb.ErrorReason) string {
	return strings.TrimPrefix(reason.String(), "ERROR_REASON_")
}

// contextual is an error with what the call was about.
type contextual struct {
	err   error
	pairs []string
}

// About adds what err was about, as names and values in turn: they become part of the message and metadata of its
// status. Nil stays nil.
func About(err error, pairs ...string) error {
	if err == nil {
		return nil
	}
	return &contextual{err: err, pairs: pairs}
}

func (e *contextual) Error() string { return e.err.Error() + describe(e.pairs) }
func (e *contextual) Unwrap() error { return e.err }

// describe writes names and values as ": name "value", name "value"".
func describe(pairs []string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(&b, "%s%s %q", separator, pairs[i], shorten(pairs[i+1]))
	}
	return b.String()
}

// maxShown is how many bytes of a value go into an error.
const maxShown = 80

// shorten cuts a value for an error, and shows that it did.
func shorten(value string) string {
	return cut(canonical.RedactedURL(value), maxShown)
}

// cut is at most so many bytes of a text, with dots in place of the rest.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "..."
}

// invalidRequest is every field of a request that is outside its limits.
type invalidRequest struct{ fields []*dispatch.FieldError }

func (e *invalidRequest) Error() string { return e.fields[0].Error() }
func (e *invalidRequest) Unwrap() error { return e.fields[0] }

// fieldErrors are the fields that err is about.
func fieldErrors(err error) []*dispatch.FieldError {
	if request, ok := errors.AsType[*invalidRequest](err); ok {
		return request.fields
	}
	if field, ok := errors.AsType[*dispatch.FieldError](err); ok {
		return []*dispatch.FieldError{field}
	}
	return nil
}

// Bounds of fields that the domain has no name for.
const (
	MaxBatch       = 1000 // items, reports, leases or ids of one call
	maxLabelLength = 128
	maxViolations  = 20 // returned of one request
)

// checks reads the fields of a request, each as the value that the domain wants, and collects those outside their
// limits.
type checks struct{ broken []*dispatch.FieldError }

// fail notes a field; limit is the end of "it ...".
func (c *checks) fail(field string, value any, limit string, args ...any) {
	if len(c.broken) >= maxViolations {
		return
	}
	if len(args) > 0 {
		limit = fmt.Sprintf(limit, args...)
	}
	c.broken = append(c.broken, &dispatch.FieldError{Field: field, Value: canonical.RedactedURL(fmt.Sprint(value)), Limit: limit})
}

func (c *checks) err() error {
	if len(c.broken) == 0 {
		return nil
	}
	return &invalidRequest{fields: c.broken}
}

// list reads each element of a list, whose fields get the element's path. Elements are many and wrong ones few, so
// paths are made for those only.
func list[From, To any](c *checks, field string, elements []From, least, most int, read func(field string, element From) To) []To {
	c.count(field, len(elements), least, most)
	if len(elements) == 0 {
		return nil
	}
	out := make([]To, min(len(elements), most))
	for i := range out {
		n := len(c.broken)
		out[i] = read("", elements[i])
		for _, broken := range c.broken[n:] {
			at := fmt.Sprintf("%s[%d]", field, i)
			if broken.Field != "" {
				at += "." + broken.Field
			}
			broken.Field = at
		}
	}
	return out
}

func (c *checks) count(field string, n, least, most int) {
	if n < least || n > most {
		c.fail(field, n, "has %d entries; the limit is %d to %d", n, least, most)
	}
}

// id reads what people name: sources, collectors, pools, scopes.
func (c *checks) id(field, value string) string {
	return c.name(field, value, bounds.MaxIDLength, isIDRune, "must be of a-z, 0-9, '.', '_' and '-'")
}

// token reads what programs name: sessions and client tokens.
func (c *checks) token(field, value string) string {
	of := func(r rune) bool { return isIDRune(r) || 'A' <= r && r <= 'Z' }
	return c.name(field, value, bounds.MaxIDLength, of, "must be of A-Z, a-z, 0-9, '.', '_' and '-'")
}

// queue reads the name of a queue: a host, with a port if it has one, or what people chose.
func (c *checks) queue(field, value string) string {
	of := func(r rune) bool { return isIDRune(r) || r == ':' || r == '[' || r == ']' }
	return c.name(field, value, bounds.MaxQueueLength, of, "must be of a-z, 0-9, '.', '_', '-', ':' and brackets, as a host is in lower case and punycode")
}

// name reads what must be set, has a limit and is of few letters only.
func (c *checks) name(field, value string, longest int, of func(rune) bool, letters string) string {
	switch {
	case value == "":
		c.fail(field, value, "must be set")
	case len(value) > longest:
		c.tooLong(field, value, longest)
	case strings.ContainsFunc(value, func(r rune) bool { return !of(r) }):
		c.fail(field, value, letters)
	}
	return value
}

func (c *checks) tooLong(field, value string, limit int) {
	c.fail(field, value, "is %d bytes long; the limit is %d", len(value), limit)
}

func isIDRune(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-'
}

// optional reads a name that may be left out.
func optional(read func(field, value string) string, field, value string) string {
	if value == "" {
		return ""
	}
	return read(field, value)
}

// text reads free text: a size, and no control characters but white space.
func (c *checks) text(field, value string, most int) string {
	switch {
	case len(value) > most:
		c.fail(field, value, "is %d bytes long; the limit is %d", len(value), most)
	case !utf8.ValidString(value):
		c.fail(field, value, "must be UTF-8")
	case strings.ContainsFunc(value, isControl):
		c.fail(field, value, "must hold no control characters")
	}
	return value
}

func isControl(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f
}

// bytes reads bytes, whose value is not shown.
func (c *checks) bytes(field string, value []byte, most int) []byte {
	c.size(field, len(value), most)
	return value
}

func (c *checks) size(field string, n, most int) {
	if n > most {
		c.fail(field, strconv.Itoa(n)+" bytes", "must be at most %d bytes", most)
	}
}

func (c *checks) metadata(field string, m map[string]string) map[string]string {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
		if k == "" || strings.ContainsFunc(k, isControl) {
			c.fail(field, k, "must have keys that are not empty and hold no control characters")
		}
	}
	c.size(field, n, bounds.MaxMetadataLength)
	return m
}

func (c *checks) labels(field string, m map[string]string, most int) map[string]string {
	c.count(field, len(m), 0, most)
	for k, v := range m {
		if k == "" {
			c.fail(field+".key", k, "must be set")
		}
		c.text(field+".key", k, maxLabelLength)
		c.text(field+"["+shorten(k)+"]", v, maxLabelLength)
	}
	return m
}

func (c *checks) number(field string, n, least, most int64) int64 {
	if n < least || n > most {
		c.fail(field, n, "must be %d to %d", least, most)
	}
	return n
}

func (c *checks) priority(field string, n *int32) int {
	if n == nil {
		return dispatch.DefaultPriority
	}
	return int(c.number(field, int64(*n), 0, bounds.MaxPriority))
}

// duration reads one that may be left out, and is zero then.
func (c *checks) duration(field string, d *durationpb.Duration, least, most time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	if err := d.CheckValid(); err != nil {
		c.fail(field, fmt.Sprintf("%ds %dns", d.GetSeconds(), d.GetNanos()), "must be a duration of %v to %v", least, most)
		return 0
	}
	got := d.AsDuration()
	if got < least || got > most {
		c.fail(field, got, "must be %v to %v", least, most)
	}
	return got
}

// time reads an instant as stores have them, in whole milliseconds; zero when absent.
func (c *checks) time(field string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	if t.CheckValid() != nil {
		c.fail(field, t, "must be a time of the years 1 to 9999")
	}
	return t.AsTime().Truncate(time.Millisecond)
}

// toTime leaves a zero time out.
func toTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// toDuration leaves a zero duration out.
func toDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
