package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// errorDomain is the domain of every ErrorInfo.
const errorDomain = "waggle"

// How long callers are asked to wait before they repeat.
const (
	retryStore   = time.Second
	retryFull    = 5 * time.Second
	retryWaiters = time.Second
	retryDrain   = time.Second
)

// errDraining is a call that this dispatcher no longer takes because it shuts down.
// Another dispatcher takes it.
var errDraining = errors.New("dispatcher is draining")

// errorKind is how a sentinel of the domain is told to callers.
type errorKind struct {
	sentinel error
	code     codes.Code
	reason   pb.ErrorReason
	// retry after; 0: repeating does not help.
	retry time.Duration
}

// errorTable is walked with errors.Is, the first that fits holds. What fits
// none is a fault of Waggle's: INTERNAL.
var errorTable = [...]errorKind{
	{dispatch.ErrPageToken, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID, 0},
	{dispatch.ErrInvalid, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_FIELD, 0},
	{dispatch.ErrSourceNotFound, codes.NotFound, pb.ErrorReason_ERROR_REASON_SOURCE_NOT_FOUND, 0},
	{dispatch.ErrSourceExists, codes.AlreadyExists, pb.ErrorReason_ERROR_REASON_SOURCE_EXISTS, 0},
	{dispatch.ErrEtagMismatch, codes.Aborted, pb.ErrorReason_ERROR_REASON_ETAG_MISMATCH, 0},
	{dispatch.ErrTaskNotFound, codes.NotFound, pb.ErrorReason_ERROR_REASON_TASK_NOT_FOUND, 0},
	{dispatch.ErrRuleNotFound, codes.NotFound, pb.ErrorReason_ERROR_REASON_QUEUE_RULE_NOT_FOUND, 0},
	{dispatch.ErrQueueNotEmpty, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_QUEUE_NOT_EMPTY, 0},
	{dispatch.ErrQueueDenied, codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_QUEUE_DENIED, 0},
	{dispatch.ErrRuleHolds, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_QUEUE_RULE_HOLDS, 0},
	{dispatch.ErrLeaseLost, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_LEASE_LOST, 0},
	{dispatch.ErrCollectorReplaced, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_COLLECTOR_REPLACED, 0},
	{dispatch.ErrStoreFull, codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_STORE_FULL, retryFull},
	{dispatch.ErrStoreReadOnly, codes.Unavailable, pb.ErrorReason_ERROR_REASON_STORE_READ_ONLY, retryStore},
	{dispatch.ErrStoreUnavailable, codes.Unavailable, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, retryStore},
	{dispatch.ErrTooManyWaiters, codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS, retryWaiters},
	{errDraining, codes.Unavailable, pb.ErrorReason_ERROR_REASON_DRAINING, retryDrain},
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

// reasonName is a reason as ErrorInfo spells it.
func reasonName(reason pb.ErrorReason) string {
	return strings.TrimPrefix(reason.String(), "ERROR_REASON_")
}

// contextual is an error with what the call was about: names and values that
// become metadata of the ErrorInfo, and part of the message.
type contextual struct {
	err   error
	pairs []string
}

// about says what err was about, as names and values in turn. Nil stays nil.
func about(err error, pairs ...string) error {
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

// invalidRequest is every field of a request that is outside its limits.
type invalidRequest struct{ fields []*dispatch.FieldError }

func (e *invalidRequest) Error() string { return e.fields[0].Error() }

func (e *invalidRequest) Unwrap() []error {
	errs := make([]error, len(e.fields))
	for i, field := range e.fields {
		errs[i] = field
	}
	return errs
}

// inside puts prefix before the field paths of err, for what is checked where
// the request around it is not known.
func inside(prefix string, err error) error {
	fields := fieldErrors(err)
	if len(fields) == 0 {
		return err
	}
	for i, field := range fields {
		path := prefix
		if field.Field != "" {
			path += "." + field.Field
		}
		fields[i] = &dispatch.FieldError{Field: path, Value: field.Value, Limit: field.Limit}
	}
	return &invalidRequest{fields: fields}
}

// fieldErrors are the fields that err is about.
func fieldErrors(err error) []*dispatch.FieldError {
	var request *invalidRequest
	if errors.As(err, &request) {
		return append([]*dispatch.FieldError(nil), request.fields...)
	}
	var field *dispatch.FieldError
	if errors.As(err, &field) {
		return []*dispatch.FieldError{field}
	}
	return nil
}

// refusal is an error that the transport itself raises.
type refusal struct {
	code   codes.Code
	reason pb.ErrorReason
	text   string
	pairs  []string // names and values, in turn
	retry  time.Duration
}

func (e *refusal) Error() string { return e.text + describe(e.pairs) }

// status tells the refusal with its metadata in the message, so that nothing
// stands in the message alone.
func (e *refusal) status() *status.Status {
	metadata := make(map[string]string, len(e.pairs)/2)
	for i := 0; i+1 < len(e.pairs); i += 2 {
		metadata[e.pairs[i]] = shorten(e.pairs[i+1])
	}
	return newStatus(e.code, e.reason, e.Error(), metadata, e.retry)
}

// statusOf is the status that tells callers of err, and whether err was known.
// An unknown one is told as INTERNAL under an error id and nothing else.
func statusOf(ctx context.Context, err error, errorID string) (*status.Status, bool) {
	var raised *refusal
	if errors.As(err, &raised) {
		return raised.status(), true
	}
	if st, ok := status.FromError(err); ok {
		return st, true
	}
	if gone := ctx.Err(); gone != nil && interrupted(err) {
		return status.FromContextError(gone), true
	}
	if kind := kindOf(err); kind != nil {
		return kind.status(err), true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err), true
	}
	internal := refusal{
		code: codes.Internal, reason: pb.ErrorReason_ERROR_REASON_INTERNAL,
		text: "internal error; the dispatcher's log has the rest", pairs: []string{"error_id", errorID},
	}
	return internal.status(), false
}

// interrupted reports whether err may be no more than the end of the caller's
// own context.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, dispatch.ErrStoreUnavailable)
}

