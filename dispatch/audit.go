package dispatch

import (
	"context"
	"time"
)

// AuditEntry is one change that an operator made. Its texts are within [bounds.MaxIdentityLength] (By),
// [bounds.MaxAuditText] (Before, After) and [bounds.MaxMessageLength] (the others).
type AuditEntry struct {
	// ID is given by the store. It is unique in the store and says nothing else.
	ID string `json:"-"`
	// Time is given by the store: its clock, in milliseconds, but never before that of an older entry.
	Time time.Time `json:"-"`
	// By is the identity of the caller.
	By string `json:"by,omitempty"`
	// Said is what the caller wrote into `by` of the request.
	Said string `json:"said,omitempty"`
	// From is the address of the caller.
	From string `json:"from,omitempty"`
	// Method is the name of the method without its service.
	Method string `json:"method,omitempty"`
	// Target is what was changed.
	Target string `json:"target,omitempty"`
	// Before and After are the values that the change replaced and set.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// NoticeLog keeps what operators were told of findings, for the next owner of the store. It does not look into the records.
type NoticeLog interface {
	// Notices are all, by name.
	Notices(ctx context.Context) (map[string][]byte, error)
	// PutNotice keeps the record of a notice, or removes it if the record is empty. A full store takes it, too. Fails with ErrInvalid
	// if name or record are over [bounds.MaxNoticeName] or [bounds.MaxNoticeBytes], name is empty, or there would be more than
	// [bounds.MaxNotices].
	PutNotice(ctx context.Context, name string, record []byte) error
}

// AuditLog keeps what operators changed.
type AuditLog interface {
	// AppendAudit adds an entry, and removes the oldest ones beyond [bounds.MaxAuditEntries]. ID and Time of the entry
	// are ignored. A repeat by the caller adds another entry.
	AppendAudit(ctx context.Context, entry AuditEntry) error
	// AuditEntries lists entries, newest first, from the first one that is older than the one with the ID before; ""
	// begins at the newest. by selects the entries with exactly this By; "" selects all. It reads at most
	// [bounds.MaxLooks] entries, so a page may have fewer than limit, even none, and still a next. next is empty at the
	// end. An entry that was removed between two pages is on neither.
	AuditEntries(ctx context.Context, by, before string, limit int) (entries []AuditEntry, next string, err error)
}
