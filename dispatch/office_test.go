package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/store/memstore"
)

// office is a dispatcher over a memory store, in virtual time.
type office struct {
	*engine.Dispatcher
	*operate.Operator
	t     *testing.T
	store dispatch.Store
	calls int
}

// inOffice runs f with a running dispatcher, in a synctest bubble.
func inOffice(t *testing.T, f func(t *testing.T, o *office)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{Shards: 2})
		if err != nil {
			t.Fatal(err)
		}
		d, err := engine.New(engine.Config{Store: store, ID: "d1", Rand: func() float64 { return 0.5 }})
		if err != nil {
			t.Fatal(err)
		}
		operator := operate.New(d)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx, operator.Chores()...) }()
		synctest.Wait()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
			if err := store.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}()
		f(t, &office{Dispatcher: d, Operator: operator, t: t, store: store})
	})
}

func (o *office) create(id string, change func(*dispatch.SourceSpec)) *operate.SourceView {
	o.t.Helper()
	spec := dispatch.SourceSpec{Priority: dispatch.DefaultPriority}
	if change != nil {
		change(&spec)
	}
	view, err := o.CreateSource(o.t.Context(), id, spec)
	if err != nil {
		o.t.Fatalf("create source %q: %v", id, err)
	}
	return view
}

func (o *office) submit(tasks ...engine.NewTask) []engine.NewTaskResult {
	o.t.Helper()
	for i := range tasks {
		tasks[i].Priority = dispatch.DefaultPriority
	}
	results, err := o.SubmitTasks(o.t.Context(), tasks)
	if err != nil {
		o.t.Fatalf("submit: %v", err)
	}
	return results
}

// fetch takes up to n tasks that can be had now.
func (o *office) fetch(n int) []dispatch.Grant {
	o.t.Helper()
	o.calls++
	result, err := o.Fetch(o.t.Context(), engine.FetchRequest{
		Collector: "c1", Session: "s1", ClientToken: fmt.Sprintf("t%d", o.calls), MaxTasks: n, MaxBytes: engine.MaxFetchBytes,
	})
	if err != nil {
		o.t.Fatalf("fetch: %v", err)
	}
	return result.Tasks
}

func (o *office) fetchOne() dispatch.Grant {
	o.t.Helper()
	grants := o.fetch(1)
	if len(grants) != 1 {
		o.t.Fatalf("fetched %d tasks, want 1", len(grants))
	}
	return grants[0]
}

func (o *office) report(reports ...dispatch.Report) []engine.ReportResult {
	o.t.Helper()
	results, err := o.Report(o.t.Context(), "c1", reports)
	if err != nil {
		o.t.Fatalf("report: %v", err)
	}
	return results
}

func (o *office) succeed(g dispatch.Grant, discovered ...dispatch.DiscoveredItem) engine.ReportResult {
	o.t.Helper()
	for i := range discovered {
		discovered[i].Priority = dispatch.DefaultPriority
	}
	return o.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{Discovered: discovered}})[0]
}

func (o *office) task(id dispatch.TaskID) *dispatch.Task {
	o.t.Helper()
	task, err := o.Task(o.t.Context(), id)
	if err != nil {
		o.t.Fatalf("task %s: %v", id, err)
	}
	return task
}

// unhurried lets every queue be fetched from without delay.
func (o *office) unhurried() {
	o.t.Helper()
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.DefaultQueueSettings()}
	rule.Settings.MinDelay, rule.Settings.MaxInFlight = 0, 1000
	if _, _, err := o.SetQueueRule(o.t.Context(), rule, operate.AnyRules); err != nil {
		o.t.Fatal(err)
	}
}

func seeds(urls ...string) []dispatch.Seed {
	var out []dispatch.Seed
	for _, u := range urls {
		out = append(out, dispatch.Seed{URL: u, Priority: dispatch.DefaultPriority})
	}
	return out
}
