package store

import (
	"context"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/machine"
)

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
