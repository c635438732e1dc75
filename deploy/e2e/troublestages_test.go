//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Each of these makes a trouble, and returns what ends it.

func stageFailing(t *testing.T, s *stage) func() {
	s.site.set(3, oldFeed)
	s.source(t, &pb.SourceSpec{Id: "failing", Seeds: seeds(s.site.url(3, "/feed")), Schedule: every(2 * time.Second)})
	s.succeeded(t, "failing")
	s.site.set(3, answers(http.StatusInternalServerError))
	return func() { s.site.set(3, oldFeed) }
}

func stageBackedOff(t *testing.T, s *stage) func() {
	once := int32(1)
	s.site.set(4, oldFeed)
	s.source(t, &pb.SourceSpec{Id: "backed-off", Seeds: seeds(s.site.url(4, "/feed")), Schedule: every(2 * time.Second), Retry: &pb.RetryPolicy{MaxAttempts: &once}})
	s.succeeded(t, "backed-off")
	s.site.set(4, answers(http.StatusNotFound))
	return func() {
		s.site.set(4, oldFeed)
		command(t, s.grpc[0], "source", "trigger", "backed-off")
	}
}

// The only request that its host may have at a time does not end.
func stageLate(t *testing.T, s *stage) func() {
	s.site.set(5, oldFeed)
	s.setRule(t, s.site.queue(5), 0, 1)
	s.source(t, &pb.SourceSpec{Id: "late", Seeds: seeds(s.site.url(5, "/feed")), Schedule: every(5 * time.Second)})
	s.succeeded(t, "late")
	release, begun := make(chan struct{}), make(chan struct{}, 1)
	s.site.set(5, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			begun <- struct{}{}
			hangs(release)(w, r)
			return
		}
		oldFeed(w, r)
	})
	s.source(t, &pb.SourceSpec{Id: "slow"})
	s.pages(t, "slow", s.site.url(5, "/slow"))
	<-begun
	return func() { close(release) }
}

func stageStuck(t *testing.T, s *stage) func() {
	s.site.set(6, oldFeed)
	s.source(t, &pb.SourceSpec{Id: "stuck", Seeds: seeds(s.site.url(6, "/feed")), Schedule: every(10 * time.Second)})
	s.succeeded(t, "stuck")
	command(t, s.grpc[0], "hold", "set", "--queue", s.site.queue(6), "--reason", "they asked us to stop")
	return func() { command(t, s.grpc[0], "hold", "lift", "--queue", s.site.queue(6)) }
}

func stageNever(t *testing.T, s *stage) func() {
	s.site.set(7, answers(http.StatusInternalServerError))
	s.source(t, &pb.SourceSpec{Id: "never", Seeds: seeds(s.site.url(7, "/feed")), Schedule: every(5 * time.Second)})
	return func() { s.site.set(7, oldFeed) }
}

func stageMoved(t *testing.T, s *stage) func() {
	s.site.set(9, oldFeed)
	s.site.set(8, http.RedirectHandler(s.site.url(9, "/feed"), http.StatusMovedPermanently).ServeHTTP)
	s.source(t, &pb.SourceSpec{Id: "moved", Seeds: seeds(s.site.url(8, "/feed")), Schedule: every(5 * time.Second)})
	return func() { command(t, s.grpc[0], "source", "update", "moved", "--follow-moves") }
}

func stageDead(t *testing.T, s *stage) func() {
	once := int32(1)
	s.site.set(10, answers(http.StatusNotFound))
	s.source(t, &pb.SourceSpec{Id: "dead", Retry: &pb.RetryPolicy{MaxAttempts: &once}})
	for n := range 4 {
		s.pages(t, "dead", s.site.url(10, fmt.Sprint("/", n)))
	}
	return func() {
		s.site.set(10, page200)
		command(t, s.grpc[0], "task", "retry", "--source", "dead", "--state", "dead", "--yes")
	}
}

