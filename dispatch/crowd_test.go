package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// claimTime is how long a claim takes in these tests.
const claimTime = time.Millisecond

// forageOne, where claims take claimTime, lets collectors ask for a task each, again and again, each of them another
// while with its task, and returns how many claims that took for each fetch.
func (w *world) forageOne(t *testing.T, collectors int) float64 {
	t.Helper()
	const (
		each   = 20
		longer = 3 * claimTime // a collector is at work, at most
	)
	w.source("s", nil)
	w.submit("s", "", collectors*each, 0)
	before, began := w.spies[0].count("Claim"), time.Now()
	var all sync.WaitGroup
	for c := range collectors {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(c)))
			for i := range each {
				res := w.mustFetch(ask(fmt.Sprintf("c%d", c), fmt.Sprintf("t%d", i), bounds.MaxWait))
				if len(res.Tasks) != 1 {
					t.Errorf("fetch %d of collector %d: %+v", i, c, res)
					return
				}
				time.Sleep(time.Duration(r.Int64N(int64(longer))))
			}
		})
	}
	all.Wait()
	if took, want := time.Since(began), each*(2*claimTime+longer); took > want {
		t.Errorf("%d fetches of each collector took %v, want at most %v", each, took, want)
	}
	return float64(w.spies[0].count("Claim")-before) / float64(collectors*each)
}

// Collectors that ask for a task each, again and again, are claimed for together; one
// alone does not wait for others.
func TestPump_gathers(t *testing.T) {
	t.Parallel()
	for collectors, most := range map[int]float64{1: 1, 16: 0.18} {
		t.Run(fmt.Sprintf("%d collectors", collectors), func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				w.spies[0].set(func(s *spy) { s.delay = claimTime })
				if claims := w.forageOne(t, collectors); claims > most {
					t.Errorf("%.3f claims a fetch, want at most %.3f", claims, most)
				}
			})
		})
	}
}

// crowded is a store that sees how many claims it is asked for at once.
type crowded struct {
	dispatch.Store

	mu        sync.Mutex // guards what follows
	now, most int
}

func (s *crowded) Claim(ctx context.Context, shard int, pool string, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	s.count(1)
	defer s.count(-1)
	time.Sleep(claimTime)
	return s.Store.Claim(ctx, shard, pool, wants)
}

func (s *crowded) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.most = max(s.most, s.now)
}

// A claim goes beside one under way where it is for many, and no third beside the two.
func TestPump_beside(t *testing.T) {
	t.Parallel()
	for collectors, want := range map[int]int{16: 1, 64: 2} {
		t.Run(fmt.Sprintf("%d collectors", collectors), func(t *testing.T) {
			t.Parallel()
			store := &crowded{}
			inWorld(t, setup{wrap: func(s dispatch.Store) dispatch.Store {
				store.Store = s
				return store
			}}, func(t *testing.T, w *world) {
				w.forageOne(t, collectors)
				if store.most != want {
					t.Errorf("%d claims at once, want %d", store.most, want)
				}
			})
		})
	}
}