// status tells err, which is of this kind.
func (k *errorKind) status(err error) *status.Status {
	if k.code == codes.InvalidArgument {
		return k.invalid(err)
	}
	answer := refusal{code: k.code, reason: k.reason, text: k.sentinel.Error(), retry: k.retry}
	var what *contextual
	if errors.As(err, &what) {
		answer.pairs = what.pairs
	}
	return answer.status()
}

// invalid tells the first field that err is about in words, and all of them as
// violations.
func (k *errorKind) invalid(err error) *status.Status {
	fields := fieldErrors(err)
	if len(fields) == 0 {
		metadata := map[string]string{"detail": err.Error()}
		return newStatus(k.code, k.reason, err.Error(), metadata, 0, k.violations([]*dispatch.FieldError{{Limit: err.Error()}}))
	}
	first := fields[0]
	metadata := map[string]string{"field": first.Field, "value": shorten(first.Value), "limit": first.Limit}
	return newStatus(k.code, k.reason, first.Error(), metadata, 0, k.violations(fields))
}

func (k *errorKind) violations(fields []*dispatch.FieldError) *errdetails.BadRequest {
	bad := new(errdetails.BadRequest)
	for _, field := range fields {
		description := field.Limit
		if field.Field != "" {
			description = field.Error()
		}
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: field.Field, Description: description, Reason: reasonName(k.reason),
		})
	}
	return bad
}

func newStatus(code codes.Code, reason pb.ErrorReason, message string, metadata map[string]string, retry time.Duration, more ...protoadapt.MessageV1) *status.Status {
	st := status.New(code, message)
	var details []protoadapt.MessageV1
	if reason != pb.ErrorReason_ERROR_REASON_UNSPECIFIED {
		details = append(details, &errdetails.ErrorInfo{Reason: reasonName(reason), Domain: errorDomain, Metadata: metadata})
	}
	if retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	detailed, err := st.WithDetails(append(details, more...)...)
	if err != nil {
		// Only OK takes no details, and nothing here is OK.
		return st
	}
	return detailed
}

// maxShown is how many bytes of a value go into an error.
const maxShown = 80

// shorten cuts a value for an error, and shows that it did.
func shorten(value string) string {
	value = strings.ToValidUTF8(value, "\uFFFD")
	if len(value) <= maxShown {
		return value
	}
	cut := maxShown
	for !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + "..."
}
