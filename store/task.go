package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// This file has what is done with tasks, from their submission to their end: [dispatch.Tasks], [dispatch.Claims] and [dispatch.Leases],
// but for the sessions of collectors (collector.go).

// Submit implements [dispatch.Tasks].
func (s *Store) Submit(ctx context.Context, rulesVersion int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	gateOf := machine.GatesByUID(gates)
	for i := range items {
		if _, err := dispatch.ParseTaskID(string(items[i].ID)); err != nil {
			return nil, err
		}
		if gateOf[items[i].SourceUID] == nil {
			return nil, fmt.Errorf("%w: source %.64q of task %s is not among the gates", dispatch.ErrInvalid, items[i].SourceUID, items[i].ID)
		}
	}
	results := make([]dispatch.SubmitResult, len(items))
	err := byPage(ctx, s, len(items), bounds.MaxSubmissions, func(i int) dispatch.TaskID { return items[i].ID },
		func(page []int) *machine.Submit {
			return &machine.Submit{Rules: rulesVersion, Gates: gates, Items: pick(items, page)}
		},
		func(_ *shard, c *machine.Submit, page []int) { spread(results, page, c.Answers) })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Tasks implements [dispatch.Tasks].
func (s *Store) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) (tasks []*dispatch.Task, now time.Time, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, now, err
	}
	tasks = make([]*dispatch.Task, len(ids))
	idOf := func(i int) dispatch.TaskID { return ids[i] }
	for sh, page := range s.byShard(len(ids), bounds.MaxRenewals, idOf) {
		named := pick(ids, page)
		err := sh.readTasks(ctx, named, func(sh *machine.Shard) {
			if at := sh.Instant(); at.After(now) {
				now = at
			}
			for n, i := range page {
				tasks[i] = sh.Get(named[n], details)
			}
		})
		if err != nil {
			return nil, now, err
		}
	}
	return tasks, now, nil
}

// mostOrphans is how often a claim goes on when all that a want got was undone, because of locks that somebody else has set.
const mostOrphans = 20

// Claim implements [dispatch.Claims].
func (s *Store) Claim(
	ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return dispatch.ClaimReply{}, err
	}
	c := machine.Claim{Pool: pool, Holds: holds, Wants: wants}
	lost, err := sh.claim(ctx, &c, decided)
	if err != nil || c.Err != nil {
		return dispatch.ClaimReply{}, cmp.Or(err, c.Err)
	}
	for range mostOrphans { // those are orphans now, so each turn meets others
		if len(lost) == 0 {
			return c.Reply, nil
		}
		again := machine.Claim{Pool: pool, Holds: holds, Wants: pick(wants, lost)}
		still, err := sh.claim(ctx, &again, nil)
		if err != nil || again.Err != nil {
			break // what the other wants got stands
		}
		spread(c.Reply.Grants, lost, again.Reply.Grants)
		spread(c.Reply.Used, lost, again.Reply.Used)
		again.Reply.Grants, again.Reply.Used = c.Reply.Grants, c.Reply.Used
		again.Reply.Again = earlier(c.Reply.Again, again.Reply.Again) // of the other wants, too
		c.Reply, lost = again.Reply, pick(lost, still)
	}
	c.Reply.More = c.Reply.More || len(lost) > 0
	return c.Reply, nil
}

// earlier is the first of two times, of which those that are zero do not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// claim makes a claim, and returns the wants that have lost all that they got: see [machine.Unlocked].
func (s *shard) claim(ctx context.Context, c *machine.Claim, decided func(*dispatch.ClaimReply)) (lost []int, err error) {
	last, err := s.perform(c)
	if err != nil {
		return nil, err
	}
	if decided != nil && c.Err == nil && s.clock.backend != nil { // else it is kept already
		decided(&c.Reply)
	}
	if err := s.clock.durable(ctx, last); err != nil {
		return nil, err
	}
	s.recheck(func(m *machine.Shard) { lost = c.Recheck(m) })
	return lost, nil
}

// GiveBack implements [dispatch.Claims].
func (s *Store) GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error) {
	c := machine.GiveBack{Collector: collector, ClientToken: clientToken, Call: call}
	err := s.doIn(ctx, shard, &c)
	return c.Given, err
}

// Renew implements [dispatch.Leases].
func (s *Store) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	results := make([]dispatch.RenewResult, len(renewals))
	for i := range results {
		results[i].Lost = dispatch.LostUnknownTask // of an id without a slot
	}
	err := byPage(ctx, s, len(renewals), bounds.MaxRenewals, func(i int) dispatch.TaskID { return renewals[i].ID },
		func(page []int) *machine.Renew { return &machine.Renew{Renewals: pick(renewals, page)} },
		func(sh *shard, c *machine.Renew, page []int) {
			sh.recheck(c.Recheck)
			spread(results, page, c.Answers)
		})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Apply implements [dispatch.Leases].
