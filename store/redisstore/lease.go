package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// Expired implements [dispatch.Leases].
func (s *Store) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	var sweep dispatch.Sweep
	r, err := s.scripts.Run(ctx, "sweep leases", script.Expired, script.Call{Shard: shard, Args: []any{min(max(limit, 0), bounds.MaxExpired)}})
	if err != nil {
		return sweep, err
	}
	sweep.Now, sweep.Next, sweep.Grace = r.Time(), r.Time(), r.Bool()
	sweep.Expired, err = record.Tasks(r, sweep.Now)
	return sweep, err
}

// EndSession implements [dispatch.Leases].
func (s *Store) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	if s.scripts.ShardOf(collector) == shard {
		return s.heldBefore(ctx, shard, collector, keep, max(limit, 1))
	}
	// The script cannot see in this shard whether the session was replaced.
	if replaced, err := s.wasReplaced(ctx, collector, keep); replaced || err != nil {
		return nil, err
	}
	held, err := s.heldBefore(ctx, shard, collector, keep, max(limit, 1))
	if err != nil {
		return nil, err
	}
	// It may be later than the call of a newer session; then it has found that session's tasks.
	replaced, err := s.wasReplaced(ctx, collector, keep)
	if replaced && err == nil {
		err = s.keepAll(ctx, shard, collector)
	}
	if replaced || err != nil {
		return nil, err
	}
	return held, nil
}

// keepAll lets a shard grant to all sessions of a collector again. The home shard refuses the older ones.
func (s *Store) keepAll(ctx context.Context, shard int, collector string) error {
	_, err := script.Retry(ctx, "keep all sessions", func() (int64, error) {
		return s.client.Del(ctx, s.keys.Shard(shard).Keep(collector)).Result()
	})
	return err
}

// heldBefore lets a shard keep one session of a collector, and returns tasks that other sessions hold there. It scans
// the collector's leases from the start until it has found enough; those that an earlier caller has ended are no longer
// there.
func (s *Store) heldBefore(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	home := s.scripts.ShardOf(collector) == shard
	var held []*dispatch.Task
	for at := []any{"0"}; ; {
		args := append([]any{collector, keep, limit - len(held), home && len(held) == 0}, at...)
		r, err := s.scripts.Run(ctx, "end session", script.Session, script.Call{Shard: shard, Args: args})
		if err != nil {
			return nil, err
		}
		met, err := record.Tasks(r, time.Time{})
		if err != nil {
			return nil, err
		}
		at = at[:0]
		for r.More() {
			at = append(at, r.Text())
		}
		if r.Err != nil {
			return nil, r.Err
		}
		held = append(held, met...)
		if ended := len(at) == 1 && at[0] == ""; ended || len(held) >= limit {
			return held, nil
		}
	}
}

// RequestCancel implements [dispatch.Leases].
func (s *Store) RequestCancel(ctx context.Context, ids []dispatch.TaskID, reason dispatch.CancelReason, line *dispatch.Attempt) error {
	said, err := pack.JSON(line)
	if err != nil {
		return fmt.Errorf("%w: line of a task's history: %w", dispatch.ErrInvalid, err)
	}
	calls := s.scripts.Pages(len(ids), bounds.MaxTransitions, func(i int) dispatch.TaskID { return ids[i] })
	for i, c := range calls {
		args := []any{int(reason), said}
		for _, n := range c.Items {
			args = append(args, string(ids[n]))
		}
		calls[i].Args = args
	}
	_, err = s.scripts.RunAll(ctx, "request cancel", script.Cancel, calls)
	return err
}

// maxLeases bounds a page of ListLeases.
const maxLeases = 1000

// leasePosition is where a list of leases continues: the shard, and score and member of the last entry.
type leasePosition struct {
	shard         int
	score, member string
}

// String is the cursor: "<shard>/<score>/<member>".
func (p leasePosition) String() string { return strconv.Itoa(p.shard) + "/" + p.score + "/" + p.member }

func parseLeasePosition(cursor string) (p leasePosition, err error) {
	if cursor == "" {
		return p, nil
	}
	parts := strings.SplitN(cursor, "/", 3)
	p.shard, err = strconv.Atoi(parts[0])
	if err != nil || p.shard < 0 || len(parts) < 3 {
		return p, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
	}
	p.score, p.member = parts[1], parts[2]
	if !isScore(p.score) {
		return p, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
	}
	return p, nil
}

// isScore reports whether a part of a cursor is the score of an entry as Redis wrote it, or empty.
func isScore(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return text == "" || text == "inf" || err == nil && strings.Trim(text, "0123456789.e+-") == "" // no NaN, no hexadecimal digits
}

// ListLeases implements [dispatch.Leases]: shard after shard, by deadline.
func (s *Store) ListLeases(ctx context.Context, cursor string, limit int) ([]*dispatch.Task, string, error) {
	p, err := parseLeasePosition(cursor)
	if err != nil {
		return nil, "", err
	}
	limit = min(max(limit, 1), maxLeases)
	var leases []*dispatch.Task
	bytes := 0
	for range maxListSteps {
		if p.shard >= s.scripts.Shards {
			return leases, "", nil
		}
		if len(leases) >= limit || bytes >= bounds.MaxPageBytes {
			break
		}
		page, next, err := s.leasesStep(ctx, p, leaseFilter{}, limit-len(leases), bounds.MaxPageBytes-bytes)
		if err != nil {
			return nil, "", err
		}
		if bytes > 0 && bytes+page.bytes > bounds.MaxPageBytes {
			break // what was found is too much, and begins the next page
		}
		leases, bytes, p = append(leases, page.tasks...), bytes+page.bytes, next
		if p.member == "" {
			p = leasePosition{shard: p.shard + 1}
		}
	}
	return leases, p.String(), nil
}

// leaseFilter selects entries of the lease index: of a source and a queue (empty = any), leases alone or orphans, too.
type leaseFilter struct {
	uid, queue string
	orphans    bool
}

// leasesStep reads a page of the lease index of a shard. The first task does not count against the limit of bytes.
func (s *Store) leasesStep(ctx context.Context, p leasePosition, f leaseFilter, limit, limitBytes int) (listed, leasePosition, error) {
	var page listed
	args := []any{limit, limitBytes, p.score, p.member, f.uid, f.queue, f.orphans}
	r, err := s.scripts.Run(ctx, "list leases", script.Leases, script.Call{Shard: p.shard, Args: args})
	if err != nil {
		return page, p, err
	}
	now := r.Time()
	if page.tasks, err = readListed(r, now); err != nil {
		return page, p, err
	}
	page.bytes, page.looked = int(r.Integer()), int(r.Integer())
	return page, leasePosition{shard: p.shard, score: r.Text(), member: r.Text()}, r.Err
}
