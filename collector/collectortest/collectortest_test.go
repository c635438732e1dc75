package collectortest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/collectortest"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// visits counts what a handler was called with.
type visits struct {
	mu    sync.Mutex // guards count
	count map[string]int
}

func (v *visits) note(url string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.count == nil {
		v.count = map[string]int{}
	}
	v.count[url]++
}

func seeds(urls ...string) []*wagglev1.Seed {
	var seeds []*wagglev1.Seed
	for _, url := range urls {
		seeds = append(seeds, &wagglev1.Seed{Url: url})
	}
	return seeds
}

// crawlTen follows a chain of ten pages.
func crawlTen(t *testing.T) {
	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{Id: "chain", Seeds: seeds("https://a.example/0"), Follow: &wagglev1.Follow{}})
	var seen visits
	d.Work(collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		seen.note(task.URL)
		if task.Depth == 9 {
			return collector.Succeeded{HTTPStatus: 200}, nil
		}
		return collector.Succeeded{HTTPStatus: 200, Discovered: []collector.Discovered{
			{URL: fmt.Sprintf("https://a.example/%d", task.Depth+1)}, {URL: task.URL},
		}}, nil
	}))
	for i := range 10 {
		url := fmt.Sprintf("https://a.example/%d", i)
		if seen.count[url] != 1 {
			t.Errorf("%s was crawled %d times, want once", url, seen.count[url])
		}
		if state := d.Task("chain", url).GetState(); state != wagglev1.TaskState_TASK_STATE_DONE {
			t.Errorf("%s is %s, want DONE", url, state)
		}
	}
	if task := d.Task("chain", "https://a.example/10"); task != nil {
		t.Errorf("a page that nobody linked to is there: %v", task)
	}
}

func TestDispatcher_Work(t *testing.T) {
	t.Parallel()
	t.Run("Crawls", func(t *testing.T) {
		t.Parallel()
		crawlTen(t)
	})
	t.Run("CrawlsInABubble", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, crawlTen)
	})
	t.Run("LeavesWhatIsDueLater", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := collectortest.Start(t)
			d.CreateSource(&wagglev1.SourceSpec{Id: "feed"})
			d.Submit(&wagglev1.SubmitItem{SourceId: "feed", Url: "https://a.example/1"})
			fails := collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, fmt.Errorf("not today")
			})
			d.Work(fails)
			if task := d.Task("feed", "https://a.example/1"); task.GetFailures() != 1 || task.GetState() != wagglev1.TaskState_TASK_STATE_SCHEDULED {
				t.Errorf("after one failure: %v", task)
			}
			time.Sleep(time.Minute) // in the bubble; the backoff is over then
			d.Work(fails)
			if task := d.Task("feed", "https://a.example/1"); task.GetFailures() != 2 {
				t.Errorf("after two failures: %v", task)
			}
		})
	})
}

// TestMachine_Die shows that a dead machine's task goes to another, and that what the dead one says later changes nothing.
func TestMachine_Die(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := collectortest.Start(t)
		d.CreateSource(&wagglev1.SourceSpec{Id: "shop", LeaseDuration: durationpb.New(5 * time.Second), Seeds: seeds("https://a.example/")})
		first := d.Machine()
		working := make(chan struct{})
		first.Start(first.Config("one", 1), collector.HandlerFunc(func(ctx context.Context, _ *collector.Task) (collector.Succeeded, error) {
			close(working)
			<-ctx.Done()
			return collector.Succeeded{HTTPStatus: 500}, nil
		}))
		<-working
		began := time.Now()
		first.Die()
		d.Work(collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			return collector.Succeeded{HTTPStatus: 200}, nil
		}))
		if took := time.Since(began); took < 3*time.Second || took > 7*time.Second {
			t.Errorf("the other machine had done it after %s, want the length of the lease, 5s", took)
		}
		task := d.Task("shop", "https://a.example/")
		if task.GetCycle() != 1 || task.GetState() != wagglev1.TaskState_TASK_STATE_DONE {
			t.Errorf("the task: %v", task)
		}
	})
}