// The feed is there, and its twelve articles are not. It ends as it has others.
func stageForbidden(t *testing.T, s *stage) func() {
	s.site.set(11, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/feed" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/rss+xml")
		fmt.Fprint(w, `<rss version="2.0"><channel><title>f</title>`)
		for n := range 12 {
			fmt.Fprintf(w, "<item><link>http://%s/forbidden/%d</link></item>", r.Host, n)
		}
		fmt.Fprint(w, "</channel></rss>")
	})
	s.source(t, &pb.SourceSpec{Id: "forbidden", Seeds: seeds(s.site.url(11, "/feed")), Schedule: every(2 * time.Second)})
	s.succeeded(t, "forbidden")
	return func() { s.site.set(11, newFeed()) }
}

// goodPages submits 150 pages of each of some hosts, which are there.
func (s *stage) goodPages(t *testing.T, source string, hosts ...int) {
	t.Helper()
	for _, host := range hosts {
		var urls []string
		for n := range 150 {
			urls = append(urls, s.site.url(host, fmt.Sprint("/good/", n)))
		}
		s.pages(t, source, urls...)
	}
}

// Nobody listens there.
func stageHostDown(t *testing.T, s *stage) func() {
	queue := freeAddr(t)
	s.source(t, &pb.SourceSpec{Id: "down"})
	for n := range 4 {
		s.pages(t, "down", fmt.Sprint("http://", queue, "/", n))
	}
	return func() {
		command(t, s.grpc[0], "task", "cancel", "--source", "down", "--yes")
		command(t, s.grpc[0], "hold", "lift", "--queue", queue, "--name", "waggle")
	}
}

// The same item for longer than its source allows.
func stageQuiet(t *testing.T, s *stage) func() {
	s.site.set(15, oldFeed)
	command(t, s.grpc[0], "source", "create", "quiet", "--seed", s.site.url(15, "/feed"), "--every", "2s", "--quiet-after", "1m")
	s.made = append(s.made, "quiet")
	return func() { s.site.set(15, newFeed()) }
}

func stageEmpty(t *testing.T, s *stage) func() {
	s.site.set(16, oldFeed)
	s.source(t, &pb.SourceSpec{Id: "empty", Seeds: seeds(s.site.url(16, "/feed")), Schedule: every(2 * time.Second)})
	s.succeeded(t, "empty")
	s.site.set(16, emptyFeed)
	return func() { s.site.set(16, newFeed()) }
}

// raw is a client that is a collector of its own pool, and does what it wants.
type raw struct {
	*client
	id, session string
}

func newRaw(s *stage, id string) *raw { return &raw{s.client, id, uuid.NewString()} }

// beat renews without an end; ending it says that the collector ends.
func (r *raw) beat(ctx context.Context, ended bool, leases ...*pb.LeaseBeat) error {
	_, err := r.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: r.id, Session: r.session, Pools: []string{r.id}, Slots: 1, Stopping: ended, Ended: ended}, Leases: leases,
	})
	return err
}

// keepBeating beats each 5 s until the function that it returns is called.
func (r *raw) keepBeating(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			if err := r.beat(ctx, false); err != nil {
				done <- err
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				done <- nil
				return
			}
		}
	}()
	return func() {
		cancel()
		if err := <-done; err != nil && ctx.Err() == nil {
			t.Errorf("%s: %v", r.id, err)
		}
		if err := r.beat(t.Context(), true); err != nil { //nolint:contextcheck // the one above has ended
			t.Errorf("%s ends: %v", r.id, err)
		}
	}
}

