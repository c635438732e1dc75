package collector_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/collectortest"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// exampleT stands for a test's *testing.T, which examples do not have.
type exampleT struct {
	testing.TB
	cleanups []func()
}

// Helper does nothing.
func (t *exampleT) Helper() {}

// Context has no end.
func (t *exampleT) Context() context.Context { return context.Background() }

// Cleanup keeps f for the end of the example.
func (t *exampleT) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Errorf prints what went wrong, which fails the example.
func (t *exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Fatalf ends the example.
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// startDispatcher runs a dispatcher within the process, in place of `waggle serve`.
func startDispatcher() (d *collectortest.Dispatcher, end func()) {
	t := &exampleT{}
	return collectortest.Start(t), func() {
		for _, f := range slices.Backward(t.cleanups) {
			f()
		}
	}
}

// The smallest collector: it fetches a task, works on it, and reports how that ended.
func ExampleCollector_Run() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop", Seeds: []*wagglev1.Seed{{Url: "https://shop.example/"}}})

	// Elsewhere: collector.Config{Targets: []string{"127.0.0.1:7070"}, ID: "paris-1"}
	c, err := collector.New(d.Machine().Config("paris-1", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = c.Run(ctx, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		fmt.Println("fetch", task.URL, "for", task.SourceID)
		stop() // after one task
		return collector.Succeeded{HTTPStatus: 200}, nil
	}))
	fmt.Println(err, d.Task("shop", "https://shop.example/").GetState())
	// Output:
	// fetch https://shop.example/ for shop
	// <nil> TASK_STATE_DONE
}

// With two slots the handler is called on two goroutines at once: each of these calls waits for the other one.
func ExampleConfig_slots() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	d.Submit(
		&wagglev1.SubmitItem{SourceId: "shop", Url: "https://shop.example/1"},
		&wagglev1.SubmitItem{SourceId: "shop", Url: "https://shop.example/2"},
	)
	cfg := d.Machine().Config("paris-1", 1)
	cfg.Slots = 2
	c, err := collector.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var both sync.WaitGroup
	both.Add(2)
	err = c.Run(ctx, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		both.Done()
		both.Wait()
		stop()
		return collector.Succeeded{HTTPStatus: 200}, nil
	}))
	fmt.Println(err, c.Stats().Succeeded)
	// Output: <nil> 2
}

// When the context of Run ends, as on SIGTERM, a collector fetches no more, finishes its work within Config.DrainTimeout,
// and reports it.
func ExampleCollector_Run_gracefulStop() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	d.Submit(
		&wagglev1.SubmitItem{SourceId: "shop", Url: "https://shop.example/1"},
		&wagglev1.SubmitItem{SourceId: "shop", Url: "https://shop.example/2"},
	)
	cfg := d.Machine().Config("paris-1", 1)
	cfg.DrainTimeout = time.Minute
	c, err := collector.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	sigterm, arrive := context.WithCancel(context.Background()) // in a program: signal.NotifyContext
	defer arrive()
	err = c.Run(sigterm, collector.HandlerFunc(func(ctx context.Context, _ *collector.Task) (collector.Succeeded, error) {
		arrive()
		fmt.Println("at work, context:", ctx.Err())
		return collector.Succeeded{HTTPStatus: 200}, nil
	}))
	fmt.Println(err, "succeeded:", c.Stats().Succeeded)
	// Output:
	// at work, context: <nil>
	// <nil> succeeded: 1
}

// A handler that cannot finish within Config.DrainTimeout stores a cursor and returns. Its task is given back, and no
// attempt is spent.
func ExampleErrDraining() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://shop.example/list"})
	cfg := d.Machine().Config("paris-1", 1)
	cfg.DrainTimeout = -1 // no time at all
	c, err := collector.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	sigterm, arrive := context.WithCancel(context.Background()) // in a program: signal.NotifyContext
	defer arrive()
	err = c.Run(sigterm, collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
		arrive()
		<-ctx.Done() // in the middle of page 7
		fmt.Println(errors.Is(context.Cause(ctx), collector.ErrDraining))
		return collector.Succeeded{}, errors.Join(task.SetCursor([]byte("page 7")), context.Cause(ctx))
	}))
	task := d.Task("shop", "https://shop.example/list")
	fmt.Printf("%v %s failures: %d cursor: %s\n", err, task.GetState(), task.GetFailures(), task.GetCursor())
	// Output:
	// true
	// <nil> TASK_STATE_READY failures: 0 cursor: page 7
}

