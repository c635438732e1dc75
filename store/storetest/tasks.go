package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func taskCases() []testCase {
	return []testCase{
		{"List_ByState", tasksByState},
		{"List_ByQueue", tasksByQueue},
		{"List_Pages", tasksPages},
		{"List_PagesThatChange", tasksPagesChange},
		{"List_Looks", tasksLooks},
		{"DueLanes", dueLanes},
		{"DueLanes_Bounds", dueLanesBounds},
		{"ListLeases_OldestFirst", leasesList},
		{"ListLeases_PagesThatEnd", leasesEnd},
	}
}

// list reads all tasks of a filter, in pages of limit, and answers their keys,
// ascending.
func (e *env) list(filter dispatch.TaskFilter, limit int) []string {
	e.Helper()
	names := []string{}
	for cursor, calls := "", 0; ; calls++ {
		page, err := e.Store.ListTasks(e.ctx, filter, cursor, limit)
		e.ok("list tasks", err)
		if len(page.Tasks) > limit || page.Looked < len(page.Tasks) || page.Looked > bounds.MaxLooks || calls > 10_000 {
			e.Fatalf("call %d listed %d tasks of %d by a limit of %d", calls, len(page.Tasks), page.Looked, limit)
		}
		for _, task := range page.Tasks {
			names = append(names, task.Key)
			if len(filter.States) > 0 && !slices.Contains(filter.States, task.State) {
				e.Fatalf("task %s is %v, listed by %v", task.Key, task.State, filter.States)
			}
		}
		if cursor = page.Next; cursor == "" {
			slices.Sort(names)
			return names
		}
	}
}

func tasksByState(e *env) {
	e.open()
	g, other := source("a"), source("b")
	names := e.queues(3)
	e.create(other, item(other, queue, "other"))
	e.create(g, item(g, names[0], "dead"))
	e.settle(dead(e.takeTask(func(w *dispatch.Want) { w.SourceUIDs = []string{g.UID} })))
	e.create(g, item(g, names[1], "done"))
	e.settle(done(e.takeTask(func(w *dispatch.Want) { w.SourceUIDs = []string{g.UID} })))
	e.create(g, item(g, names[1], "canceled"))
	e.settle(canceled(e.task(item(g, names[1], "canceled").ID)))
	e.create(g, item(g, names[2], "leased"))
	e.takeOne(func(w *dispatch.Want) { w.SourceUIDs = []string{g.UID} })
	e.create(g, item(g, names[0], "ready"), item(g, names[2], "scheduled", withPriority(5, start.Add(time.Hour))))

	by := func(states ...dispatch.State) []string {
		return e.list(dispatch.TaskFilter{SourceUID: g.UID, States: states}, 10)
	}
	is(e, "ready", by(dispatch.StateReady), []string{"ready"})
	is(e, "scheduled", by(dispatch.StateScheduled), []string{"scheduled"})
	is(e, "leased", by(dispatch.StateLeased), []string{"leased"})
	is(e, "dead", by(dispatch.StateDead), []string{"dead"})
	is(e, "canceled", by(dispatch.StateCanceled), []string{"canceled"})
	all := by(dispatch.StateReady, dispatch.StateScheduled, dispatch.StateLeased, dispatch.StateDead, dispatch.StateCanceled)
	is(e, "all", all, []string{"canceled", "dead", "leased", "ready", "scheduled"})
	is(e, "due by now", e.dueLater(by), []string{"ready", "scheduled"})
}

// dueLater lists what is ready once the scheduled task is due.
func (e *env) dueLater(by func(...dispatch.State) []string) []string {
	e.Helper()
	e.advance(time.Hour)
	return by(dispatch.StateReady)
}

func tasksByQueue(e *env) {
	e.open()
	a, b := source("a"), source("b")
	names := e.queues(2)
	for i, name := range names {
		e.create(a, item(a, name, fmt.Sprint("a", i)))
		e.create(b, item(b, name, fmt.Sprint("b", i)))
	}
	waiting := []dispatch.State{dispatch.StateReady, dispatch.StateScheduled}
	is(e, "queue", e.list(dispatch.TaskFilter{Queue: names[1], States: waiting}, 10), []string{"a1", "b1"})
	both := dispatch.TaskFilter{Queue: names[1], SourceUID: b.UID, States: waiting}
	is(e, "queue and source", e.list(both, 10), []string{"b1"})
	is(e, "unknown queue", e.list(dispatch.TaskFilter{Queue: "unknown.test", States: waiting}, 10), []string{})
	is(e, "unknown source", e.list(dispatch.TaskFilter{SourceUID: "uid-unknown", States: waiting}, 10), []string{})
	grants := e.take(4)
	leased := dispatch.TaskFilter{Queue: names[0], States: []dispatch.State{dispatch.StateLeased}}
	is(e, "leased of the queue", e.list(leased, 10), []string{"a0", "b0"})
	for _, grant := range grants {
		e.settle(dead(&grant.Task))
	}
	dead := dispatch.TaskFilter{Queue: names[0], States: []dispatch.State{dispatch.StateDead}}
	is(e, "dead of the queue", e.list(dead, 10), []string{"a0", "b0"})
}

