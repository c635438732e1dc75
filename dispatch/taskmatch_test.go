package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

var unsettled = []dispatch.State{dispatch.StateScheduled, dispatch.StateReady, dispatch.StateLeased}

// matched reads all pages of a query, each task changed by change before the next page
// is read, and has the URLs that it found.
func (o *office) matched(q operate.TaskQuery, limit int, change func(ids []dispatch.TaskID)) string {
	o.t.Helper()
	var urls []string
	for cursor, calls := "", 0; ; calls++ {
		found, next, err := o.MatchTasks(o.t.Context(), &q, cursor, limit)
		if err != nil {
			o.t.Fatal(err)
		}
		if len(found) > limit || calls > 1000 {
			o.t.Fatalf("call %d found %d tasks by a limit of %d", calls, len(found), limit)
		}
		var ids []dispatch.TaskID
		for _, match := range found {
			ids, urls = append(ids, match.ID), append(urls, strings.TrimPrefix(o.task(match.ID).URL, "http://"))
		}
		if change != nil {
			change(ids)
		}
		if cursor = next; next == "" {
			slices.Sort(urls)
			return strings.Join(urls, " ")
		}
	}
}

func TestDispatcher_MatchTasks(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		for _, id := range []string{"news.a", "news.b", "shop"} {
			o.create(id, func(s *dispatch.SourceSpec) { s.Pool, s.Labels = "p-"+id[:4], map[string]string{"id": id} })
		}
		at := func(source, url string) engine.NewTask {
			return engine.NewTask{SourceID: source, URL: "http://" + url}
		}
		o.submit(at("news.a", "a.example/dead"), at("news.a", "a.example/broken"))
		for range 2 {
			g := o.fetchFrom("p-news")
			failed := &dispatch.Failed{Reason: 1, Permanent: true}
			if strings.HasSuffix(g.Task.URL, "broken") {
				failed.Reason = 5
			}
			o.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: failed})
		}
		time.Sleep(time.Hour)
		early := time.Now()
		o.submit(at("news.a", "www.a.example/1"), at("news.b", "b.example/1"), at("shop", "a.example/1"))
		held := o.fetchFrom("p-shop")
		later := at("news.b", "b.example/2")
		later.Due = time.Now().Add(time.Hour)
		o.submit(later, at("news.b", "za.example/1"))

		dead := []dispatch.State{dispatch.StateDead}
		for name, test := range map[string]struct {
			q    operate.TaskQuery
			want string
		}{
			"a source":              {operate.TaskQuery{SourceID: "news.b", States: unsettled}, "b.example/1 b.example/2 za.example/1"},
			"its dead":              {operate.TaskQuery{SourceID: "news.a", States: dead}, "a.example/broken a.example/dead"},
			"by reason":             {operate.TaskQuery{SourceID: "news.a", States: dead, Reasons: []dispatch.FailureReason{5, 6}}, "a.example/broken"},
			"in a queue":            {operate.TaskQuery{SourceID: "news.b", Queue: "za.example", States: unsettled}, "za.example/1"},
			"of a wrong pool":       {operate.TaskQuery{SourceID: "news.b", Sources: operate.SourceQuery{Pool: "p-shop"}, States: unsettled}, ""},
			"a prefix":              {operate.TaskQuery{Sources: operate.SourceQuery{Prefix: "news."}, States: []dispatch.State{dispatch.StateReady}}, "b.example/1 www.a.example/1 za.example/1"},
			"a prefix and a suffix": {operate.TaskQuery{Sources: operate.SourceQuery{Prefix: "news."}, QueueSuffix: "a.example", States: unsettled}, "www.a.example/1"},
			"a pool":                {operate.TaskQuery{Sources: operate.SourceQuery{Pool: "p-shop"}, States: unsettled}, "a.example/1"},
			"a label":               {operate.TaskQuery{Sources: operate.SourceQuery{Labels: map[string]string{"id": "shop"}}, States: unsettled}, "a.example/1"},
			"a queue":               {operate.TaskQuery{Queue: "a.example", States: append(dead, unsettled...)}, "a.example/1 a.example/broken a.example/dead"},
			"a suffix":              {operate.TaskQuery{QueueSuffix: "a.example", States: unsettled}, "a.example/1 www.a.example/1"},
			"the dead of a suffix":  {operate.TaskQuery{QueueSuffix: "example", States: dead}, "a.example/broken a.example/dead"},
			"a collector":           {operate.TaskQuery{Collector: "c1", States: []dispatch.State{dispatch.StateLeased}}, "a.example/1"},
			"another collector":     {operate.TaskQuery{Collector: "c2", States: []dispatch.State{dispatch.StateLeased}}, ""},
			"held of a queue":       {operate.TaskQuery{Collector: "c1", Queue: "b.example", States: unsettled}, ""},
			"all":                   {operate.TaskQuery{States: unsettled}, "a.example/1 b.example/1 b.example/2 www.a.example/1 za.example/1"},
			"all that is old":       {operate.TaskQuery{States: append(dead, unsettled...), CreatedBefore: early}, "a.example/broken a.example/dead"},
			"all that is new":       {operate.TaskQuery{States: append(dead, unsettled...), CreatedFrom: early, Queue: "a.example"}, "a.example/1"},
		} {
			for _, limit := range []int{1, 2, 1000} {
				if got := o.matched(test.q, limit, nil); got != test.want {
					t.Errorf("%s, by %d: %q, want %q", name, limit, got, test.want)
				}
			}
		}
		if _, _, err := o.MatchTasks(t.Context(), &operate.TaskQuery{SourceID: "none", States: unsettled}, "", 1); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("an unknown source: %v", err)
		}
		if _, _, err := o.MatchTasks(t.Context(), &operate.TaskQuery{SourceID: "news.a", States: unsettled}, " x", 1); !errors.Is(err, dispatch.ErrPageToken) {
			t.Errorf("a cursor that is none: %v", err)
		}
		o.succeed(held)
	})
}

