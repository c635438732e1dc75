package engine

import (
	"strconv"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Reports of collectors beyond those that are counted are as cheap as the others. The difference was 2000 times.
func TestOutcomes_tooManyCollectors(t *testing.T) {
	o := newOutcomes()
	note := func(prefix string) time.Duration {
		begun := time.Now()
		for i := range maxTallies {
			o.note(&dispatch.Report{Token: dispatch.LeaseToken{Collector: prefix + strconv.Itoa(i)}}, nil)
		}
		return time.Since(begun)
	}
	if counted, others := note("counted"), note("other"); others > 30*counted {
		t.Errorf("%d reports took %v, and as many of other collectors %v", maxTallies, counted, others)
	}
}
