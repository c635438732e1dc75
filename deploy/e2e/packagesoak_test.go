//go:build e2e

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	packageRound = 600                    // tasks between two restarts
	packageHosts = 30                     // queues they are in
	packageWork  = 10 * time.Millisecond  // how long a page takes
	packageLimit = 40 * time.Second       // for a round: a grant that nobody got waits for its lease to expire
	packageLease = 6 * time.Second        // short, so that a restart falls into heartbeats
	packageDelay = 50 * time.Millisecond  // between two tasks of a queue
	packageQuiet = 500 * time.Millisecond // after a round, before memory is read
	// packageGrowth is the most that a collector's memory may grow from the second quarter of the run to the last, once it
	// was read packageReadings times.
	packageGrowth, packageReadings = 1.15, 40
)

// TestSoak_Packages gives rounds of tasks to collectors of the Python and the TypeScript package while their only dispatcher is
// killed or stopped, and started again on the same directory. Each task ends DONE, no page is fetched by two at once, and in a long
// run the memory of the collectors stays flat.
func TestSoak_Packages(t *testing.T) {
	t.Parallel()
	random, long := seeded(t), soakFor(t)
	shell(t, repository, "make --silent typescript")
	python := grpcPython(t)
	store := "file:" + t.TempDir()
	addr, json := lastingAddr(t), lastingAddr(t)
	d := serve(t, "dispatcher", store, "waggle", "--listen", addr, "--http", json)
	c := dial(t, addr)
	c.setRule(t, "*", packageDelay, 4)
	site := newSlowSite(t)

	source := "PYTHONPATH=" + absolute(t, repository, "collector", "python", "src")
	collectors := []*process{
		launch(t, "Python, threads", "env", source, python, "packagesoak/collect.py", "threads", addr),
		launch(t, "Python, asyncio", "env", source, python, "packagesoak/collect.py", "asyncio", addr),
		launch(t, "TypeScript", "node", "packagesoak/collect.mjs", "grpc", addr),
		launch(t, "TypeScript, JSON", "node", "packagesoak/collect.mjs", "connect-json", json),
	}
	memory := make([][]int, len(collectors))
	rounds, repeats := 0, 0
	for began := time.Now(); rounds == 0 || time.Since(began) < long; rounds++ {
		id := fmt.Sprintf("round-%d", rounds)
		c.createSource(t, &pb.SourceSpec{Id: id, LeaseDuration: durationpb.New(packageLease)})
		items := make([]*pb.SubmitItem, packageRound)
		for i := range items {
			items[i] = &pb.SubmitItem{SourceId: id, Queue: fmt.Sprintf("host-%d", i%packageHosts), Url: fmt.Sprintf("%s/%d", site.url, i)}
		}
		c.submit(t, items...)
		lasts(t.Context(), time.Duration(random.IntN(1000))*time.Millisecond)
		if random.IntN(2) == 0 {
			d.kill()
		} else {
			d.signal(syscall.SIGTERM)
			lasts(t.Context(), time.Duration(random.IntN(1000))*time.Millisecond)
			d.kill()
		}
		d = serve(t, fmt.Sprintf("dispatcher-%d", rounds+1), store, "waggle", "--listen", addr, "--http", json)
		until(t, packageLimit, "all tasks of "+id+" have ended", func() bool { return c.idle(t, id) })
		repeats += site.checkRound(t, id)
		c.checkDone(t, id)
		if _, err := c.sources.DeleteSources(t.Context(), &pb.DeleteSourcesRequest{Ids: []string{id}}); err != nil {
			t.Fatal(err)
		}
		lasts(t.Context(), packageQuiet)
		for i, p := range collectors {
			memory[i] = append(memory[i], residentMiB(t, p))
		}
		if t.Failed() {
			break
		}
	}
	for i, p := range collectors {
		checkFlat(t, p.name, memory[i])
		p.stop(20 * time.Second)
	}
	t.Logf("%d tasks in %d rounds, none lost; %d pages were fetched again, after a kill", rounds*packageRound, rounds, repeats)
}

// checkDone fails unless all tasks of a source are DONE.
func (c *client) checkDone(t *testing.T, source string) {
	t.Helper()
	reply, err := c.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: source})
	if err != nil {
		t.Fatal(err)
	}
	if n := reply.GetSource().GetStatus().GetTasks().GetDone(); n != packageRound {
		t.Errorf("%s: %d of %d tasks are DONE", source, n, packageRound)
	}
}

// checkFlat compares the medians of the second quarter and of the last.
func checkFlat(t *testing.T, name string, readings []int) {
	t.Helper()
	n := len(readings)
	if n == 0 {
		return
	}
	middle := func(of []int) int { of = slices.Sorted(slices.Values(of)); return of[len(of)/2] }
	if n < packageReadings {
		t.Logf("%s: %d MiB after %d rounds, too few to tell growth", name, readings[n-1], n)
		return
	}
	early, late := middle(readings[n/4:n/2]), middle(readings[3*n/4:])
	t.Logf("%s: median %d MiB in the second quarter, %d MiB in the last, most %d MiB", name, early, late, slices.Max(readings))
	if float64(late) > packageGrowth*float64(early) {
		t.Errorf("%s: memory grew from %d MiB to %d MiB: %v", name, early, late, readings)
	}
}

var residentLine = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// residentMiB is the memory that a process has.
func residentMiB(t *testing.T, p *process) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := residentLine.FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s: no VmRSS in\n%s", p.name, text)
	}
	kilobytes, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes >> 10
}

// slowSite serves pages and sees when one is fetched by two at once.
type slowSite struct {
	url string

	mu      sync.Mutex     // guards what follows
	fetched map[string]int // by path, in this round
	running map[string]bool
	overlap []string
}

func newSlowSite(t *testing.T) *slowSite {
	t.Helper()
	s := &slowSite{fetched: map[string]int{}, running: map[string]bool{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *slowSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Path
	s.mu.Lock()
	if s.running[key] {
		s.overlap = append(s.overlap, key)
	}
	s.running[key] = true
	s.fetched[key]++
	s.mu.Unlock()
	lasts(r.Context(), packageWork+time.Duration(rand.IntN(10))*time.Millisecond)
	s.mu.Lock()
	delete(s.running, key)
	s.mu.Unlock()
	fmt.Fprintf(w, "page %s\n", r.URL.Path)
}

// checkRound fails unless each page was fetched, and by one at a time. It returns how often pages were fetched again, and forgets.
func (s *slowSite) checkRound(t *testing.T, round string) (repeats int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fetched) != packageRound {
		t.Errorf("%s: %d of %d pages were fetched", round, len(s.fetched), packageRound)
	}
	if len(s.overlap) > 0 {
		t.Errorf("%s: fetched by two at once: %v", round, s.overlap)
	}
	for _, n := range s.fetched {
		repeats += n - 1
	}
	clear(s.fetched)
	s.overlap = nil
	return repeats
}
