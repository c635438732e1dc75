package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Collectors that ask for a task each, again and again, are claimed for together, though
// each of them takes another while with its task; one alone does not wait for others.
func TestPump_gathers(t *testing.T) {
	t.Parallel()
	const (
		claim  = time.Millisecond
		each   = 20
		longer = 3 * claim // a collector is at work, at most
	)
	for collectors, most := range map[int]float64{1: 1, 64: 1.0 / 22} {
		t.Run(fmt.Sprintf("%d collectors", collectors), func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				w.source("s", nil)
				w.submit("s", "", collectors*each, 0)
				w.spies[0].set(func(s *spy) { s.delay = claim })
				before, began := w.spies[0].count("Claim"), time.Now()
				var all sync.WaitGroup
				for c := range collectors {
					all.Go(func() {
						r := rand.New(rand.NewPCG(1, uint64(c)))
						for i := range each {
							res := w.mustFetch(ask(fmt.Sprintf("c%d", c), fmt.Sprintf("t%d", i), dispatch.MaxWait))
							if len(res.Tasks) != 1 {
								t.Errorf("fetch %d of collector %d: %+v", i, c, res)
								return
							}
							time.Sleep(time.Duration(r.Int64N(int64(longer))))
						}
					})
				}
				all.Wait()
				fetches := float64(collectors * each)
				if claims := float64(w.spies[0].count("Claim") - before); claims/fetches > most {
					t.Errorf("%.3f claims a fetch, want at most %.3f", claims/fetches, most)
				}
				if took, want := time.Since(began), each*(2*claim+longer); took > want {
					t.Errorf("%d fetches of each collector took %v, want at most %v", each, took, want)
				}
			})
		})
	}
}
