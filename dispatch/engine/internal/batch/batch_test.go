package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	limit   = 100
	took    = 10 * time.Millisecond // a call of the store
	timeout = 5 * time.Second
)

// store answers each number with its double. Odd ones are in the second shard.
type store struct {
	mu       sync.Mutex // guards what follows
	inFlight [2]int
	most     int // at once, to one shard
	calls    [][]int
	ask      func(ctx context.Context, items []int) error // what becomes of a call; nil: it takes a while
}

func shardOf(item int) int { return item % 2 }

func (s *store) call(ctx context.Context, items []int) ([]int, error) {
	shard := shardOf(items[0])
	s.mu.Lock()
	s.calls = append(s.calls, slices.Clone(items))
	s.inFlight[shard]++
	s.most = max(s.most, s.inFlight[shard])
	ask := s.ask
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight[shard]--
	}()
	if ask == nil {
		ask = answer
	}
	if err := ask(ctx, items); err != nil {
		return nil, err
	}
	doubles := make([]int, len(items))
	for i, item := range items {
		doubles[i] = 2 * item
	}
	return doubles, nil
}

// answer takes as long as a call of the store does.
func answer(ctx context.Context, _ []int) error {
	select {
	case <-time.After(took):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func hang(ctx context.Context, _ []int) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *store) set(ask func(context.Context, []int) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask = ask
}

// asked are the calls so far.
func (s *store) asked() [][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// newBatcher makes one over a store of two shards.
func newBatcher(change func(*batch.Config[int, int])) (*store, *batch.Batcher[int, int]) {
	s := &store{}
	cfg := batch.Config[int, int]{Name: "double", Call: s.call, Timeout: timeout, Limit: limit, Shards: 2, ShardOf: shardOf}
	if change != nil {
		change(&cfg)
	}
	return s, batch.New(cfg)
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// double asks for one item, and checks the answer.
func double(ctx context.Context, b *batch.Batcher[int, int], item int) error {
	out, err := b.Do(ctx, []int{item})
	if err == nil && (len(out) != 1 || out[0] != 2*item) {
		return fmt.Errorf("%d is doubled to %v", item, out)
	}
	return err
}

// even are n numbers of the first shard.
func even(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = 2 * i
	}
	return items
}

func TestBatcher_Do_merges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, b := newBatcher(nil)
		var all sync.WaitGroup
		for _, item := range even(limit) {
			all.Go(func() {
				if err := double(t.Context(), b, item); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if calls := s.asked(); len(calls) > 2 || s.most != 1 {
			t.Errorf("%d calls for %d callers at once, %d at a time; want one, and one more for those who came meanwhile", len(calls), limit, s.most)
		}
	})
}

// A call that comes alone is not held back.
func TestBatcher_Do_alone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, b := newBatcher(nil)
		for _, item := range even(3) {
			began := time.Now()
			if err := double(t.Context(), b, item); err != nil || time.Since(began) != took {
				t.Errorf("%v after %v, want the store's %v", err, time.Since(began), took)
			}
		}
	})
}

func TestBatcher_Do_bounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, b := newBatcher(nil)
		var all sync.WaitGroup
		for _, item := range even(20 * limit) {
			all.Go(func() {
				if err := double(t.Context(), b, item); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, items := range s.asked() {
			if len(items) > limit {
				t.Errorf("%d items in one call, want at most %d", len(items), limit)
			}
		}
		if s.most != 1 {
			t.Errorf("%d calls at a time, want 1", s.most)
		}
	})
}

// Items count for their size, and one caller's are not divided.
func TestBatcher_Do_size(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, b := newBatcher(func(cfg *batch.Config[int, int]) {
			cfg.Size = func(item int) int { return item }
		})
		var all sync.WaitGroup
		do := func(items ...int) {
			all.Go(func() {
				if out, err := b.Do(t.Context(), items); err != nil || len(out) != len(items) {
					t.Errorf("%v is doubled to %v, %v", items, out, err)
				}
			})
			synctest.Wait()
		}
		do(2)
		do(40)
		do(60)
		do(2*limit, 4)
		do(2)
		all.Wait()
		want := [][]int{{2}, {40, 60}, {2 * limit, 4}, {2}}
		if got := s.asked(); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("asked for %v, want %v", got, want)
		}
	})
}

// An item that the store refuses fails its own caller only.
func TestBatcher_Do_refused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, b := newBatcher(nil)
		const bad = 14
		refused := errors.New("refused")
		s.set(func(ctx context.Context, items []int) error {
			if slices.Contains(items, bad) {
				return refused
			}
			return answer(ctx, items)
		})
		var all sync.WaitGroup
		for _, item := range even(20) {
			all.Go(func() {
				if err := double(t.Context(), b, item); errors.Is(err, refused) != (item == bad) {
					t.Errorf("%d: %v", item, err)
				}
			})
		}
		all.Wait()
	})
}

// A store that hangs once it has refused a call is waited for once, not for each caller.
func TestBatcher_Do_refusedAndHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, b := newBatcher(nil)
		s.set(func(ctx context.Context, items []int) error {
			if len(items) == 1 {
				return answer(ctx, items)
			}
			s.set(hang)
			return errors.New("refused")
		})
		began := time.Now()
		var all sync.WaitGroup
		for i, item := range even(20) {
			all.Go(func() {
				if err := double(t.Context(), b, item); errors.Is(err, dispatch.ErrStoreUnavailable) != (i > 0) {
					t.Errorf("%d: %v", item, err)
				}
			})
			if i == 0 {
				synctest.Wait() // alone in the first call
			}
		}
		all.Wait()
		if waited := time.Since(began); waited != took+timeout {
			t.Errorf("the last caller was answered after %v, want %v", waited, took+timeout)
		}
	})
}

