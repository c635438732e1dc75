package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// A schedule that nothing follows is warned; a source for tasks that are submitted
// has none.
func TestDispatcher_Warnings_noSeeds(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		hourly := dispatch.Schedule{Every: time.Hour}
		passes := dispatch.Schedule{Revisit: true}
		warnings, err := o.Warnings(t.Context(), []*dispatch.SourceSpec{
			{Schedule: hourly}, {}, {Schedule: hourly, Seeds: seeds("http://a.example/")}, {Schedule: passes}, {Schedule: passes, Seeds: seeds("http://a.example/")},
		})
		if err != nil || len(warnings[0]) != 1 || !strings.Contains(warnings[0][0], "a schedule and no seeds") || warnings[1] != nil || warnings[2] != nil ||
			len(warnings[3]) != 1 || !strings.Contains(warnings[3][0], "revisit and no seeds") || warnings[4] != nil {
			t.Errorf("%q, %v", warnings, err)
		}
	})
}

// Any number of pools is one walk over the collectors.
func TestDispatcher_Warnings_pools(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		for n := range 30 {
			info := dispatch.CollectorInfo{ID: fmt.Sprintf("c%d", n), Session: "s", Pools: []string{fmt.Sprintf("p%d", n)}}
			if _, err := o.Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
		}
		counted := newSpy(o.store)
		d, err := engine.New(engine.Config{Store: counted, ID: "d2"})
		if err != nil {
			t.Fatal(err)
		}
		specs := []*dispatch.SourceSpec{{}, {Pool: dispatch.DefaultPool}}
		for n := range 60 {
			specs = append(specs, &dispatch.SourceSpec{Pool: fmt.Sprintf("p%d", n)})
		}
		warnings, err := operate.New(d).Warnings(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		for i, told := range warnings {
			if warned := i-2 >= 30; (len(told) == 1) != warned {
				t.Errorf("%q: %q", specs[i].Pool, told)
			}
		}
		if seen, read := counted.count("ListCollectors"), counted.count("ListCollectors of IDs"); seen != 1 || read != 2 {
			t.Errorf("collectors were listed %d times and read %d times, want once, and a short page and the rest", seen, read)
		}
	})
}
