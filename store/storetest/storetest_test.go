package storetest_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newInstance makes a memory store, and puts mutate around it.
func newInstance(t *testing.T, mutate func(dispatch.Store) dispatch.Store) storetest.Instance {
	t.Helper()
	c := storetest.NewStillClock(time.Time{})
	s, err := store.New(store.Config{Shards: 2, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	hand := s.Inspect()
	return storetest.Instance{
		Store: mutate(s), Clock: c,
		DeleteLock: hand.DeleteLock, SetLock: hand.SetLock, LockValue: hand.LockValue,
	}
}

// mutant is a store with a guard taken out. Fields that are set replace a
// method; each gets the sound store.
type mutant struct {
	dispatch.Store
	submit  func(s dispatch.Store, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error)
	claim   func(s dispatch.Store, shard int, pool string, holds int64, wants []dispatch.Want) (dispatch.ClaimReply, error)
	renew   func(s dispatch.Store, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error)
	apply   func(s dispatch.Store, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error)
	expired func(s dispatch.Store, shard, limit int) (dispatch.Sweep, error)
	end     func(s dispatch.Store, shard int, collector, keep string, limit int) ([]*dispatch.Task, error)
	rule    func(r *dispatch.QueueRule)
	push    func(s dispatch.Store, shard int, g dispatch.SourceGate, page string) (string, error)
	holds   func(s dispatch.Store, change dispatch.HoldChange, ifVersion int64) (int64, error)
	back    func(s dispatch.Store, shard int, collector, token, call string) (int, error)
}

func (m *mutant) Submit(ctx context.Context, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	if m.submit != nil {
		return m.submit(m.Store, rules, gates, items)
	}
	return m.Store.Submit(ctx, rules, gates, items)
}

func (m *mutant) Claim(
	ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	if m.claim != nil {
		return m.claim(m.Store, shard, pool, holds, wants)
	}
	return m.Store.Claim(ctx, shard, pool, holds, wants, decided)
}

func (m *mutant) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	if m.renew != nil {
		return m.renew(m.Store, renewals)
	}
	return m.Store.Renew(ctx, renewals)
}

func (m *mutant) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	if m.apply != nil {
		return m.apply(m.Store, transitions)
	}
	return m.Store.Apply(ctx, transitions)
}

func (m *mutant) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	if m.expired != nil {
		return m.expired(m.Store, shard, limit)
	}
	return m.Store.Expired(ctx, shard, limit)
}

func (m *mutant) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	if m.end != nil {
		return m.end(m.Store, shard, collector, keep, limit)
	}
	return m.Store.EndSession(ctx, shard, collector, keep, limit)
}

func (m *mutant) PutRule(ctx context.Context, pattern string, r *dispatch.QueueRule, ifVersion int64) (int64, error) {
	if m.rule != nil && r != nil {
		r = new(*r)
		m.rule(r)
	}
	return m.Store.PutRule(ctx, pattern, r, ifVersion)
}

func (m *mutant) PushSource(ctx context.Context, shard int, g dispatch.SourceGate, page string) (string, error) {
	if m.push != nil {
		return m.push(m.Store, shard, g, page)
	}
	return m.Store.PushSource(ctx, shard, g, page)
}

func (m *mutant) PutHolds(ctx context.Context, change dispatch.HoldChange, ifVersion int64) (int64, error) {
	if m.holds != nil {
		return m.holds(m.Store, change, ifVersion)
	}
	return m.Store.PutHolds(ctx, change, ifVersion)
}

func (m *mutant) GiveBack(ctx context.Context, shard int, collector, token, call string) (int, error) {
	if m.back != nil {
		return m.back(m.Store, shard, collector, token, call)
	}
	return m.Store.GiveBack(ctx, shard, collector, token, call)
}
