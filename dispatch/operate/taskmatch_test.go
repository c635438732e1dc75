package operate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

var unsettled = []dispatch.State{dispatch.StateScheduled, dispatch.StateReady, dispatch.StateLeased}

// matched reads all pages of a query, each task changed by change before the next page
// is read, and has the URLs that it found.
func (w *world) matched(q operate.TaskQuery, limit int, change func(ids []dispatch.TaskID)) string {
	w.T.Helper()
	var urls []string
	for cursor, calls := "", 0; ; calls++ {
		found, next, err := w.MatchTasks(w.T.Context(), &q, cursor, limit)
		if err != nil {
			w.T.Fatal(err)
		}
		if len(found) > limit || calls > 1000 {
			w.T.Fatalf("call %d found %d tasks by a limit of %d", calls, len(found), limit)
		}
		var ids []dispatch.TaskID
		for _, match := range found {
			ids, urls = append(ids, match.ID), append(urls, strings.TrimPrefix(w.MustTask(match.ID).URL, "http://"))
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
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		for _, id := range []string{"news.a", "news.b", "shop"} {
			w.Create(id, func(s *dispatch.SourceSpec) { s.Pool, s.Labels = "p-"+id[:4], map[string]string{"id": id} })
		}
		at := func(source, url string) engine.NewTask {
			return engine.NewTask{SourceID: source, URL: "http://" + url}
		}
		w.MustSubmit(at("news.a", "a.example/dead"), at("news.a", "a.example/broken"))
		for range 2 {
			g := w.fetchFrom("p-news")
			failed := &dispatch.Failed{Reason: 1, Permanent: true}
			if strings.HasSuffix(g.Task.URL, "broken") {
				failed.Reason = 5
			}
			w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: failed})
		}
		time.Sleep(time.Hour)
		early := time.Now()
		w.MustSubmit(at("news.a", "www.a.example/1"), at("news.b", "b.example/1"), at("shop", "a.example/1"))
		held := w.fetchFrom("p-shop")
		later := at("news.b", "b.example/2")
		later.Due = time.Now().Add(time.Hour)
		w.MustSubmit(later, at("news.b", "za.example/1"))

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
				if got := w.matched(test.q, limit, nil); got != test.want {
					t.Errorf("%s, by %d: %q, want %q", name, limit, got, test.want)
				}
			}
		}
		if _, _, err := w.MatchTasks(t.Context(), &operate.TaskQuery{SourceID: "none", States: unsettled}, "", 1); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("an unknown source: %v", err)
		}
		if _, _, err := w.MatchTasks(t.Context(), &operate.TaskQuery{SourceID: "news.a", States: unsettled}, " x", 1); !errors.Is(err, dispatch.ErrPageToken) {
			t.Errorf("a cursor that is none: %v", err)
		}
		w.Succeed(held)
	})
}

// fetchFrom takes the one task that a pool has now.
func (w *world) fetchFrom(pool string) dispatch.Grant {
	w.T.Helper()
	grants := w.Take(1, pool)
	if len(grants) != 1 {
		w.T.Fatalf("fetched %d tasks of pool %s, want 1", len(grants), pool)
	}
	return grants[0]
}