// fetchFrom takes the one task that a pool has now.
func (o *office) fetchFrom(pool string) dispatch.Grant {
	o.t.Helper()
	o.calls++
	result, err := o.Fetch(o.t.Context(), engine.FetchRequest{
		Collector: "c1", Session: "s1", ClientToken: fmt.Sprintf("t%d", o.calls), Pools: []string{pool}, MaxTasks: 1, MaxBytes: engine.MaxFetchBytes,
	})
	if err != nil || len(result.Tasks) != 1 {
		o.t.Fatalf("fetched %d tasks of pool %s: %v", len(result.Tasks), pool, err)
	}
	return result.Tasks[0]
}

// Many places, more than are read at a time, with more tasks than a page: each task is
// found once, though it is changed before the next page is read.
func TestDispatcher_MatchTasks_pages(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		var urls []string
		for i := range 150 {
			o.create(fmt.Sprintf("empty%d", i), nil)
		}
		for i := range 250 {
			id := fmt.Sprintf("s%03d", i)
			o.create(id, nil)
			var tasks []engine.NewTask
			for j := range i % 4 {
				url := fmt.Sprintf("%s.example/%d", id, j)
				urls = append(urls, url)
				tasks = append(tasks, engine.NewTask{SourceID: id, URL: "http://" + url})
			}
			o.submit(tasks...)
		}
		want := strings.Join(urls, " ")
		for _, limit := range []int{7, 1000} {
			bySource := operate.TaskQuery{States: unsettled}
			byQueue := operate.TaskQuery{QueueSuffix: "example", States: unsettled}
			canceled := operate.TaskQuery{QueueSuffix: "example", States: []dispatch.State{dispatch.StateCanceled}}
			for name, q := range map[string]operate.TaskQuery{"sources": bySource, "queues": byQueue} {
				if got := o.matched(q, limit, func(ids []dispatch.TaskID) {
					o.all(operate.ChangeCanceled)(o.CancelTasks(t.Context(), operate.TaskEdit{IDs: ids}))
				}); got != want {
					t.Errorf("%s, by %d, to cancel: %d bytes of URLs, want %d", name, limit, len(got), len(want))
				}
				if got := o.matched(canceled, limit, func(ids []dispatch.TaskID) {
					o.all(operate.ChangeRetried)(o.RetryTasks(t.Context(), operate.TaskEdit{IDs: ids}))
				}); got != want {
					t.Errorf("%s, by %d, to retry: %d bytes of URLs, want %d", name, limit, len(got), len(want))
				}
			}
		}
	})
}

// all wants every task to have become the same.
func (o *office) all(code operate.ChangeCode) func([]operate.TaskChange, error) {
	return func(changes []operate.TaskChange, err error) {
		o.t.Helper()
		if err != nil {
			o.t.Fatal(err)
		}
		for _, c := range changes {
			if c.Code != code {
				o.t.Fatalf("became %d, want %d", c.Code, code)
			}
		}
	}
}

// lister is a store that notes the largest page that it was asked for.
type lister struct {
	dispatch.Store

	widest int
}