// Somebody cancels a task while it is worked on: the handler's context ends.
func ExampleErrCanceled() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://shop.example/"})

	working, ended := make(chan string), make(chan error)
	machine := d.Machine()
	cfg := machine.Config("paris-1", 1)
	cfg.LeaseDuration = 3 * time.Second // a heartbeat each second: where a push is lost, the next one brings the news
	stop := machine.Start(cfg, collector.HandlerFunc(
		func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
			working <- task.ID
			<-ctx.Done() // in a handler: whatever takes ctx, as an HTTP request, returns
			ended <- context.Cause(ctx)
			return collector.Succeeded{}, ctx.Err()
		}))
	_, err := wagglev1.NewTaskServiceClient(d.Conn()).CancelTasks(context.Background(), &wagglev1.CancelTasksRequest{
		TaskIds: []string{<-working}, Reason: "wrong site",
	})
	fmt.Println(err)
	fmt.Println(errors.Is(<-ended, collector.ErrCanceled))
	stop()
	fmt.Println(d.Task("shop", "https://shop.example/").GetState())
	// Output:
	// <nil>
	// true
	// TASK_STATE_CANCELED
}

// A second process with the ID of a running collector replaces it: the first one ends, and its tasks go to the second.
func ExampleErrReplaced() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://shop.example/"})
	cfg := d.Machine().Config("paris-1", 1)
	cfg.LeaseDuration = 3 * time.Second
	first, err := collector.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	err = first.Run(context.Background(), collector.HandlerFunc(func(ctx context.Context, _ *collector.Task) (collector.Succeeded, error) {
		second := d.Machine() // somebody starts a second one by mistake
		second.Start(second.Config("paris-1", 1), collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			close(done)
			return collector.Succeeded{HTTPStatus: 200}, nil
		}))
		<-ctx.Done()
		return collector.Succeeded{}, context.Cause(ctx)
	}))
	fmt.Println("first:", errors.Is(err, collector.ErrReplaced))
	<-done
	fmt.Println("second has the task")
	// Output:
	// first: true
	// second has the task
}

// Pools divide collectors by what they can do: tasks of the pool "browser" go only to collectors that name it.
func ExampleConfig_pools() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "plain", Seeds: []*wagglev1.Seed{{Url: "https://plain.example/"}}})
	d.CreateSource(&wagglev1.SourceSpec{Id: "app", Pool: "browser", Seeds: []*wagglev1.Seed{{Url: "https://app.example/"}}})

	cfg := d.Machine().Config("chromium-1", 2)
	cfg.Pools = []string{"browser"}
	cfg.Labels = map[string]string{"region": "eu"} // operators choose collectors by label
	c, err := collector.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = c.Run(ctx, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		fmt.Println("render", task.URL, "of pool", task.Pool)
		stop()
		return collector.Succeeded{HTTPStatus: 200}, nil
	}))
	fmt.Println(err, d.Task("plain", "https://plain.example/").GetState())
	// Output:
	// render https://app.example/ of pool browser
	// <nil> TASK_STATE_READY
}

// A collector may take the tasks of some sources only, or of some queues, which are hosts by default.
func ExampleConfig_sources() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "news"})
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	d.Submit(
		&wagglev1.SubmitItem{SourceId: "news", Url: "https://a.example/1"},
		&wagglev1.SubmitItem{SourceId: "news", Url: "https://b.example/1"},
		&wagglev1.SubmitItem{SourceId: "shop", Url: "https://a.example/2"},
	)
	cfg := d.Machine().Config("paris-1", 4)
	cfg.Sources = []string{"news"}
	cfg.Queues = []string{"a.example"}
	c, err := collector.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = c.Run(ctx, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		fmt.Println(task.SourceID, task.Queue, task.URL)
		stop()
		return collector.Succeeded{HTTPStatus: 200}, nil
	}))
	fmt.Println(err)
	// Output:
	// news a.example https://a.example/1
	// <nil>
}

// What a failure costs depends on its reason.
func ExampleReason() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	urls := []string{"https://a.example/gone", "https://b.example/odd", "https://c.example/busy"}
	for _, url := range urls {
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: url})
	}
	d.Work(collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		switch task.Queue {
		case "a.example": // the task ends
			return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonGone, HTTPStatus: 410, Permanent: true}
		case "b.example": // it is tried again after a backoff, as often as the source allows
			return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonParse, Message: "no price found"}
		default: // its host is left alone for an hour; no attempt is spent
			return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonThrottled, HTTPStatus: 429, RetryAfter: time.Hour}
		}
	}))
	for _, url := range urls {
		task := d.Task("shop", url)
		fmt.Println(url, task.GetState(), "failures:", task.GetFailures(), "throttled:", task.GetThrottled())
	}
	// Output:
	// https://a.example/gone TASK_STATE_DEAD failures: 1 throttled: 0
	// https://b.example/odd TASK_STATE_SCHEDULED failures: 1 throttled: 0
	// https://c.example/busy TASK_STATE_SCHEDULED failures: 0 throttled: 1
}

// A handler that cannot work now gives its task back: no attempt is spent.
func ExampleReleased() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://shop.example/"})
	d.Work(collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{}, &collector.Released{Delay: time.Hour} // the shop is closed until nine
	}))
	task := d.Task("shop", "https://shop.example/")
	fmt.Println(task.GetState(), "failures:", task.GetFailures())
	// Output: TASK_STATE_SCHEDULED failures: 0
}

