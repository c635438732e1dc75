package operate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/store"
)

// A look of the owner for findings, beside 50,000 sources and a million tasks.
func BenchmarkOperator_HeedFindings(b *testing.B) {
	const sources, tasks = 50_000, 1_000_000
	s, err := store.New(store.Config{})
	if err != nil {
		b.Fatal(err)
	}
	d, err := engine.New(engine.Config{ID: "d", Store: s})
	if err != nil {
		b.Fatal(err)
	}
	o := operate.New(d)
	var specs []operate.NamedSpec
	for i := range sources {
		id := fmt.Sprintf("s.%05d", i)
		spec := dispatchtest.Wanted(id, "https://"+id+".example/")
		spec.Spec.Schedule.Every = time.Hour
		specs = append(specs, spec)
		if len(specs) == 500 {
			if _, err := o.ApplySources(b.Context(), specs, false); err != nil {
				b.Fatal(err)
			}
			specs = specs[:0]
		}
	}
	var batch []engine.NewTask
	for i := range tasks - sources {
		id := fmt.Sprintf("s.%05d", i%sources)
		batch = append(batch, engine.NewTask{SourceID: id, URL: fmt.Sprintf("https://%s.example/%d", id, i), Priority: dispatch.DefaultPriority})
		if len(batch) == 1000 {
			if _, err := d.SubmitTasks(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	if _, err := d.Beat(b.Context(), dispatch.CollectorInfo{ID: "c", Session: "s", Slots: 1}, nil); err != nil {
		b.Fatal(err)
	}
	var seen *operate.Findings
	o.HeedFindings(func(f *operate.Findings) { seen = f })
	chores := o.Chores()
	at := slices.IndexFunc(chores, func(c engine.Chore) bool { return c.Name == "look for findings" })
	for b.Loop() {
		if _, err := chores[at].Do(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if seen.Whole && seen.Sources != sources {
		b.Errorf("%d sources", seen.Sources)
	}
}