func (l *lister) ListTasks(ctx context.Context, filter dispatch.TaskFilter, cursor string, limit int) (dispatch.TaskPage, error) {
	l.widest = max(l.widest, limit)
	return l.Store.ListTasks(ctx, filter, cursor, limit)
}

func (l *lister) ListLeases(ctx context.Context, cursor string, limit int) ([]*dispatch.Task, string, error) {
	l.widest = max(l.widest, limit)
	return l.Store.ListLeases(ctx, cursor, limit)
}

// Tasks are read with their payloads, which may be 256 KiB each: few at a time.
func TestDispatcher_MatchTasks_memory(t *testing.T) {
	t.Parallel()
	l := &lister{}
	inWorld(t, setup{wrap: func(s dispatch.Store) dispatch.Store {
		l.Store = s
		return l
	}}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.submit("s", "q", 250, 0)
		ready := []dispatch.State{dispatch.StateReady}
		leased := []dispatch.State{dispatch.StateLeased}
		for _, q := range []operate.TaskQuery{{SourceID: "s", States: ready}, {QueueSuffix: "q", States: ready}, {Collector: "c1", States: leased}} {
			l.widest = 0
			found, next, err := w.o[0].MatchTasks(t.Context(), &q, "", 1000)
			if err != nil || next != "" || q.Collector == "" && len(found) != 250 {
				t.Errorf("%+v: found %d tasks, next %q: %v", q, len(found), next, err)
			}
			if l.widest == 0 || l.widest > 100 {
				t.Errorf("%+v: %d tasks were read at a time", q, l.widest)
			}
		}
	})
}

// What comes to match again after the first page, because the page was acted on, is
// not found twice; so the walk has an end.
func TestDispatcher_MatchTasks_standing(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		o.create("s", nil)
		var tasks []engine.NewTask
		for i := range 20 {
			tasks = append(tasks, engine.NewTask{SourceID: "s", URL: fmt.Sprintf("http://a.example/%d", i)})
		}
		o.submit(tasks...)
		held := make(map[dispatch.TaskID]dispatch.Grant)
		fetch := func() {
			for _, g := range o.fetch(20) {
				held[g.Task.ID] = g
			}
		}
		fetch()
		leases := operate.TaskQuery{Collector: "c1", States: []dispatch.State{dispatch.StateLeased}, Standing: true}
		want := o.matched(leases, 20, nil)
		got := o.matched(leases, 5, func(ids []dispatch.TaskID) {
			o.all(operate.ChangeRevoked)(o.RevokeLeases(t.Context(), operate.TaskEdit{IDs: ids}))
			time.Sleep(time.Millisecond)
			fetch()
		})
		if got != want || strings.Count(want, " ") != 19 {
			t.Errorf("revoked %s, want %s", got, want)
		}

		// Half of what they hold fails now, and half behind the first page.
		var failed []dispatch.Report
		for _, g := range held {
			failed = append(failed, dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, Permanent: true}})
		}
		o.report(failed[:10]...)
		dead := operate.TaskQuery{SourceID: "s", States: []dispatch.State{dispatch.StateDead}, Standing: true}
		want = o.matched(dead, 20, nil)
		got = o.matched(dead, 1, func([]dispatch.TaskID) {
			time.Sleep(time.Millisecond)
			o.report(failed[10:]...)
		})
		if got != want || strings.Count(want, " ") != 9 {
			t.Errorf("found the dead %s, want %s", got, want)
		}
	})
}

// A look that finds nothing has an end, and says where to go on.
func TestDispatcher_MatchTasks_bounded(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("s", nil)
		for page := range 12 {
			tasks := make([]engine.NewTask, 1000)
			for i := range tasks {
				tasks[i] = engine.NewTask{SourceID: "s", URL: fmt.Sprintf("http://a.example/%d/%d", page, i)}
			}
			o.submit(tasks...)
		}
		for name, q := range map[string]operate.TaskQuery{
			"left out here":      {SourceID: "s", States: unsettled, CreatedBefore: time.Now().Add(-time.Hour)},
			"left out by a list": {SourceID: "s", States: []dispatch.State{dispatch.StateScheduled}},
		} {
			found, next, err := o.MatchTasks(t.Context(), &q, "", 1000)
			if err != nil || len(found) != 0 || next == "" {
				t.Fatalf("%s: found %d tasks, next %q: %v", name, len(found), next, err)
			}
			if got := o.matched(q, 1000, nil); got != "" {
				t.Errorf("%s: found %q", name, got)
			}
		}
	})
}

