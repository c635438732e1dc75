package dispatch

import (
	"errors"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// Errors that callers can distinguish with errors.Is. Adapters wrap them with the operation and its subject.
var (
	// ErrInvalid is an argument outside its limits. The text names the
	// field, the value and the limit.
	ErrInvalid = errors.New("invalid")
	// ErrSourceNotFound is a source id that no source has.
	ErrSourceNotFound = errors.New("source not found")
	// ErrSourceExists is a source created with an id that is taken.
	ErrSourceExists = errors.New("source exists")
	// ErrEtagMismatch is a change of a source, the queue rules or the holds after somebody else changed them.
	ErrEtagMismatch = errors.New("etag does not match")
	// ErrTaskNotFound is a task id, or an identity, that no record has.
	ErrTaskNotFound = errors.New("task not found")
	// ErrQueueNotEmpty is a mapping of hosts away from a queue that still
	// holds their tasks.
	ErrQueueNotEmpty = errors.New("queue not empty")
	// ErrRuleNotFound is a queue rule pattern that no rule has.
	ErrRuleNotFound = errors.New("queue rule not found")
	// ErrHoldExists is a hold with the target and name of an existing one that differs.
	ErrHoldExists = errors.New("hold exists")
	// ErrStaleHolds is a claim of a dispatcher that has not read the newest holds.
	ErrStaleHolds = errors.New("the holds have changed")
	// ErrLeaseLost is a lease token that is not the task's current one (P3).
	ErrLeaseLost = errors.New("lease lost")
	// ErrCollectorReplaced is a call of a collector's session after a newer
	// session of the same collector has begun.
	ErrCollectorReplaced = errors.New("collector replaced by a newer session")
	// ErrCollectorBound is a collector id that belongs to another identity.
	ErrCollectorBound = errors.New("collector belongs to another identity")
	// ErrStoreUnavailable is a store that cannot be reached, or did not
	// answer in time. Whether the call took effect is unknown: repeat it with
	// the same token or key.
	ErrStoreUnavailable = errors.New("store unavailable")
	// ErrStoreFull is a store that takes no more data. What is in it can
	// still be worked on.
	ErrStoreFull = errors.New("store full")
	// ErrStoreMismatch is a store with other fixed settings, such as the number of shards, or one that cannot keep
	// Waggle's promises. It is found at start; a repeat does not help.
	ErrStoreMismatch = errors.New("store does not fit")
	// ErrNoStandby is a store that cannot be given to another dispatcher now.
	ErrNoStandby = errors.New("no standby")
	// ErrTooManyWaiters is a fetch refused because too many are parked.
	ErrTooManyWaiters = errors.New("too many parked fetches")
	// ErrPageToken is a page token that this list did not return.
	ErrPageToken = errors.New("page token does not belong to this list")
)

// FieldError is one field outside its limits. It wraps [ErrInvalid].
type FieldError struct {
	// Field is the path of the field as the API names it, such as
	// "schedule.cron".
	Field string
	// Value as given, shortened, without credentials if it is a URL.
	Value string
	// Limit that it breaks, as the end of "it ...", such as "must be 1s to 1h".
	Limit string
}

// Error names the field, the value and the limit.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %.80q; it %s", e.Field, e.Value, e.Limit)
}

// Unwrap makes it an [ErrInvalid].
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Invalid makes a [FieldError].
func Invalid(field string, value any, limit string) error {
	return &FieldError{Field: field, Value: canonical.RedactedURL(fmt.Sprint(value)), Limit: limit}
}

// prefixField puts the path of the enclosing field before a [FieldError]'s.
func prefixField(prefix string, err error) error {
	var field *FieldError
	if errors.As(err, &field) {
		return &FieldError{Field: prefix + "." + field.Field, Value: field.Value, Limit: field.Limit}
	}
	return fmt.Errorf("%s: %w", prefix, err)
}
