package engine

import (
	"strconv"
	"testing"
	"testing/synctest"
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

// Hosts that do not answer are no fault of a collector that got an answer of another one in the last hour.
func TestOutcomes_silentHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutcomes()
		token := dispatch.LeaseToken{Collector: "c"}
		o.note(&dispatch.Report{Token: token, Succeeded: &dispatch.Succeeded{}}, nil)
		for minute := range 70 {
			for host := range 4 {
				failed := &dispatch.Failed{Reason: 100}
				o.note(&dispatch.Report{Token: token, Failed: failed}, &dispatch.Task{Queue: strconv.Itoa(host)})
			}
			if unable, want := o.of("c").Unable(), minute >= 60; unable != want {
				t.Fatalf("after %d minutes: unable %t, want %t", minute, unable, want)
			}
			time.Sleep(time.Minute)
		}
	})
}