// A source that is deleted while its tasks are looked through is left out; those behind
// it are found.
func TestDispatcher_MatchTasks_sourceGone(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		for _, id := range []string{"a", "b"} {
			o.create(id, nil)
			o.submit(engine.NewTask{SourceID: id, URL: "http://x.example/1" + id}, engine.NewTask{SourceID: id, URL: "http://x.example/2" + id})
		}
		first := true
		got := o.matched(operate.TaskQuery{States: unsettled}, 1, func([]dispatch.TaskID) {
			if first {
				first = false
				if err := o.DeleteSource(t.Context(), "a", dispatch.Note{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		if !strings.HasSuffix(got, "x.example/1b x.example/2b") {
			t.Errorf("found %q", got)
		}
	})
}

// A question what a call would do is answered as the call, and changes nothing.
func TestDispatcher_WouldChangeTasks(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		ctx := t.Context()
		o.unhurried()
		o.create("s", nil)
		o.create("gone", nil)
		gone := o.submit(engine.NewTask{SourceID: "gone", URL: "http://gone.example/"})[0].ID
		if err := o.DeleteSource(ctx, "gone", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		o.submit(engine.NewTask{SourceID: "s", URL: "http://a.example/dead"})
		dead := o.fetchOne().Task.ID
		held := func(url string) (id dispatch.TaskID, fence uint64) {
			id = o.submit(engine.NewTask{SourceID: "s", URL: url})[0].ID
			o.fetchOne()
			return id, o.task(id).Lease.Digest.Fence
		}
		o.changed(o.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{dead}}))(change(operate.ChangeCancelRequested, dispatch.StateLeased))
		o.changed(o.RevokeLeases(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{dead}}))(change(operate.ChangeRevoked, dispatch.StateCanceled))
		free, fence := held("http://a.example/held")
		asked, _ := held("http://a.example/asked")
		o.changed(o.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{asked}}))(change(operate.ChangeCancelRequested, dispatch.StateLeased))
		waits := o.submit(engine.NewTask{SourceID: "s", URL: "http://a.example/waits"})[0].ID
		ids := []dispatch.TaskID{gone, dead, free, asked, waits, unknown()}

		var before []*dispatch.Task
		for _, id := range ids[:5] {
			before = append(before, o.task(id))
		}
		none := change(operate.ChangeNotFound, dispatch.StateUnknown)
		settled, not := change(operate.ChangeAlreadySettled, dispatch.StateCanceled), change(operate.ChangeNotLeased, dispatch.StateCanceled)
		cancel := []operate.TaskChange{
			settled, settled, change(operate.ChangeCancelRequested, dispatch.StateLeased),
			change(operate.ChangeAlreadyRequested, dispatch.StateLeased), change(operate.ChangeCanceled, dispatch.StateCanceled), none,
		}
		retry := []operate.TaskChange{
			change(operate.ChangeRefused, dispatch.StateCanceled), change(operate.ChangeRetried, dispatch.StateReady),
			change(operate.ChangeNotSettled, dispatch.StateLeased), change(operate.ChangeNotSettled, dispatch.StateLeased),
			change(operate.ChangeNotSettled, dispatch.StateReady), none,
		}
		revoke := []operate.TaskChange{
			not, not, change(operate.ChangeRevoked, dispatch.StateReady), change(operate.ChangeRevoked, dispatch.StateCanceled),
			change(operate.ChangeNotLeased, dispatch.StateReady), none,
		}
		o.changed(o.CancelTasks(ctx, operate.TaskEdit{IDs: ids, DryRun: true}))(cancel...)
		o.changed(o.RetryTasks(ctx, operate.TaskEdit{IDs: ids, DryRun: true}))(retry...)
		o.changed(o.RevokeLeases(ctx, operate.TaskEdit{IDs: ids, DryRun: true}))(revoke...)
		o.changed(o.RevokeLeases(ctx, operate.TaskEdit{IDs: ids[2:4], Fences: []uint64{fence, 1}, DryRun: true}))(revoke[2], change(operate.ChangeOtherLease, dispatch.StateLeased))
		for i, task := range before {
			if after := o.task(ids[i]); after.Revision != task.Revision || after.State != task.State {
				t.Errorf("asked what would be, task %d became %+v", i, after)
			}
		}
		o.changed(o.CancelTasks(ctx, operate.TaskEdit{IDs: ids}))(cancel...)
		o.changed(o.RevokeLeases(ctx, operate.TaskEdit{IDs: ids[3:4]}))(revoke[3])
		o.changed(o.RetryTasks(ctx, operate.TaskEdit{IDs: ids[:2]}))(retry[:2]...)
	})
}