// It gives one task back again and again, and works on others, so it is not the collector that can do nothing.
func stageReleased(t *testing.T, s *stage) func() {
	r := newRaw(s, "raw-1")
	s.source(t, &pb.SourceSpec{Id: "released", Pool: r.id})
	sticky := s.pages(t, "released", s.site.url(17, "/sticky"))[0]
	end := r.keepBeating(t)
	for n := range 21 {
		s.pages(t, "released", s.site.url(18, fmt.Sprint("/", n)))
		for range 2 {
			reply, err := s.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
				CollectorId: r.id, Session: r.session, ClientToken: uuid.NewString(), Pools: []string{r.id}, Wait: durationpb.New(5 * time.Second),
			})
			if err != nil || len(reply.GetLeasedTasks()) != 1 {
				t.Fatalf("fetch: %v, %v", reply, err)
			}
			lease, outcome := reply.GetLeasedTasks()[0].GetLease(), success()
			if lease.GetTaskId() == sticky {
				outcome = &pb.Outcome{Result: &pb.Outcome_Released{Released: &pb.Released{}}}
			}
			if _, err := s.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{
				CollectorId: r.id, Session: r.session,
				Reports: []*pb.TaskReport{{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: outcome}},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return func() {
		command(t, s.grpc[0], "task", "cancel", sticky)
		end()
	}
}

// It beats, has a free slot and work, and does nothing.
func stageDeaf(t *testing.T, s *stage) func() {
	r := newRaw(s, "deaf-1")
	s.source(t, &pb.SourceSpec{Id: "deaf", Pool: r.id})
	end := r.keepBeating(t)
	s.pages(t, "deaf", s.site.url(19, "/"))
	return func() {
		command(t, s.grpc[0], "task", "cancel", "--source", "deaf", "--yes")
		end()
	}
}

func stageUnserved(t *testing.T, s *stage) func() {
	s.site.set(20, page200)
	s.source(t, &pb.SourceSpec{Id: "unserved", Pool: "nobody"})
	s.pages(t, "unserved", s.site.url(20, "/"))
	return func() { s.collect(t, "nobody-1", "nobody") }
}

// Nobody listens at its proxy; another collector of its name has none.
func stageProxy(t *testing.T, s *stage) func() {
	s.site.set(21, page200)
	s.source(t, &pb.SourceSpec{Id: "proxied", Pool: "proxy"})
	for n := range 6 {
		s.pages(t, "proxied", s.site.url(21, fmt.Sprint("/", n)))
	}
	p := s.collect(t, "proxy-1", "proxy", "--proxy", "http://"+freeAddr(t))
	return func() {
		p.stop(startLimit)
		s.collect(t, "proxy-1", "proxy")
	}
}

// Its proxy refuses whatever it asks for, as a network does that does not want crawlers.
func stageRefused(t *testing.T, s *stage) func() {
	proxy := httptest.NewServer(answers(http.StatusForbidden))
	t.Cleanup(proxy.Close)
	s.source(t, &pb.SourceSpec{Id: "refused", Pool: "refused"})
	for n := range 30 {
		s.pages(t, "refused", s.site.url(22, fmt.Sprint("/", n)))
	}
	p := s.collect(t, "refused-1", "refused", "--proxy", proxy.URL, "--ignore-robots")
	return func() {
		p.stop(startLimit)
		s.site.set(22, page200)
		s.collect(t, "refused-1", "refused")
		s.goodPages(t, "refused", 22)
	}
}

func stageKilled(t *testing.T, s *stage) func() {
	p := s.collect(t, "killed-1", "killed")
	s.known(t, "killed-1")
	p.kill()
	return func() {
		s.collect(t, "killed-1", "killed")
		s.known(t, "killed-1")
	}
}

// known waits until a collector is active.
func (s *stage) known(t *testing.T, id string) {
	t.Helper()
	until(t, startLimit, id+" is there", func() bool {
		out := command(t, s.grpc[0], "collector", "list", "--collector", id, "--state", "active", "--output", "json")
		return strings.Contains(out, id)
	})
}

func stageFrozen(t *testing.T, s *stage) func() {
	release, begun := make(chan struct{}), make(chan struct{}, 8)
	s.site.set(23, func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		hangs(release)(w, r)
	})
	s.source(t, &pb.SourceSpec{Id: "frozen", Pool: "frozen", LeaseDuration: durationpb.New(30 * time.Minute)})
	s.pages(t, "frozen", s.site.url(23, "/"))
	p := s.collect(t, "frozen-1", "frozen")
	<-begun
	p.signal(syscall.SIGSTOP)
	return func() {
		close(release)
		p.signal(syscall.SIGCONT)
	}
}

