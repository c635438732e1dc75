package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func pageBytesCases() []testCase {
	return []testCase{
		{"ListTasks_Bytes", tasksBytes},
		{"ListTasks_LastError", tasksLastError},
		{"ListLeases_Bytes", leasesBytes},
		{"ListSources_Bytes", sourcesBytes},
	}
}

// bigTasks are n tasks of several queues with payloads of 256 KiB, but for one that is larger
// than a page, and their keys.
func bigTasks(e *env, g dispatch.SourceGate, n int) (items []dispatch.Submission, keys []string) {
	names := e.queues(3)
	for i := range n {
		s := item(g, names[i%len(names)], fmt.Sprintf("%02d", i))
		s.Payload = make([]byte, bounds.MaxPayloadLength)
		if i == n/2 {
			s.Payload = make([]byte, bounds.MaxPageBytes+1)
		}
		items, keys = append(items, s), append(keys, s.Key)
	}
	return items, keys
}

// taskPages reads pages of tasks to their end, and holds that each is bounded in bytes. It
// answers the keys, ascending.
func (e *env) taskPages(list func(cursor string) (tasks []*dispatch.Task, next string, err error)) (keys []string) {
	e.Helper()
	for cursor, pages := "", 0; ; pages++ {
		tasks, next, err := list(cursor)
		e.ok("list", err)
		n := 0
		for _, task := range tasks {
			n += len(task.Payload)
			keys = append(keys, task.Key)
		}
		if n > bounds.MaxPageBytes && len(tasks) > 1 || pages > 100 {
			e.Fatalf("page %d has %d tasks with %d bytes of payloads; the limit is %d", pages, len(tasks), n, bounds.MaxPageBytes)
		}
		if cursor = next; cursor == "" {
			slices.Sort(keys)
			return keys
		}
	}
}

// A page of tasks is bounded in bytes, and those that follow list the others once each.
func tasksBytes(e *env) {
	e.open()
	g := source("a")
	items, want := bigTasks(e, g, 40)
	for part := range slices.Chunk(items, 10) {
		e.create(g, part...)
	}
	for _, limit := range []int{1000, 5} {
		got := e.taskPages(func(cursor string) ([]*dispatch.Task, string, error) {
			page, err := e.Store.ListTasks(e.ctx, dispatch.TaskFilter{SourceUID: g.UID, States: []dispatch.State{dispatch.StateReady}}, cursor, limit)
			return page.Tasks, page.Next, err
		})
		is(e, fmt.Sprintf("tasks by %d", limit), got, want)
	}
	// Nor does a page read more that leaves tasks out by their state.
	page, err := e.Store.ListTasks(e.ctx, dispatch.TaskFilter{SourceUID: g.UID, States: []dispatch.State{dispatch.StateScheduled}}, "", 1000)
	e.ok("list tasks", err)
	is(e, "scheduled", len(page.Tasks), 0)
}

// Lists of tasks and leases tell of each task what last went wrong with it, and none of the
// other details.
func tasksLastError(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "fails"))
	failed := e.takeOne().Task
	tr := retry(&failed, 0)
	tr.LastError = &dispatch.Failure{Result: dispatch.ResultFailed, Reason: 1, Message: "why", Time: e.now()}
	tr.Attempt = &dispatch.Attempt{Collector: "c1", Ended: e.now(), Result: dispatch.ResultFailed, Failure: tr.LastError}
	e.settle(tr)
	e.create(g, item(g, queue, "new"))
	check := func(what string, tasks []*dispatch.Task) {
		e.Helper()
		is(e, what, len(tasks), 2)
		for _, task := range tasks {
			var want *dispatch.Failure
			if task.Key == "fails" {
				want = tr.LastError
			}
			is(e, what+": last error of "+task.Key, task.LastError, want)
			is(e, what+": history of "+task.Key, len(task.History), 0)
		}
	}
	page, err := e.Store.ListTasks(e.ctx, dispatch.TaskFilter{Queue: queue, States: []dispatch.State{dispatch.StateReady}}, "", 10)
	e.ok("list tasks", err)
	check("tasks", page.Tasks)
	e.take(2, func(w *dispatch.Want) { w.Lease = time.Hour })
	leased, _, err := e.Store.ListLeases(e.ctx, "", 10)
	e.ok("list leases", err)
	check("leases", leased)
}

// A page of leases is bounded in bytes, too.
func leasesBytes(e *env) {
	e.open()
	g := source("a")
	items, want := bigTasks(e, g, 40)
	for part := range slices.Chunk(items, 10) {
		e.create(g, part...)
	}
	for range items {
		e.takeOne(func(w *dispatch.Want) { w.Lease = time.Hour })
	}
	for _, limit := range []int{1000, 5} {
		got := e.taskPages(func(cursor string) ([]*dispatch.Task, string, error) { return e.Store.ListLeases(e.ctx, cursor, limit) })
		is(e, fmt.Sprintf("leases by %d", limit), got, want)
	}
}

// A page of sources is bounded in bytes, and says whether others follow.
func sourcesBytes(e *env) {
	var want []string
	for i := range 16 {
		s := registered(fmt.Sprintf("big.%02d", i))
		s.Spec.Payload = make([]byte, bounds.MaxPayloadLength)
		if i == 8 {
			s.Spec.Payload = make([]byte, bounds.MaxPageBytes+1)
		}
		e.ok("create", e.Store.PutSource(e.ctx, s, 0))
		want = append(want, s.ID)
	}
	for _, limit := range []int{1000, 16} {
		var got []string
		for after, pages, more := "", 0, true; more; pages++ {
			var sources []*dispatch.Source
			var err error
			sources, more, err = e.Store.ListSources(e.ctx, dispatch.SourceFilter{Prefix: "big."}, after, limit)
			e.ok("list sources", err)
			n := 0
			for _, s := range sources {
				got = append(got, s.ID)
				n += len(s.Spec.Payload)
			}
			if n > bounds.MaxPageBytes && len(sources) > 1 || len(sources) == 0 || len(sources) > limit {
				e.Fatalf("page %d has %d sources with %d bytes of payloads; the limits are %d and %d", pages, len(sources), n, limit, bounds.MaxPageBytes)
			}
			after = got[len(got)-1]
		}
		is(e, fmt.Sprintf("sources by %d", limit), got, want)
	}
}
