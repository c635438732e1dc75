package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

var _ dispatch.AuditLog = (*Store)(nil)

// auditReads is how many entries of the audit log one read takes.
const auditReads = 100

// AppendAudit implements [dispatch.AuditLog].
func (s *Store) AppendAudit(ctx context.Context, entry dispatch.AuditEntry) error {
	encoded, err := json.Marshal(&entry)
	if err != nil {
		return fmt.Errorf("%w: audit entry of %.64q cannot be encoded: %w", dispatch.ErrInvalid, entry.Method, err)
	}
	_, err = s.scripts.Run(ctx, "append audit entry", script.Audit, script.Call{Args: []any{uuid.NewString(), encoded, bounds.MaxAuditEntries}})
	return err
}

// AuditEntries implements [dispatch.AuditLog].
func (s *Store) AuditEntries(ctx context.Context, by, before string, limit int) (entries []dispatch.AuditEntry, next string, err error) {
	newest := "+"
	if before != "" {
		if _, err := auditTime(before); err != nil {
			return nil, "", err
		}
		newest = "(" + before
	}
	limit = max(limit, 1)
	for looks := 0; ; {
		count := min(auditReads, bounds.MaxLooks-looks)
		if by == "" {
			count = min(count, limit-len(entries))
		}
		found, err := script.Retry(ctx, "read audit log", func() ([]redis.XMessage, error) {
			return s.client.XRevRangeN(ctx, s.keys.Shard(0).Audit(), newest, "-", int64(count)).Result()
		})
		if err != nil {
			return nil, "", err
		}
		for i := range found {
			looks++
			entry, err := readAudit(&found[i])
			if err != nil {
				return nil, "", err
			}
			if by == "" || entry.By == by {
				entries = append(entries, entry)
			}
			newest = "(" + entry.ID
			if len(entries) == limit || looks == bounds.MaxLooks {
				return entries, entry.ID, nil
			}
		}
		if len(found) < count {
			return entries, "", nil
		}
	}
}

// readAudit reads an entry of the stream.
func readAudit(m *redis.XMessage) (entry dispatch.AuditEntry, err error) {
	encoded, ok := m.Values["entry"].(string)
	if !ok {
		return entry, fmt.Errorf("audit entry %s has no content", m.ID)
	}
	if err := json.Unmarshal([]byte(encoded), &entry); err != nil {
		return entry, fmt.Errorf("decode audit entry %s: %w", m.ID, err)
	}
	entry.ID = m.ID
	entry.Time, err = auditTime(m.ID)
	return entry, err
}

// auditTime is the time of the entry with that id. The error is [dispatch.ErrPageToken].
func auditTime(id string) (time.Time, error) {
	millis, number, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseUint(millis, 10, 63)
	if err == nil {
		_, err = strconv.ParseUint(number, 10, 64)
	}
	if err != nil || ms == 0 {
		return time.Time{}, fmt.Errorf("%w: %.64q is no id of an audit entry", dispatch.ErrPageToken, id)
	}
	return pack.Instant(int64(ms)), nil
}
