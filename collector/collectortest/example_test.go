package collectortest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/collectortest"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// exampleT stands for the *testing.T of your test, which an example does not have.
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

func (t *exampleT) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

// A test of a handler: it gives work to a dispatcher, runs the handler, and checks the tasks.
func Example() {
	t := &exampleT{}
	defer t.end()
	handler := collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		if task.Depth > 0 {
			return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonNotFound, HTTPStatus: 404, Permanent: true}
		}
		return collector.Succeeded{HTTPStatus: 200, Discovered: []collector.Discovered{{URL: "https://shop.example/old"}}}, nil
	})

	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{
		Id:     "shop",
		Seeds:  []*wagglev1.Seed{{Url: "https://shop.example/"}},
		Follow: &wagglev1.Follow{},
	})
	d.Work(handler)
	fmt.Println(d.Task("shop", "https://shop.example/").GetState())
	old := d.Task("shop", "https://shop.example/old")
	fmt.Println(old.GetState(), old.GetLastError().GetHttpStatus())
	fmt.Println(d.Task("shop", "https://shop.example/new") == nil)
	// Output:
	// TASK_STATE_DONE
	// TASK_STATE_DEAD 404
	// true
}

// Work calls the handler until nothing is due: here twice, since the first attempt is interrupted. The second one continues
// from the cursor.
func ExampleDispatcher_Work() {
	t := &exampleT{}
	defer t.end()
	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{Id: "api"})
	d.Submit(&wagglev1.SubmitItem{SourceId: "api", Url: "https://api.example/items"})
	interrupted := false
	d.Work(collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		page, _ := strconv.Atoi(string(task.Cursor)) // 0 without a cursor
		for ; page < 4; page++ {
			if page == 2 && !interrupted {
				interrupted = true
				return collector.Succeeded{}, &collector.Released{}
			}
			fmt.Println("page", page)
			if err := task.SetCursor([]byte(strconv.Itoa(page + 1))); err != nil {
				return collector.Succeeded{}, err
			}
		}
		return collector.Succeeded{}, nil
	}))
	fmt.Println(d.Task("api", "https://api.example/items").GetState())
	// Output:
	// page 0
	// page 1
	// page 2
	// page 3
	// TASK_STATE_DONE
}

// Submitted tasks carry what their handler needs beside the URL.
func ExampleDispatcher_Submit() {
	t := &exampleT{}
	defer t.end()
	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	d.Submit(&wagglev1.SubmitItem{
		SourceId: "shop", Url: "https://shop.example/shoes", Kind: "product",
		Metadata: map[string]string{"currency": "EUR"}, Payload: []byte(`{"size": 42}`),
	})
	d.Work(collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		fmt.Printf("%s %s %s %s\n", task.URL, task.Kind, task.Metadata["currency"], task.Payload)
		return collector.Succeeded{HTTPStatus: 200}, nil
	}))
	// Output: https://shop.example/shoes product EUR {"size": 42}
}

// Conn reaches every service of the dispatcher, as an operator's program would.
func ExampleDispatcher_Conn() {
	t := &exampleT{}
	defer t.end()
	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	tasks := wagglev1.NewTaskServiceClient(d.Conn())
	for range 2 {
		reply, err := tasks.SubmitTasks(t.Context(), &wagglev1.SubmitTasksRequest{Items: []*wagglev1.SubmitItem{
			{SourceId: "shop", Url: "https://shop.example/"},
			{SourceId: "shop", Url: "https://SHOP.example:443/#top"}, // the same page
		}})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, result := range reply.GetResults() {
			fmt.Println(result.GetCode())
		}
	}
	// Output:
	// SUBMIT_CODE_CREATED
	// SUBMIT_CODE_EXISTS
	// SUBMIT_CODE_EXISTS
	// SUBMIT_CODE_EXISTS
}

// Two collectors share the tasks; each task goes to one of them.
func ExampleMachine_Start() {
	t := &exampleT{}
	defer t.end()
	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	var left sync.WaitGroup
	for i := range 100 {
		left.Add(1)
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: fmt.Sprintf("https://shop.example/%d", i)})
	}
	var mu sync.Mutex // guards fetched
	fetched := make(map[string]int)
	handler := collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		mu.Lock()
		defer mu.Unlock()
		fetched[task.URL]++
		left.Done()
		return collector.Succeeded{HTTPStatus: 200}, nil
	})
	paris, oslo := d.Machine(), d.Machine()
	stopParis := paris.Start(paris.Config("paris-1", 4), handler)
	stopOslo := oslo.Start(oslo.Config("oslo-1", 4), handler)
	left.Wait()
	stopParis()
	stopOslo()
	fmt.Println(len(fetched), fetched["https://shop.example/99"])
	// Output: 100 1
}

// A machine dies in the middle of a task. Its collector is started on another machine, under the same ID: the task goes on
// there at once. Under another ID it would wait until the lease has expired, which takes no time in a synctest bubble.
func ExampleMachine_Die() {
	t := &exampleT{}
	defer t.end()
	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
	d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://shop.example/"})

	first, second := d.Machine(), d.Machine()
	cfg := first.Config("paris-1", 1)
	cfg.DrainTimeout, cfg.ReportTimeout = -1, time.Millisecond // nobody is there to wait for
	working, done := make(chan int64), make(chan int64)
	first.Start(cfg, collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
		working <- task.Fence
		<-ctx.Done()
		return collector.Succeeded{}, errors.New("too late: nobody hears this")
	}))
	fence := <-working
	first.Die()
	stop := second.Start(second.Config("paris-1", 1), collector.HandlerFunc(
		func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			done <- task.Fence
			return collector.Succeeded{HTTPStatus: 200}, nil
		}))
	fmt.Println("higher fence:", <-done > fence)
	stop()
	task := d.Task("shop", "https://shop.example/")
	fmt.Println(task.GetState(), "failures:", task.GetFailures())
	// Output:
	// higher fence: true
	// TASK_STATE_DONE failures: 0
}
