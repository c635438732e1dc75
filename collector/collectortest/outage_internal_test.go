package collectortest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/dispatch"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store"
)

// awayStore is a store that may be away.
type awayStore struct {
	*store.Store
	away atomic.Bool
}

func (s *awayStore) err() error {
	if s.away.Load() {
		return dispatch.ErrStoreUnavailable
	}
	return nil
}

func (s *awayStore) BeginPoll(ctx context.Context, poll dispatch.Poll) (dispatch.PollState, error) {
	if err := s.err(); err != nil {
		return dispatch.PollState{}, err
	}
	return s.Store.BeginPoll(ctx, poll)
}

func (s *awayStore) Claim(
	ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	if err := s.err(); err != nil {
		return dispatch.ClaimReply{}, err
	}
	return s.Store.Claim(ctx, shard, pool, holds, wants, decided)
}

func (s *awayStore) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Store.Renew(ctx, renewals)
}

func (s *awayStore) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Store.Apply(ctx, transitions)
}

func (s *awayStore) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	if err := s.err(); err != nil {
		return dispatch.Sweep{}, err
	}
	return s.Store.Expired(ctx, shard, limit)
}

func (s *awayStore) Beat(ctx context.Context, beat dispatch.CollectorInfo) (dispatch.PollState, error) {
	if err := s.err(); err != nil {
		return dispatch.PollState{}, err
	}
	return s.Store.Beat(ctx, beat)
}

// begun counts how often work on a page was begun.
type begun struct {
	mu    sync.Mutex // guards count
	count map[string]int
}

func (b *begun) begin(url string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count == nil {
		b.count = make(map[string]int)
	}
	b.count[url]++
	return b.count[url]
}

func (b *begun) times(url string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count[url]
}

// TestOutage_ShortLeases holds that tasks whose leases ended while the store was away are free again soon after it is
// back, with no expiration counted, and that an outcome that was ready meanwhile counts.
func TestOutage_ShortLeases(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		slots int
		away  time.Duration
	}{
		"one slot": {1, 7 * time.Second}, "three slots": {3, 7 * time.Second}, "long": {3, 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { outage(t, test.slots, test.away) })
		})
	}
}

func outage(t *testing.T, slots int, away time.Duration) {
	memory, err := store.New(store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := &awayStore{Store: memory}
	d := startOn(t, store)
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop", LeaseDuration: durationpb.New(5 * time.Second)})
	urls := []string{"https://a.example/ready", "https://b.example/", "https://c.example/"}
	if slots == 1 {
		urls = urls[1:2]
	}
	for _, url := range urls {
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: url})
	}
	var seen begun
	d.Machine().Start(d.Machine().Config("paris-1", slots), collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
		switch {
		case seen.begin(task.URL) > 1:
			return collector.Succeeded{HTTPStatus: 200}, nil
		case strings.HasSuffix(task.URL, "ready"):
			time.Sleep(13 * time.Second) // 3 s into the outage
			return collector.Succeeded{HTTPStatus: 200}, nil
		}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), collector.ErrLeaseLost) {
			t.Errorf("%s was ended by %v", task.URL, context.Cause(ctx))
		}
		return collector.Succeeded{}, ctx.Err()
	}))
	time.Sleep(10 * time.Second)
	store.away.Store(true)
	time.Sleep(away)
	store.away.Store(false)
	time.Sleep(2 * time.Second)
	for _, url := range urls {
		if task := d.Task("shop", url); task.GetState() == wagglev1.TaskState_TASK_STATE_LEASED && !strings.HasSuffix(url, "ready") {
			t.Errorf("%s is held 2s after the outage", url)
		}
	}
	time.Sleep(10 * time.Second)
	for _, url := range urls {
		if task := d.Task("shop", url); task.GetState() != wagglev1.TaskState_TASK_STATE_DONE || task.GetExpirations() != 0 || task.GetFailures() != 0 {
			t.Errorf("%s: %v", url, task)
		}
		want := 2
		if strings.HasSuffix(url, "ready") {
			want = 1
		}
		if n := seen.times(url); n != want {
			t.Errorf("%s was worked on %d times, want %d", url, n, want)
		}
	}
}
