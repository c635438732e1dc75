//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// defaultKills of the dispatcher; `make crash` kills it 200 times.
	defaultKills = 6
	// killedBatch tasks are submitted between two kills.
	killedBatch = 300
	killedDelay = 5 * time.Millisecond
	// killedLimit is for the last tasks: one whose grant nobody got waits for its lease to expire.
	killedLimit = time.Minute
)

// TestKilled kills the only dispatcher again and again while tasks are submitted, fetched and reported, and starts it on
// the same directory: then nothing that was acknowledged is lost, and no promise is broken.
func TestKilled(t *testing.T) {
	t.Parallel()
	random, kills := seeded(t), defaultKills
	if text := os.Getenv("WAGGLE_E2E_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := &fleet{shards: 1, killed: map[string]bool{}}
	store := "file:" + t.TempDir()
	d := serve(t, "dispatcher", store, "waggle")
	addr := d.addr
	w.client = dial(t, addr)
	w.client.setRule(t, "*", killedDelay, 4)
	w.client.createSource(t, &pb.SourceSpec{Id: "killed", LeaseDuration: durationpb.New(5 * time.Second)})
	var collectors []*process
	for i := range 4 {
		p, log := logCollector(t, fmt.Sprintf("collector-%d", i), t.TempDir(), 16, []string{addr})
		collectors, w.logs = append(collectors, p), append(w.logs, log)
	}
	for round := range kills {
		var submitting sync.WaitGroup
		submitting.Go(func() { w.submitRound(t, round) })
		lasts(t.Context(), time.Duration(20+random.IntN(400))*time.Millisecond)
		d.kill()
		d = serve(t, fmt.Sprintf("dispatcher-%d", round+1), store, "waggle", "--listen", addr)
		submitting.Wait()
	}
	until(t, killedLimit, "all tasks are DONE", func() bool { return w.client.stats(t).GetTasks().GetDone() == int64(len(w.ids)) })
	for _, c := range collectors {
		c.stop(20 * time.Second)
	}
	t.Logf("%d kills, %d tasks were acknowledged", kills, len(w.ids))
	w.checkStore(t)
	w.checkHistory(t, killedDelay, 4)
}

// submitRound submits tasks until they are acknowledged.
func (f *fleet) submitRound(t *testing.T, round int) {
	t.Helper()
	items := make([]*pb.SubmitItem, killedBatch)
	for i := range items {
		items[i] = &pb.SubmitItem{
			SourceId: "killed", Url: fmt.Sprintf("https://host-%d.example/%d-%d", i%20, round, i), Metadata: map[string]string{"work": "30ms"},
		}
	}
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		reply, err := f.client.tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: items})
		cancel()
		if err != nil {
			lasts(t.Context(), 20*time.Millisecond)
			continue
		}
		for _, r := range reply.GetResults() {
			if c := r.GetCode(); c != pb.SubmitCode_SUBMIT_CODE_CREATED && c != pb.SubmitCode_SUBMIT_CODE_EXISTS {
				t.Errorf("a task was answered %v", r)
			}
			f.ids = append(f.ids, r.GetTaskId())
		}
		return
	}
}

// TestKilled_ShortLease kills the dispatcher with 1 s away, while a lease of 2 s stands that nobody renews: its task is granted
// again soon after its deadline.
func TestKilled_ShortLease(t *testing.T) {
	t.Parallel()
	store := "file:" + t.TempDir()
	d := serve(t, "dispatcher", store, "waggle")
	c := dial(t, d.addr)
	c.createSource(t, &pb.SourceSpec{Id: "short", LeaseDuration: durationpb.New(2 * time.Second)})
	c.submit(t, page("short", 1))
	c.fetchOne(t, "gone", "s1", 0)
	deadline := time.Now().Add(2 * time.Second)
	d.kill()
	lasts(t.Context(), time.Second)
	d = serve(t, "again", store, "waggle", "--listen", d.addr)
	dial(t, d.addr).fetchOne(t, "next", "s2", 10*time.Second)
	late := time.Since(deadline)
	t.Logf("granted again %v after the deadline", late)
	if late > 3*time.Second {
		t.Errorf("granted again %v after the deadline, want 3s at most", late)
	}
}

// TestKilled_FirstCrawl kills the dispatcher of the README's first crawl in the middle, and starts it again: the crawl
// goes on, and no page is missing.
func TestKilled_FirstCrawl(t *testing.T) {
	t.Parallel()
	const pages = 40
	var mu sync.Mutex
	served := map[string]int{}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		served[r.URL.Path]++
		mu.Unlock()
		n, err := strconv.Atoi(r.URL.Path[1:])
		switch {
		case r.URL.Path == "/":
			n = 0
		case err != nil:
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>%d</title>", n)
		if n+1 < pages {
			fmt.Fprintf(w, `<a href="/%d">next</a>`, n+1)
		}
	}))
	t.Cleanup(site.Close)
	fetched := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for path := range served {
			if path != "/robots.txt" {
				n++
			}
		}
		return n
	}
	store := "file:" + t.TempDir()
	d := serve(t, "dispatcher", store, "waggle")
	addr, out := d.addr, t.TempDir()
	command(t, addr, "queue", "rule", "set", "*", "--min-delay", "50ms")
	command(t, addr, "source", "create", "my.site", "--seed", site.URL, "--every", "1d", "--follow", "--max-depth", "100")
	c := launch(t, "collect", programs.path("waggle"), "collect", "--server", addr, "--id", "paris-1", "--out", out, "--allow-private")
	until(t, time.Minute, "a third of the pages is fetched", func() bool { return fetched() > pages/3 })
	d.kill()
	if n := fetched(); n >= pages {
		t.Fatalf("%d pages were fetched before the kill", n)
	}
	serve(t, "dispatcher again", store, "waggle", "--listen", addr)
	if said := command(t, addr, "source", "wait", "my.site", "--for", "1m"); !strings.Contains(said, fmt.Sprintf("my.site: finished; %d done, 0 dead, 0 canceled", pages-1)) {
		t.Errorf("waggle source wait wrote\n%s", said)
	}
	if n := fetched(); n != pages {
		t.Errorf("%d pages were fetched, of %d", n, pages)
	}
	c.stop(20 * time.Second)
}