// Its page takes longer than half of what the source allows.
func stageHandler(t *testing.T, s *stage) func() {
	release := make(chan struct{})
	s.site.set(24, hangs(release))
	s.source(t, &pb.SourceSpec{Id: "handler", MaxHold: durationpb.New(2 * time.Minute)})
	s.pages(t, "handler", s.site.url(24, "/"))
	return func() { close(release) }
}

// The certificate of the dispatcher that serves TLS is replaced by one that ends in 10 days, and that by one that lasts.
func stageCertificate(t *testing.T, s *stage) func() {
	renew := func(days string) {
		run(t, "cert", "server", s.pki, "--renew", "--days", days)
	}
	renew("10")
	return func() { renew("365") }
}

func stageFull(t *testing.T, s *stage) func() {
	redisCLI(t, s.redis, "CONFIG", "SET", "maxmemory", "1mb")
	return func() { redisCLI(t, s.redis, "CONFIG", "SET", "maxmemory", "0") }
}

// A key of somebody else takes 60 MB, and Redis may have little more.
func stageNearlyFull(t *testing.T, s *stage) func() {
	redisCLI(t, s.redis, "SETRANGE", "filler", "60000000", "x")
	used := int64(0)
	for line := range strings.Lines(redisCLI(t, s.redis, "INFO", "memory")) {
		if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			used = n
		}
	}
	redisCLI(t, s.redis, "CONFIG", "SET", "maxmemory", strconv.FormatInt(used*100/88, 10))
	return func() {
		redisCLI(t, s.redis, "CONFIG", "SET", "maxmemory", "0")
		redisCLI(t, s.redis, "DEL", "filler")
	}
}

// A file takes what the disk of a directory has left, and tasks, which nobody fetches, what the log of the store has left.
func stageDisk(t *testing.T, s *stage) func() {
	path := filepath.Join(s.disk, "filler")
	filler, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, s.asked[jobDisk][1])
	c.createSource(t, &pb.SourceSpec{Id: "disk"})
	for block := make([]byte, 1<<20); err == nil; {
		_, err = filler.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := filler.Close(); err != nil {
		t.Fatal(err)
	}
	err = nil
	for n := 0; err == nil; n++ {
		item := page("disk", n)
		item.Payload = make([]byte, 256<<10)
		_, err = c.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{item}})
	}
	if reason(err) != "STORE_FULL" {
		t.Fatalf("submit to a full disk: %v", err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		command(t, s.asked[jobDisk][1], "source", "delete", "disk")
	}
}

func stageClock(t *testing.T, s *stage) func() {
	s.redis.Clock().Offset(5 * time.Second)
	return func() {}
}

func stageAway(t *testing.T, s *stage) func() {
	s.redis.Kill()
	return s.redis.Restart
}

func stageDown(t *testing.T, s *stage) func() {
	other := 1 - s.owner(t)
	s.dispatchers[other].kill()
	return func() { s.serve(t, other) }
}

// The other dispatcher is there, and not a standby.
func stageNoStandby(t *testing.T, s *stage) func() {
	other := 1 - s.owner(t)
	s.dispatchers[other].stop(startLimit)
	s.serve(t, other, "--standby=false")
	return func() {
		s.dispatchers[other].stop(startLimit)
		s.serve(t, other)
	}
}

func stageOwnerless(t *testing.T, s *stage) func() {
	for _, d := range s.dispatchers {
		d.kill()
	}
	return func() {
		for i := range s.dispatchers {
			s.serve(t, i)
		}
	}
}