func tasksPages(e *env) {
	e.open()
	g := source("a")
	var want []string
	for i, name := range []string{"host1.test", "host2.test", "host3.test", "host4.test", "host5.test"} {
		for j := range 20 {
			key := fmt.Sprintf("%d-%02d", i, j)
			want = append(want, key)
			e.create(g, item(g, name, key, withPriority(j%10, start.Add(time.Duration(j%3)*time.Hour))))
		}
	}
	states := []dispatch.State{dispatch.StateReady, dispatch.StateScheduled}
	is(e, "by seven", e.list(dispatch.TaskFilter{SourceUID: g.UID, States: states}, 7), want)
	is(e, "by one", e.list(dispatch.TaskFilter{Queue: "host2.test", States: states}, 1), want[20:40])
}

// A page that leaves out tasks by their state ends after so many, and tells of them.
func tasksLooks(e *env) {
	e.open()
	g := source("a")
	const n = bounds.MaxLooks + 200
	var items []dispatch.Submission
	for i := range n {
		items = append(items, item(g, queue, fmt.Sprint(i)))
	}
	for part := range slices.Chunk(items, bounds.MaxSubmissions) {
		e.create(g, part...)
	}
	looked, pages := 0, 0
	for cursor := ""; ; pages++ {
		page, err := e.Store.ListTasks(e.ctx, dispatch.TaskFilter{SourceUID: g.UID, States: []dispatch.State{dispatch.StateScheduled}}, cursor, 100)
		e.ok("list tasks", err)
		if len(page.Tasks) > 0 || page.Looked > bounds.MaxLooks {
			e.Fatalf("page %d listed %d tasks of %d that are ready", pages, len(page.Tasks), page.Looked)
		}
		looked += page.Looked
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if looked < n || pages == 0 {
		e.Errorf("looked at %d of %d tasks, in %d pages behind the first", looked, n, pages)
	}
}

// A page may be changed before the next is read: each task is listed once all the same.
func tasksPagesChange(e *env) {
	e.open()
	g := source("a")
	var want []string
	items := map[dispatch.TaskID]dispatch.Submission{}
	for i := range 3 {
		for j := range 25 {
			key := fmt.Sprintf("%d-%02d", i, j)
			s := item(g, fmt.Sprintf("host%d.test", i), key, withPriority(j%2, start.Add(time.Duration(j%3)*time.Hour)))
			want, items[s.ID] = append(want, key), s
			e.create(g, s)
		}
	}
	changing := func(change func(*dispatch.Task), states ...dispatch.State) (keys []string) {
		for cursor := ""; ; {
			page, err := e.Store.ListTasks(e.ctx, dispatch.TaskFilter{SourceUID: g.UID, States: states}, cursor, 7)
			e.ok("list tasks", err)
			for _, task := range page.Tasks {
				keys = append(keys, task.Key)
				change(task)
			}
			if cursor = page.Next; cursor == "" {
				slices.Sort(keys)
				return keys
			}
		}
	}
	is(e, "waiting, to cancel", changing(func(task *dispatch.Task) { e.settle(canceled(task)) }, dispatch.StateReady, dispatch.StateScheduled), want)
	is(e, "canceled, to retry", changing(func(task *dispatch.Task) {
		s := items[task.ID]
		s.IfExists = dispatch.IfExistsRetry
		e.submitOne(g, s, dispatch.SubmitRevisit)
	}, dispatch.StateCanceled), want)
}

// Leases that end after the page that listed them hide none of those behind.
func leasesEnd(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 30)...)
	for range 30 {
		e.takeOne(func(w *dispatch.Want) { w.Lease = time.Hour })
	}
	var got []string
	for cursor := ""; ; {
		tasks, next, err := e.Store.ListLeases(e.ctx, cursor, 4)
		e.ok("list leases", err)
		for _, task := range tasks {
			got = append(got, task.Key)
			e.settle(dead(task))
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	slices.Sort(got)
	is(e, "leases", len(slices.Compact(got)), 30)
}

func leasesList(e *env) {
	e.open()
	g := source("a")
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprintf("%02d", i))
		e.create(g, item(g, fmt.Sprintf("host%d.test", i), want[i]))
	}
	for shard := range e.Store.Shards() {
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(100, func(w *dispatch.Want) { w.Lease = time.Hour })}, nil)
		e.ok("claim", err)
		for _, grant := range reply.Grants[0] {
			e.advance(time.Second)
			is(e, "lost", e.renew(grant).Lost, dispatch.LostNone)
		}
	}
	var got []string
	last := time.Time{}
	for cursor := ""; ; {
		tasks, next, err := e.Store.ListLeases(e.ctx, cursor, 4)
		e.ok("list leases", err)
		if len(tasks) > 4 || len(got) > len(want) {
			e.Fatalf("a page of %d leases after %d", len(tasks), len(got))
		}
		for _, task := range tasks {
			if task.Lease.Deadline.Before(last) {
				e.Fatalf("deadline %v after %v", task.Lease.Deadline, last)
			}
			last = task.Lease.Deadline
			got = append(got, task.Key)
			is(e, "holder", task.Lease.Token.Collector, "c1")
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	slices.Sort(got)
	is(e, "leases", got, want)
}
