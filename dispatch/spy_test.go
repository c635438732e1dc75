package dispatch_test

import (
	"context"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// spy stands before a store: it counts calls, loses hints, delays and spoils
// claims.
type spy struct {
	dispatch.Store

	mu        sync.Mutex // guards what follows
	counts    map[string]int
	wants     int                     // of all claims
	widest    int                     // claim, by its wants
	deaf      bool                    // hints are lost
	dumb      bool                    // Publish does nothing
	delay     time.Duration           // of claims, before they take effect
	fail      func(call string) error // instead of the call
	spoil     func(call string) error // after it took effect
	everLeads bool                    // whatever the store says of it
	failPart  func(shard int) error   // of Renew and EndSession
	failID    func(id string) error   // of MarkApplied, and of SourcesByID for each
	failPool  func(pool string) error // of Claim
	failWants func([]dispatch.Want) error
}

func newSpy(store dispatch.Store) *spy { return &spy{Store: store, counts: make(map[string]int)} }

// set changes the spy while others use it.
func (s *spy) set(change func(*spy)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *spy) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[call]
}

func (s *spy) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.counts {
		n += c
	}
	return n
}

func (s *spy) before(call string) error {
	s.mu.Lock()
	s.counts[call]++
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		return fail(call)
	}
	return nil
}

func (s *spy) after(call string, err error) error {
	s.mu.Lock()
	spoil := s.spoil
	s.mu.Unlock()
	if err == nil && spoil != nil {
		return spoil(call)
	}
	return err
}

func (s *spy) Claim(ctx context.Context, shard int, pool string, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	s.mu.Lock()
	s.wants, s.widest = s.wants+len(wants), max(s.widest, len(wants))
	delay, part, refuse := s.delay, s.failPool, s.failWants
	s.mu.Unlock()
	if err := s.before("Claim"); err != nil {
		return dispatch.ClaimReply{}, err
	}
	if part != nil {
		if err := part(pool); err != nil {
			return dispatch.ClaimReply{}, err
		}
	}
	if refuse != nil {
		if err := refuse(wants); err != nil {
			return dispatch.ClaimReply{}, err
		}
	}
	time.Sleep(delay)
	reply, err := s.Store.Claim(ctx, shard, pool, wants)
	return reply, s.after("Claim", err)
}

func (s *spy) MarkApplied(ctx context.Context, id, uid string, version int64, seeds []dispatch.TaskID) (bool, error) {
	s.mu.Lock()
	one := s.failID
	s.mu.Unlock()
	if one != nil {
		if err := one(id); err != nil {
			return false, err
		}
	}
	return s.Store.MarkApplied(ctx, id, uid, version, seeds)
}

func (s *spy) SourcesByID(ctx context.Context, ids []string) ([]*dispatch.Source, error) {
	if err := s.before("SourcesByID"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	one := s.failID
	s.mu.Unlock()
	for _, id := range ids {
		if one == nil {
			break
		}
		if err := one(id); err != nil {
			return nil, err
		}
	}
	sources, err := s.Store.SourcesByID(ctx, ids)
	return sources, s.after("SourcesByID", err)
}

func (s *spy) GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error) {
	if err := s.before("GiveBack"); err != nil {
		return 0, err
	}
	return s.Store.GiveBack(ctx, shard, collector, clientToken, call)
}

func (s *spy) Holds(ctx context.Context) ([]dispatch.Hold, error) {
	if err := s.before("Holds"); err != nil {
		return nil, err
	}
	return s.Store.Holds(ctx)
}

func (s *spy) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	call := "ListCollectors"
	if filter.IDs != nil {
		call += " of IDs"
	}
	if err := s.before(call); err != nil {
		return nil, err
	}
	return s.Store.ListCollectors(ctx, filter, after, limit)
}

func (s *spy) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	if err := s.before("BeginPolls"); err != nil {
		return nil, err
	}
	return s.Store.BeginPolls(ctx, polls)
}

func (s *spy) Beats(ctx context.Context, beats []dispatch.CollectorInfo) ([]dispatch.PollState, error) {
	if err := s.before("Beats"); err != nil {
		return nil, err
	}
	return s.Store.Beats(ctx, beats)
}

func (s *spy) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	if err := s.before("Renew"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	part := s.failPart
	s.mu.Unlock()
	if part != nil && len(renewals) > 0 {
		if err := part(dispatch.ShardOf(renewals[0].ID.Slot(), s.Shards())); err != nil {
			return nil, err
		}
	}
	return s.Store.Renew(ctx, renewals)
}

func (s *spy) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	if err := s.before("Apply"); err != nil {
		return nil, err
	}
	results, err := s.Store.Apply(ctx, transitions)
	return results, s.after("Apply", err)
}

func (s *spy) Submit(ctx context.Context, rulesVersion int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	if err := s.before("Submit"); err != nil {
		return nil, err
	}
	return s.Store.Submit(ctx, rulesVersion, gates, items)
}

func (s *spy) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) ([]*dispatch.Task, time.Time, error) {
	if err := s.before("Tasks"); err != nil {
		return nil, time.Time{}, err
	}
	return s.Store.Tasks(ctx, ids, details)
}

func (s *spy) Now(ctx context.Context) (time.Time, error) {
	if err := s.before("Now"); err != nil {
		return time.Time{}, err
	}
	return s.Store.Now(ctx)
}

func (s *spy) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	if err := s.before("Expired"); err != nil {
		return dispatch.Sweep{}, err
	}
	sweep, err := s.Store.Expired(ctx, shard, limit)
	return sweep, s.after("Expired", err)
}

func (s *spy) Campaign(ctx context.Context, duty, holder string, ttl time.Duration) (string, error) {
	if err := s.before("Campaign"); err != nil {
		return "", err
	}
	s.mu.Lock()
	ever := s.everLeads
	s.mu.Unlock()
	leader, err := s.Store.Campaign(ctx, duty, holder, ttl)
	if err := s.after("Campaign", err); err != nil {
		return "", err
	}
	if ever && ttl > 0 {
		return holder, nil
	}
	return leader, nil
}

func (s *spy) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	if err := s.before("EndSession"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	part := s.failPart
	s.mu.Unlock()
	if part != nil {
		if err := part(shard); err != nil {
			return nil, err
		}
	}
	return s.Store.EndSession(ctx, shard, collector, keep, limit)
}

func (s *spy) Publish(ctx context.Context, hint dispatch.Hint) error {
	if err := s.before("Publish"); err != nil {
		return err
	}
	s.mu.Lock()
	dumb := s.dumb
	s.mu.Unlock()
	if dumb {
		return nil
	}
	return s.Store.Publish(ctx, hint)
}

func (s *spy) Subscribe(ctx context.Context, deliver func(dispatch.Hint)) error {
	if err := s.before("Subscribe"); err != nil {
		return err
	}
	return s.Store.Subscribe(ctx, func(h dispatch.Hint) {
		s.mu.Lock()
		deaf := s.deaf
		s.mu.Unlock()
		if !deaf {
			deliver(h)
		}
	})
}