// Many places, more than are read at a time, with more tasks than a page: each task is
// found once, though it is changed before the next page is read.
func TestDispatcher_MatchTasks_pages(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		var urls []string
		for i := range 150 {
			w.Create(fmt.Sprintf("empty%d", i), nil)
		}
		for i := range 250 {
			id := fmt.Sprintf("s%03d", i)
			w.Create(id, nil)
			var tasks []engine.NewTask
			for j := range i % 4 {
				url := fmt.Sprintf("%s.example/%d", id, j)
				urls = append(urls, url)
				tasks = append(tasks, engine.NewTask{SourceID: id, URL: "http://" + url})
			}
			w.MustSubmit(tasks...)
		}
		want := strings.Join(urls, " ")
		for _, limit := range []int{7, 1000} {
			bySource := operate.TaskQuery{States: unsettled}
			byQueue := operate.TaskQuery{QueueSuffix: "example", States: unsettled}
			canceled := operate.TaskQuery{QueueSuffix: "example", States: []dispatch.State{dispatch.StateCanceled}}
			for name, q := range map[string]operate.TaskQuery{"sources": bySource, "queues": byQueue} {
				if got := w.matched(q, limit, func(ids []dispatch.TaskID) {
					w.all(operate.ChangeCanceled)(w.CancelTasks(t.Context(), operate.TaskEdit{IDs: ids}))
				}); got != want {
					t.Errorf("%s, by %d, to cancel: %d bytes of URLs, want %d", name, limit, len(got), len(want))
				}
				if got := w.matched(canceled, limit, func(ids []dispatch.TaskID) {
					w.all(operate.ChangeRetried)(w.RetryTasks(t.Context(), operate.TaskEdit{IDs: ids}))
				}); got != want {
					t.Errorf("%s, by %d, to retry: %d bytes of URLs, want %d", name, limit, len(got), len(want))
				}
			}
		}
	})
}

// all wants every task to have become the same.
func (w *world) all(code operate.ChangeCode) func([]operate.TaskChange, error) {
	return func(changes []operate.TaskChange, err error) {
		w.T.Helper()
		if err != nil {
			w.T.Fatal(err)
		}
		for _, c := range changes {
			if c.Code != code {
				w.T.Fatalf("became %d, want %d", c.Code, code)
			}
		}
	}
}

// Tasks are read with their payloads, which may be 256 KiB each: few at a time.
func TestDispatcher_MatchTasks_memory(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		widest := 0 // page that was asked for
		w.Inject(dispatchtest.On(func(_ context.Context, c *dispatchtest.Call, ask func() error) error {
			widest = max(widest, c.Limit)
			return ask()
		}, dispatchtest.Calls("ListTasks", "ListLeases")))
		w.AddSource("s", nil)
		w.Submit("s", "q", 250, 0)
		ready := []dispatch.State{dispatch.StateReady}
		leased := []dispatch.State{dispatch.StateLeased}
		for _, q := range []operate.TaskQuery{{SourceID: "s", States: ready}, {QueueSuffix: "q", States: ready}, {Collector: "c1", States: leased}} {
			widest = 0
			found, next, err := w.O[0].MatchTasks(t.Context(), &q, "", 1000)
			if err != nil || next != "" || q.Collector == "" && len(found) != 250 {
				t.Errorf("%+v: found %d tasks, next %q: %v", q, len(found), next, err)
			}
			if widest == 0 || widest > 100 {
				t.Errorf("%+v: %d tasks were read at a time", q, widest)
			}
		}
	})
}

// What comes to match again after the first page, because the page was acted on, is
// not found twice; so the walk has an end.
func TestDispatcher_MatchTasks_standing(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", nil)
		var tasks []engine.NewTask
		for i := range 20 {
			tasks = append(tasks, engine.NewTask{SourceID: "s", URL: fmt.Sprintf("http://a.example/%d", i)})
		}
		w.MustSubmit(tasks...)
		held := make(map[dispatch.TaskID]dispatch.Grant)
		fetch := func() {
			for _, g := range w.Take(20) {
				held[g.Task.ID] = g
			}
		}
		fetch()
		leases := operate.TaskQuery{Collector: "c1", States: []dispatch.State{dispatch.StateLeased}, Standing: true}
		want := w.matched(leases, 20, nil)
		got := w.matched(leases, 5, func(ids []dispatch.TaskID) {
			w.all(operate.ChangeRevoked)(w.RevokeLeases(t.Context(), operate.TaskEdit{IDs: ids}))
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
		w.MustReport(failed[:10]...)
		dead := operate.TaskQuery{SourceID: "s", States: []dispatch.State{dispatch.StateDead}, Standing: true}
		want = w.matched(dead, 20, nil)
		got = w.matched(dead, 1, func([]dispatch.TaskID) {
			time.Sleep(time.Millisecond)
			w.MustReport(failed[10:]...)
		})
		if got != want || strings.Count(want, " ") != 9 {
			t.Errorf("found the dead %s, want %s", got, want)
		}
	})
}