func (s *Store) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	order := unreadFirst(transitions)
	ordered := pick(transitions, order)
	results := slices.Repeat([]dispatch.ApplyResult{{Code: dispatch.ApplyNotFound}}, len(transitions))
	err := byPage(ctx, s, len(ordered), bounds.MaxTransitions, func(n int) dispatch.TaskID { return ordered[n].ID },
		func(page []int) *machine.Apply { return &machine.Apply{Transitions: pick(ordered, page)} },
		func(_ *shard, c *machine.Apply, page []int) {
			for n, i := range page {
				results[order[i]] = c.Answers[n]
			}
		})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// unreadFirst is the order in which transitions are applied.
func unreadFirst(transitions []dispatch.Transition) []int {
	order := make([]int, 0, len(transitions))
	for _, unread := range [...]bool{true, false} {
		for i := range transitions {
			if transitions[i].Unread == unread {
				order = append(order, i)
			}
		}
	}
	return order
}

// RequestCancel implements [dispatch.Leases].
func (s *Store) RequestCancel(ctx context.Context, ids []dispatch.TaskID, reason dispatch.CancelReason, line *dispatch.Attempt) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	var hints []dispatch.Hint
	err := byPage(ctx, s, len(ids), bounds.MaxTransitions, func(i int) dispatch.TaskID { return ids[i] },
		func(page []int) *machine.Cancel {
			return &machine.Cancel{IDs: pick(ids, page), Reason: reason, Line: line}
		},
		func(_ *shard, c *machine.Cancel, _ []int) { hints = append(hints, c.Hints...) })
	if err != nil {
		return err
	}
	for _, hint := range hints {
		s.publish(hint)
	}
	return nil
}

// Expired implements [dispatch.Leases].
func (s *Store) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	c := machine.Expired{Limit: min(limit, bounds.MaxExpired)}
	err := s.doIn(ctx, shard, &c)
	return c.Result, err
}

// ListTasks implements [dispatch.Tasks]: by shard, lane and order of arrival in the lane.
func (s *Store) ListTasks(ctx context.Context, filter dispatch.TaskFilter, cursor string, limit int) (page dispatch.TaskPage, err error) {
	if filter.SourceUID == "" && filter.Queue == "" {
		return page, fmt.Errorf("%w: a list of tasks needs a source or a queue", dispatch.ErrInvalid)
	}
	var bytes machine.PageBytes
	page.Next, err = s.eachFrom(ctx, cursor, func(sh *machine.Shard, at *machine.ListPlace) (more bool) {
		return sh.ListTasks(&page, &bytes, filter, at, limit)
	})
	return page, err
}

// ListLeases implements [dispatch.Leases]: by shard and place in the lease index.
func (s *Store) ListLeases(ctx context.Context, cursor string, limit int) (leased []*dispatch.Task, next string, err error) {
	var bytes machine.PageBytes
	next, err = s.eachFrom(ctx, cursor, func(sh *machine.Shard, at *machine.ListPlace) (more bool) {
		leased, more = sh.ListLeases(leased, &bytes, at, limit)
		return more
	})
	return leased, next, err
}

// DueLanes implements [dispatch.Tasks].
func (s *Store) DueLanes(ctx context.Context, filter dispatch.TaskFilter, limit int) (found dispatch.DueLanes, err error) {
	if (filter.SourceUID == "") == (filter.Queue == "") {
		return found, fmt.Errorf("%w: lanes are those of a source or of a queue", dispatch.ErrInvalid)
	}
	next := int64(ms.Infinite)
	err = s.readAll(ctx, func(sh *machine.Shard) { next = sh.DueLanes(&found, filter, limit, next) })
	return found, err
}

// listCursor is a place in a list of a shard.
type listCursor struct {
	shard int64
	machine.ListPlace
}

func (c *listCursor) String() string {
	return fmt.Sprintf("%d/%d/%d/%s", c.shard, c.Lane, c.After, c.ID)
}

// parsePage reads the numbers at the start of a page token, each followed by a slash.
func parsePage(token string, numbers ...*int64) (rest string, err error) {
	rest = token
	for _, n := range numbers {
		digits, behind, ok := strings.Cut(rest, "/")
		if *n, err = strconv.ParseInt(digits, 10, 64); err != nil || !ok {
			return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, token)
		}
		rest = behind
	}
	return rest, nil
}

// eachFrom calls list for the shards from the cursor on until the page is full. list moves the cursor to the last task
// that it took; next is where the list continues.
func (s *Store) eachFrom(ctx context.Context, cursor string, list func(sh *machine.Shard, at *machine.ListPlace) (more bool)) (next string, err error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	var at listCursor
	if cursor != "" {
		if at.ID, err = parsePage(cursor, &at.shard, &at.Lane, &at.After); err != nil {
			return "", err
		}
	}
	for ; at.shard >= 0 && at.shard < int64(len(s.shards)); at = (listCursor{shard: at.shard + 1}) {
		more := false
		if err := s.shards[at.shard].read(ctx, func(sh *machine.Shard) { more = list(sh, &at.ListPlace) }); err != nil {
			return "", err
		}
		if more {
			return at.String(), nil
		}
	}
	return "", nil
}
