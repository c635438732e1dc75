package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// emptyStore has nothing in any of its pools.
type emptyStore struct {
	dispatch.Store
	claims int
}

func (*emptyStore) Shards() int { return 1 }

func (s *emptyStore) Claim(_ context.Context, _ int, _ string, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	s.claims++
	return dispatch.ClaimReply{Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)), Now: time.Now(), Wait: dispatch.WaitNoTasks}, nil
}

// Of the pools that nobody waits for some are kept, for a while: those who fetch can
// name any.
func TestPump_idlePools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &emptyStore{}
		p := newPump(Config{Store: store, Logger: zap.NewNop(), Observer: noObserver{}, Rand: func() float64 { return 0 }, Fallback: time.Minute, MaxWaiters: 1000})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.run(ctx) }()
		synctest.Wait()
		wait := func(n int, d time.Duration) {
			w := &waiter{want: dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: "t"}, Max: 1}, pools: []string{fmt.Sprintf("pool-%d", n)}}
			p.wait(ctx, w, d, shortestLanding, &outcome{})
		}
		for n := range 3 * idlePools {
			wait(n, time.Millisecond)
			if kept := len(p.pools); kept > idlePools {
				t.Fatalf("%d pools are kept", kept)
			}
		}
		claims := store.claims
		wait(0, time.Millisecond)
		if store.claims != claims {
			t.Error("what was known of a pool a moment ago is asked for again")
		}
		time.Sleep(idlePool)
		synctest.Wait()
		if kept := len(p.pools); kept != 0 {
			t.Errorf("%d pools are kept that nobody waited for since %v", kept, idlePool)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Fetches whose wait is over are not served by a claim that gave them nothing: the next one
// is not for twice as many, and it counts as one that has moved nothing.
func TestPump_nothingForThoseWhoGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPump(Config{Store: &emptyStore{}, Logger: zap.NewNop(), Observer: noObserver{}, Rand: func() float64 { return 0 }, Fallback: time.Minute, MaxWaiters: 1000})
		o := p.newPool("pool").outlets[0]
		var waiters []*waiter
		for n := range 8 {
			w := &waiter{want: dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: fmt.Sprint(n)}, Max: 1}, over: true, answer: make(chan outcome, 1)}
			o.pool.add(w, time.Now())
			w.setBusy(true)
			waiters = append(waiters, w)
		}
		o.flights, o.pool.flights, o.limit = 1, 1, len(waiters)
		reply := dispatch.ClaimReply{Grants: make([][]dispatch.Grant, len(waiters)), Used: make([]bool, len(waiters)), Now: time.Now(), More: true}
		p.landed(o, asking{plain: true, began: time.Now()}, waiters, reply, 0)
		if o.limit != 1 || o.bounded != 1 {
			t.Errorf("the next claim is for %d fetches, %d in a row have moved nothing; want 1 and 1", o.limit, o.bounded)
		}
		for _, w := range waiters {
			if out := <-w.answer; !out.late {
				t.Errorf("a fetch whose wait was over is answered %+v", out)
			}
		}
		o.pool.timer.Stop()
	})
}

// A call whose place another one of the same fetch took has nothing to give up any more, even
// if it is about to: its caller went, or its wait was over, in the same instant.
func TestPump_givesUpItsOwnPlaceOnly(t *testing.T) {
	t.Parallel()
	p := newPump(Config{Store: &emptyStore{}, Logger: zap.NewNop(), Observer: noObserver{}, Rand: func() float64 { return 0 }, Fallback: time.Minute, MaxWaiters: 1000})
	call := func() *waiter {
		return &waiter{want: dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: "t"}, Max: 1}, pools: []string{"pool"}, answer: make(chan outcome, 1)}
	}
	older, newer := call(), call()
	gone := older.answer
	parked := p.park(older)
	if p.park(newer) != parked {
		t.Fatal("the newer call has a place of its own")
	}
	p.giveUp(parked, gone, context.Canceled)
	if len(gone) != 1 || len(newer.answer) != 0 || p.parked() != 1 {
		t.Errorf("the older call has %d answers, the newer %d, and %d wait; want 1, 0 and 1", len(gone), len(newer.answer), p.parked())
	}
	p.giveUp(parked, newer.answer, nil)
	if len(newer.answer) != 1 || p.parked() != 0 {
		t.Errorf("the newer call has %d answers, and %d wait; want 1 and 0", len(newer.answer), p.parked())
	}
	p.pools["pool"].timer.Stop()
}