// A look that finds nothing has an end, and says where to go on.
func TestDispatcher_MatchTasks_bounded(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		for page := range 12 {
			tasks := make([]engine.NewTask, 1000)
			for i := range tasks {
				tasks[i] = engine.NewTask{SourceID: "s", URL: fmt.Sprintf("http://a.example/%d/%d", page, i)}
			}
			w.MustSubmit(tasks...)
		}
		for name, q := range map[string]operate.TaskQuery{
			"left out here":      {SourceID: "s", States: unsettled, CreatedBefore: time.Now().Add(-time.Hour)},
			"left out by a list": {SourceID: "s", States: []dispatch.State{dispatch.StateScheduled}},
		} {
			found, next, err := w.MatchTasks(t.Context(), &q, "", 1000)
			if err != nil || len(found) != 0 || next == "" {
				t.Fatalf("%s: found %d tasks, next %q: %v", name, len(found), next, err)
			}
			if got := w.matched(q, 1000, nil); got != "" {
				t.Errorf("%s: found %q", name, got)
			}
		}
	})
}

// A source that is deleted while its tasks are looked through is left out; those behind
// it are found.
func TestDispatcher_MatchTasks_sourceGone(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		for _, id := range []string{"a", "b"} {
			w.Create(id, nil)
			w.MustSubmit(engine.NewTask{SourceID: id, URL: "http://x.example/1" + id}, engine.NewTask{SourceID: id, URL: "http://x.example/2" + id})
		}
		first := true
		got := w.matched(operate.TaskQuery{States: unsettled}, 1, func([]dispatch.TaskID) {
			if first {
				first = false
				if err := w.DeleteSource(t.Context(), "a", dispatch.Note{}); err != nil {
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
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Unhurried()
		w.Create("s", nil)
		w.Create("gone", nil)
		gone := w.MustSubmit(engine.NewTask{SourceID: "gone", URL: "http://gone.example/"})[0].ID
		if err := w.DeleteSource(ctx, "gone", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/dead"})
		dead := w.TakeOne().Task.ID
		held := func(url string) (id dispatch.TaskID, fence uint64) {
			id = w.MustSubmit(engine.NewTask{SourceID: "s", URL: url})[0].ID
			w.TakeOne()
			return id, w.MustTask(id).Lease.Digest.Fence
		}
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{dead}}))(change(operate.ChangeCancelRequested, dispatch.StateLeased))
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{dead}}))(change(operate.ChangeRevoked, dispatch.StateCanceled))
		free, fence := held("http://a.example/held")
		asked, _ := held("http://a.example/asked")
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{asked}}))(change(operate.ChangeCancelRequested, dispatch.StateLeased))
		waits := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/waits"})[0].ID
		ids := []dispatch.TaskID{gone, dead, free, asked, waits, unknown()}

		var before []*dispatch.Task
		for _, id := range ids[:5] {
			before = append(before, w.MustTask(id))
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
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: ids, DryRun: true}))(cancel...)
		w.changed(w.RetryTasks(ctx, operate.TaskEdit{IDs: ids, DryRun: true}))(retry...)
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids, DryRun: true}))(revoke...)
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids[2:4], Fences: []uint64{fence, 1}, DryRun: true}))(revoke[2], change(operate.ChangeOtherLease, dispatch.StateLeased))
		for i, task := range before {
			if after := w.MustTask(ids[i]); after.Revision != task.Revision || after.State != task.State {
				t.Errorf("asked what would be, task %d became %+v", i, after)
			}
		}
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: ids}))(cancel...)
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids[3:4]}))(revoke[3])
		w.changed(w.RetryTasks(ctx, operate.TaskEdit{IDs: ids[:2]}))(retry[:2]...)
	})
}
