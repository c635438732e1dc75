package operate

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// ReleaseCollector makes a collector id nobody's, and returns whose it was; "" if nobody's.
func (o *Operator) ReleaseCollector(ctx context.Context, collectorID string) (owner string, err error) {
	if owner, err = o.store.ReleaseCollector(ctx, collectorID); err != nil {
		return "", fmt.Errorf("release collector %s: %w", collectorID, err)
	}
	return owner, nil
}

// Audit records a change that an operator made. It cuts texts that are longer than an entry may have.
func (o *Operator) Audit(ctx context.Context, entry dispatch.AuditEntry) error {
	entry.By = cut(entry.By, bounds.MaxIdentityLength)
	entry.Before, entry.After = cut(entry.Before, bounds.MaxAuditText), cut(entry.After, bounds.MaxAuditText)
	for _, text := range [...]*string{&entry.Said, &entry.From, &entry.Method, &entry.Target, &entry.Reason} {
		*text = cut(*text, bounds.MaxMessageLength)
	}
	if err := o.store.AppendAudit(ctx, entry); err != nil {
		return fmt.Errorf("append to the audit log: %w", err)
	}
	return nil
}

// AuditEntries lists changes that operators made, newest first: see [dispatch.AuditLog].
func (o *Operator) AuditEntries(ctx context.Context, by, before string, limit int) (entries []dispatch.AuditEntry, next string, err error) {
	if entries, next, err = o.store.AuditEntries(ctx, by, before, limit); err != nil {
		return nil, "", fmt.Errorf("list the audit log: %w", err)
	}
	return entries, next, nil
}

// cutMark ends a text that was cut.
const cutMark = "..."

// cut makes a text valid UTF-8 of at most so many bytes, and shows at its end if it is shorter than it was.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	end := most - len(cutMark)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cutMark
}
