package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// auditEntry is an entry of the audit log. Its number is its ID.
type auditEntry struct {
	number uint64
	time   int64
	entry  dispatch.AuditEntry
}

// AppendAudit implements [dispatch.AuditLog].
func (s *Store) AppendAudit(ctx context.Context, entry dispatch.AuditEntry) error {
	b := &s.access
	return b.call(ctx, func() error {
		next := &auditEntry{number: 1, time: b.now, entry: entry}
		if n := len(b.audit); n > 0 {
			newest := b.audit[n-1]
			next.number, next.time = newest.number+1, max(b.now, newest.time)
		}
		oldest := uint64(0) // the number of the one that must go
		if len(b.audit) >= bounds.MaxAuditEntries {
			oldest = b.audit[0].number
		}
		return b.commit(bookShard, machine.SmallGroup, false, func() { b.add(next) }, func(out []byte) []byte {
			if oldest != 0 {
				out = codec.AppendItem(out, codec.Audit|codec.Removed, 0, func(c *codec.Codec) { codec.Uint(c, 1, &oldest) })
			}
			return codec.AppendItem(out, codec.Audit, 0, func(c *codec.Codec) { auditFields(c, next) })
		})
	})
}

// AuditEntries implements [dispatch.AuditLog].
func (s *Store) AuditEntries(ctx context.Context, by, before string, limit int) ([]dispatch.AuditEntry, string, error) {
	end := uint64(0)
	if before != "" {
		var err error
		if end, err = strconv.ParseUint(before, 10, 64); err != nil || end == 0 {
			return nil, "", fmt.Errorf("%w: %.64q is no id of an audit entry", dispatch.ErrPageToken, before)
		}
	}
	var entries []dispatch.AuditEntry
	var next string
	err := s.access.call(ctx, func() error {
		entries, next = s.access.entries(by, end, max(limit, 1))
		return nil
	})
	return entries, next, err
}

// entries lists entries from the newest one before that number on; 0: from the newest of all.
func (b *accessBook) entries(by string, before uint64, limit int) (entries []dispatch.AuditEntry, next string) {
	at := len(b.audit)
	if before != 0 {
		at, _ = slices.BinarySearchFunc(b.audit, before, func(a *auditEntry, n uint64) int { return cmp.Compare(a.number, n) })
	}
	for looks := 0; at > 0; looks++ {
		if len(entries) == limit || looks == bounds.MaxLooks {
			return entries, strconv.FormatUint(b.audit[at].number, 10)
		}
		at--
		a := b.audit[at]
		if by != "" && a.entry.By != by {
			continue
		}
		e := a.entry
		e.ID, e.Time = strconv.FormatUint(a.number, 10), ms.Time(a.time)
		entries = append(entries, e)
	}
	return entries, ""
}

// add adds an entry, mostly the newest one, and removes the oldest one beyond the limit. While the log is loaded an entry may come again.
func (b *accessBook) add(a *auditEntry) {
	at, known := slices.BinarySearchFunc(b.audit, a.number, func(a *auditEntry, n uint64) int { return cmp.Compare(a.number, n) })
	if known {
		return // it never changes
	}
	b.audit = slices.Insert(b.audit, at, a)
	if len(b.audit) > bounds.MaxAuditEntries {
		b.audit = slices.Delete(b.audit, 0, 1)
	}
}