// A caller who goes takes nobody along, and is not waited for.
func TestBatcher_Do_callerGoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, b := newBatcher(nil)
		gone := errors.New("gone")
		goes, leave := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		for i, item := range even(20) {
			ctx, want := goes, gone
			if i%2 == 1 {
				ctx, want = t.Context(), nil
			}
			all.Go(func() {
				if err := double(ctx, b, item); !errors.Is(err, want) {
					t.Errorf("caller %d: %v, want %v", i, err, want)
				}
			})
			synctest.Wait() // the first call is for one who goes
		}
		leave(gone)
		began := time.Now()
		synctest.Wait()
		all.Wait()
		if time.Since(began) > 2*took {
			t.Errorf("the last caller was answered after %v", time.Since(began))
		}
		items := slices.Concat(s.asked()...)
		for i, item := range even(20) {
			if i%2 == 1 && !slices.Contains(items, item) {
				t.Errorf("the store was not asked for %d", item)
			}
		}
	})
}

// What callers who have gone asked of a store that hangs is not made up for.
func TestBatcher_Do_allGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, b := newBatcher(nil)
		s.set(hang)
		var all sync.WaitGroup
		for _, item := range even(5 * limit) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := double(ctx, b, item); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d: %v", item, err)
				}
			})
		}
		all.Wait()
		s.set(nil)
		before := len(s.asked())
		time.Sleep(time.Minute)
		if calls := s.asked(); len(calls) != before {
			t.Errorf("the store was asked for %v once it answered", calls[before:])
		}
	})
}

// A shard that is away, or hangs, fails what is asked of it, and holds up no other.
func TestBatcher_shards(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(context.Context, []int) error{
		"away":  func(context.Context, []int) error { return dispatch.ErrStoreUnavailable },
		"hangs": hang,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s, b := newBatcher(nil)
				s.set(func(ctx context.Context, items []int) error {
					if slices.ContainsFunc(items, func(item int) bool { return shardOf(item) == 1 }) {
						return trouble(ctx, items)
					}
					return answer(ctx, items)
				})
				began := time.Now()
				var all sync.WaitGroup
				for item := range 2 * limit {
					all.Go(func() {
						err := double(t.Context(), b, item)
						if inSecond := shardOf(item) == 1; errors.Is(err, dispatch.ErrStoreUnavailable) != inSecond || !inSecond && (err != nil || time.Since(began) > 2*took+time.Millisecond) {
							t.Errorf("%d, of the second shard: %v; %v after %v", item, inSecond, err, time.Since(began))
						}
					})
				}
				all.Wait()
				items := []int{0, 1, 2, 3}
				if out, err := b.Do(t.Context(), items); !errors.Is(err, dispatch.ErrStoreUnavailable) {
					t.Errorf("items of both: %v, %v", out, err)
				}
				began = time.Now()
				parts, n := b.Parts(t.Context(), items)
				if n != 2 {
					t.Fatalf("%d parts, want 2", n)
				}
				for range n {
					part := <-parts
					if shard := shardOf(part.Indexes[0]); shard == 0 && (part.Err != nil || !slices.Equal(part.Out, []int{0, 4}) || time.Since(began) != took) {
						t.Errorf("the part of the first shard: %+v after %v", part, time.Since(began))
					} else if shard == 1 && (!errors.Is(part.Err, dispatch.ErrStoreUnavailable) || !slices.Equal(part.Indexes, []int{1, 3})) {
						t.Errorf("the part of the second shard: %+v", part)
					}
				}
			})
		})
	}
}

// Results are in the order of the items, whatever their shards.
func TestBatcher_Do_order(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, b := newBatcher(nil)
		if out, err := b.Do(t.Context(), []int{5, 2, 7, 4, 1}); err != nil || !slices.Equal(out, []int{10, 4, 14, 8, 2}) {
			t.Errorf("%v, %v", out, err)
		}
		if out, err := b.Do(t.Context(), nil); err != nil || len(out) != 0 {
			t.Errorf("of nothing: %v, %v", out, err)
		}
	})
}

// A store that answers less than it was asked fails the call, and names it.
func TestBatcher_Do_tooFewAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, b := newBatcher(func(cfg *batch.Config[int, int]) {
			cfg.Call = func(context.Context, []int) ([]int, error) { return []int{1}, nil }
		})
		if out, err := b.Do(t.Context(), even(2)); err == nil || !strings.Contains(err.Error(), "double") {
			t.Errorf("%v, %v", out, err)
		}
	})
}

// Each caller asks a store in its own process for itself, for all shards at once.
func TestBatcher_direct(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, b := newBatcher(func(cfg *batch.Config[int, int]) { cfg.Direct = true })
		began := time.Now()
		var all sync.WaitGroup
		for item := range 50 {
			all.Go(func() {
				items := []int{item, item + 1}
				if out, err := b.Do(t.Context(), items); err != nil || !slices.Equal(out, []int{2 * item, 2*item + 2}) {
					t.Errorf("%v: %v, %v", items, out, err)
				}
			})
		}
		all.Wait()
		if calls := s.asked(); len(calls) != 50 || time.Since(began) != took {
			t.Errorf("%d calls in %v; want one for each of 50 callers, all at once", len(calls), time.Since(began))
		}
		parts, n := b.Parts(t.Context(), []int{3, 4})
		if part := <-parts; n != 1 || part.Err != nil || !slices.Equal(part.Indexes, []int{0, 1}) || !slices.Equal(part.Out, []int{6, 8}) {
			t.Errorf("%d parts, %+v; want one", n, part)
		}
	})
}
