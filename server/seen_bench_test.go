package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// What it costs to look at 50,000 sources with a million tasks: a scrape, which counts the store each time here, and what `waggle status`
// asks for, once the owner has looked at all sources in the background; and the list of those of a health, of which there is none.
func BenchmarkSeen(b *testing.B) {
	const sources, tasks = 50_000, 1_000_000
	bed := newBed(b, server.Config{HTTP: "127.0.0.1:0", StatsInterval: time.Millisecond})
	d, err := engine.New(engine.Config{ID: "filler", Store: bed.store})
	if err != nil {
		b.Fatal(err)
	}
	o := operate.New(d)
	id := func(i int) string { return fmt.Sprintf("s.%05d", i%sources) }
	var specs []operate.NamedSpec
	for i := range sources {
		spec := dispatchtest.Wanted(id(i), "https://"+id(i)+".example/")
		spec.Spec.Schedule.Every = time.Hour
		if specs = append(specs, spec); len(specs) == 500 {
			if _, err := o.ApplySources(b.Context(), specs, false); err != nil {
				b.Fatal(err)
			}
			specs = specs[:0]
		}
	}
	var batch []engine.NewTask
	for i := range tasks - sources {
		batch = append(batch, engine.NewTask{SourceID: id(i), URL: fmt.Sprintf("https://%s.example/%d", id(i), i), Priority: dispatch.DefaultPriority})
		if len(batch) == 1000 {
			if _, err := d.SubmitTasks(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	b.Run("scrape", func(b *testing.B) {
		for b.Loop() {
			reply, err := http.Get("http://" + bed.http.Addr().String() + "/metrics")
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, reply.Body); err != nil || reply.Body.Close() != nil {
				b.Fatal(err)
			}
		}
	})
	findings := func(b *testing.B) *pb.ListFindingsResponse {
		found, err := bed.admin.ListFindings(b.Context(), &pb.ListFindingsRequest{})
		if err != nil {
			b.Fatal(err)
		}
		return found
	}
	for began := time.Now(); !findings(b).GetAllLookedAt(); { // the chores have not looked at all yet
		if time.Since(began) > 3*time.Minute {
			b.Fatal("the sources are not looked at")
		}
	}
	b.Run("status", func(b *testing.B) {
		for b.Loop() {
			if _, err := bed.admin.GetStats(b.Context(), &pb.GetStatsRequest{}); err != nil {
				b.Fatal(err)
			}
			if found := findings(b); found.GetSources() != sources {
				b.Fatalf("%d sources were looked at", found.GetSources())
			}
		}
	})
	b.Run("list of the quiet", func(b *testing.B) {
		for b.Loop() {
			for token := ""; ; {
				page, err := bed.sources.ListSources(b.Context(), &pb.ListSourcesRequest{Health: []pb.SourceHealth{pb.SourceHealth_SOURCE_HEALTH_QUIET}, PageSize: 1000, PageToken: token})
				if err != nil {
					b.Fatal(err)
				}
				if token = page.GetNextPageToken(); token == "" {
					break
				}
			}
		}
	})
	get := func(b *testing.B, path string) {
		reply, err := http.Get("http://" + bed.http.Addr().String() + path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, reply.Body); err != nil || reply.Body.Close() != nil || reply.StatusCode != http.StatusOK {
			b.Fatalf("%s: %s, %v", path, reply.Status, err)
		}
	}
	for _, path := range []string{
		"/", "/sources", "/sources?health=quiet", "/source?id=s.00007", "/queues", "/queues?order=waiting", "/queue?name=s.00007.example",
		"/tasks?source=s.00007", "/collectors", "/holds", "/rules", "/audit",
	} {
		b.Run("console "+path, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				get(b, path)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
	// A viewer has an event stream, and gets the overview at each tick. What they cost, and what the process does without them is left out.
	b.Run("console of 100 viewers", func(b *testing.B) {
		const viewers, lasts = 100, 20 * time.Second
		for b.Loop() {
			idle := processorTime(b)
			time.Sleep(lasts)
			before := processorTime(b)
			idle, until := before-idle, time.Now().Add(lasts)
			var all sync.WaitGroup
			for range viewers {
				all.Go(func() {
					ctx, stop := context.WithDeadline(b.Context(), until)
					defer stop()
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+bed.http.Addr().String()+"/events", http.NoBody)
					if err != nil {
						b.Error(err)
						return
					}
					reply, err := http.DefaultClient.Do(req)
					if err != nil {
						b.Error(err)
						return
					}
					defer reply.Body.Close()
					lines := bufio.NewScanner(reply.Body)
					for lines.Scan() {
						if strings.HasPrefix(lines.Text(), "event: tick") {
							get(b, "/")
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(100*float64(processorTime(b)-before-idle)/float64(lasts), "%-of-a-core")
		}
	})
}

// processorTime is what this process, server and clients, has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
