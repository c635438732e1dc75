package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/pump"
)

// Standing is a fetch that waits, without a goroutine, until it is granted something or ends for another reason.
type Standing struct {
	d        *Dispatcher
	req      FetchRequest
	received time.Time
	poll     dispatch.Poll
	out      pump.Outcome
	left     atomic.Pointer[error]       // why it was left
	leave    atomic.Pointer[func(error)] // the pump
}

// Prepare begins a fetch as [Dispatcher.Fetch] does, of a session that is known, without reports and sources. Without a Standing and an
// error the fetch cannot stand: Fetch knows why. Its Wait does not count.
func (d *Dispatcher) Prepare(ctx context.Context, req FetchRequest) (*Standing, error) {
	s := &Standing{d: d, req: req, received: time.Now()}
	if err := s.req.normalise(); err != nil {
		return nil, err
	}
	d.activity.note(req.Collector)
	if len(req.Sources)+len(req.Reports) > 0 || d.slowed.remaining(req.Collector) > 0 {
		return nil, nil
	}
	poll := dispatch.Poll{Collector: req.Collector, Session: req.Session, ClientToken: req.ClientToken, Call: d.nextCall()}
	d.pump.EndFill(&poll)
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	state, err := d.store.BeginPoll(limited, poll)
	switch {
	case err != nil:
		return nil, fmt.Errorf("fetch for collector %q: note a poll: %w", req.Collector, err)
	case state.Replaced || state.NewSession:
		return nil, nil
	case len(state.Replay) > 0:
		s.out = pump.Outcome{End: pump.Granted, Grants: d.repeated(ctx, poll, s.req.MaxTasks, state.Replay), Call: poll.Call}
	case state.Used:
		s.out = pump.Outcome{End: pump.TokenUsed}
	}
	s.poll = poll
	return s, nil
}

// Stand waits. answered is called once, maybe before Stand returns; it must not block.
func (s *Standing) Stand(answered func()) {
	if s.out.End != pump.Nothing { // a repeat
		answered()
		return
	}
	r := &pump.Request{
		Want: dispatch.Want{
			Poll: s.poll, Max: s.req.MaxTasks, MaxBytes: s.req.MaxBytes, Lease: s.req.Lease, Queues: s.req.Queues,
		},
		Pools: s.req.Pools, Labels: s.req.Labels,
	}
	leave := s.d.pump.Stand(r, func(out pump.Outcome) {
		s.out = out
		answered()
	})
	s.leave.Store(&leave)
	if left := s.left.Load(); left != nil {
		leave(*left)
	}
}

// Leave ends the wait for a cause. What the fetch is granted is given back.
func (s *Standing) Leave(cause error) {
	s.left.Store(&cause)
	if leave := s.leave.Load(); leave != nil {
		(*leave)(cause)
	}
}

// Answered reports whether Result has the answer. Any other end is that of one wait: what [Dispatcher.Fetch] answers then is the answer.
func (s *Standing) Answered() bool {
	switch s.out.End {
	case pump.Granted, pump.TokenUsed, pump.Superseded:
		return s.out.Err == nil
	default:
		return false
	}
}

// Result is the answer, if it was answered. If it fails, or the fetch was left, what it was granted is given back.
func (s *Standing) Result(ctx context.Context) (*FetchResult, error) {
	if left := s.left.Load(); left != nil {
		over, end := context.WithCancelCause(ctx)
		end(*left)
		ctx = over
	}
	return s.d.deliver(ctx, &s.req, s.received, s.out, nil)
}