// What a handler discovers becomes tasks, if the source's follow rule allows.
func ExampleDiscovered() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{
		Id:     "shop",
		Seeds:  []*wagglev1.Seed{{Url: "https://shop.example/"}},
		Follow: &wagglev1.Follow{}, // the hosts of the seeds
	})
	d.Work(collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		fmt.Printf("depth %d: %s %q\n", task.Depth, task.URL, task.Metadata["name"])
		if task.Depth > 0 {
			return collector.Succeeded{HTTPStatus: 200}, nil
		}
		return collector.Succeeded{HTTPStatus: 200, Discovered: []collector.Discovered{
			{URL: "https://shop.example/shoes", Metadata: map[string]string{"name": "Shoes"}},
			{URL: "https://elsewhere.example/"}, // another host: not followed
		}}, nil
	}))
	// Output:
	// depth 0: https://shop.example/ ""
	// depth 1: https://shop.example/shoes "Shoes"
}

// A handler may discover any number of items: what does not fit its report is submitted before it, in batches.
func ExampleSucceeded_discovered() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{
		Id:     "shop",
		Seeds:  []*wagglev1.Seed{{Url: "https://shop.example/sitemap.xml"}},
		Follow: &wagglev1.Follow{},
	})
	c, err := collector.New(d.Machine().Config("paris-1", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = c.Run(ctx, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		stop()
		items := make([]collector.Discovered, 5000)
		for i := range items {
			items[i] = collector.Discovered{URL: fmt.Sprintf("https://shop.example/%d", i), Relation: collector.RelationSitemap}
		}
		return collector.Succeeded{HTTPStatus: 200, Discovered: items}, nil
	}))
	fmt.Println(err, d.Task("shop", "https://shop.example/4999").GetState())
	// Output: <nil> TASK_STATE_READY
}

// A memo that a success leaves is handed to the next crawl of the task: here an ETag, so that an unchanged page is not
// fetched again.
func ExampleTask_memo() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop", Seeds: []*wagglev1.Seed{{Url: "https://shop.example/"}}})
	const etag = "v1" // of the page as it is now
	handler := collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		fmt.Printf("cycle %d, If-None-Match: %q\n", task.Cycle, task.Memo)
		if string(task.Memo) == etag {
			return collector.Succeeded{HTTPStatus: 304, Changed: collector.Unchanged}, nil
		}
		return collector.Succeeded{HTTPStatus: 200, Changed: collector.Changed, Memo: []byte(etag)}, nil
	})
	d.Work(handler)
	_, err := wagglev1.NewSourceServiceClient(d.Conn()).TriggerSources(context.Background(), &wagglev1.TriggerSourcesRequest{
		Ids: []string{"shop"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	d.Work(handler)
	// Output:
	// cycle 0, If-None-Match: ""
	// cycle 1, If-None-Match: "v1"
}

// Tasks need no URL: a key of the caller's choice identifies them. A queue keeps their delay, as one of a host does.
func ExampleDiscovered_key() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{
		Id:     "users",
		Seeds:  []*wagglev1.Seed{{Key: "user/1", Queue: "api"}},
		Follow: &wagglev1.Follow{AllowHosts: []string{"*"}},
	})
	friends := map[string]string{"user/1": "user/2", "user/2": "user/3", "user/3": "user/1"}
	d.Work(collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		fmt.Println("ask", task.Queue, "for", task.Key)
		return collector.Succeeded{Discovered: []collector.Discovered{{Key: friends[task.Key], Queue: "api"}}}, nil
	}))
	// Output:
	// ask api for user/1
	// ask api for user/2
	// ask api for user/3
}

// Health suits a readiness probe, Stats suits metrics.
func ExampleCollector_Health() {
	d, end := startDispatcher()
	defer end()
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop", Seeds: []*wagglev1.Seed{{Url: "https://shop.example/"}}})
	c, err := collector.New(d.Machine().Config("paris-1", 8))
	if err != nil {
		fmt.Println(err)
		return
	}
	ready := func(w http.ResponseWriter, _ *http.Request) {
		if err := c.Health(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
	probe := func() {
		answer := httptest.NewRecorder()
		ready(answer, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
		fmt.Printf("%d %q\n", answer.Code, strings.TrimSpace(answer.Body.String()))
	}
	probe()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = c.Run(ctx, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		probe()
		fmt.Println(c.Stats().Running, "of", c.Stats().Slots, "slots in use")
		stop()
		return collector.Succeeded{HTTPStatus: 200}, nil
	}))
	fmt.Println(err, c.Stats().Granted, c.Stats().Succeeded, c.Stats().Failed)
	// Output:
	// 503 "collector is not running"
	// 200 ""
	// 1 of 8 slots in use
	// <nil> 1 1 0
}
