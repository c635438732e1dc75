//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	rateSlots  = 64
	rateLimit  = 2 * time.Minute
	rateCopies = 16  // of the documentation, when it is measured; else one
	ratePages  = 250 // at least so many pages make a copy the real thing
)

// rate is how fast a crawler was in one round, by the web server's log.
type rate struct {
	pages int
	took  time.Duration // from the begin of the first request to the end of the last
	cpu   time.Duration // of the crawler's process, user and system
	other string        // what else it cost
}

func (r rate) perSecond() float64 { return float64(r.pages) / r.took.Seconds() }

func (r rate) cpuPerPage() time.Duration { return r.cpu / time.Duration(r.pages) }

// TestCrawlRate crawls PostgreSQL's documentation, served by nginx on this machine, by turns with `wget --recursive`, with
// a plain Go loop around net/http and the same parser, and with one collector of a dispatcher on each store, and prints pages
// a second, processor time, and ratios. No time is asserted: that all of them fetch the site is.
func TestCrawlRate(t *testing.T) {
	pkg := sitesPackages["postgresql.docs.example"]
	addr := "127.0.0.1:" + freePort(t)
	rounds, copies := rateRoundsWanted(t)
	web := serveNginx(t, virtualHost{listen: addr, root: rateSite(t, debianPackage(t, pkg.name, pkg.within), copies)})
	w := &rateWorld{web: web, addr: addr, redis: redistest.Start(t)}
	crawlers := []struct {
		name  string
		crawl func(*testing.T, int) rate
	}{
		{"wget --recursive", w.wget},
		{"plain Go loop", w.plain},
		{"waggle, memory", w.collectMemory},
		{"waggle, Redis", w.collectRedis},
	}
	rates := make([][]rate, len(crawlers))
	for round := range rounds {
		for i, c := range crawlers {
			r := c.crawl(t, round)
			t.Logf("round %d: %-16s %5d requests in %8v: %6.0f a second, %4v of processor each%s", round+1, c.name, r.pages,
				r.took.Round(time.Millisecond), r.perSecond(), r.cpuPerPage().Round(time.Microsecond), r.other)
			if r.pages < ratePages*copies {
				t.Errorf("%s asked for %d pages; the site has more than %d", c.name, r.pages, ratePages*copies)
			}
			rates[i] = append(rates[i], r)
		}
	}
	plain := median(rates[1], rate.perSecond)
	for i, c := range crawlers {
		t.Logf("median: %-16s %6.0f requests a second, %.2f of the plain Go loop; %4.0f µs of processor each, %.2f of its", c.name,
			median(rates[i], rate.perSecond), median(rates[i], rate.perSecond)/plain, median(rates[i], cpuMicros),
			median(rates[i], cpuMicros)/median(rates[1], cpuMicros))
	}
}

// rateSite is a site that has a directory some times, so that starting a process counts for little.
func rateSite(t *testing.T, dir string, copies int) string {
	t.Helper()
	root, index := t.TempDir(), "<title>copies</title>\n"
	for i := range copies {
		name := fmt.Sprintf("copy-%d", i)
		if err := os.Symlink(dir, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
		index += fmt.Sprintf("<a href='/%s/index.html'>%s</a>\n", name, name)
	}
	if err := os.WriteFile(filepath.Join(root, "index.html"), []byte(index), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

func cpuMicros(r rate) float64 { return float64(r.cpuPerPage()) / float64(time.Microsecond) }

// rateRoundsWanted is how often each crawler has its turn, and how large the site is: WAGGLE_E2E_ROUNDS, else once.
func rateRoundsWanted(t *testing.T) (rounds, copies int) {
	t.Helper()
	text := os.Getenv("WAGGLE_E2E_ROUNDS")
	if text == "" {
		return 1, 1
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("WAGGLE_E2E_ROUNDS: %q: want a number of at least 1", text)
	}
	return rounds, rateCopies
}

// median of what f tells of the rounds.
func median(rates []rate, f func(rate) float64) float64 {
	values := make([]float64, len(rates))
	for i, r := range rates {
		values[i] = f(r)
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// rateWorld is what the crawlers have in common.
type rateWorld struct {
	web   *nginx
	addr  string
	redis *redistest.Server
}

// measured is what was asked of the web server since the mark.
func (w *rateWorld) measured(t *testing.T, mark int) rate {
	t.Helper()
	accesses := w.web.accesses(t, mark)
	if len(accesses) == 0 {
		t.Fatal("nothing was asked for")
	}
	began, end := accesses[0].began, accesses[0].end
	for _, a := range accesses {
		if a.status != 200 && a.status != 404 {
			t.Errorf("%s was answered %d", a.target, a.status)
		}
		if a.began.Before(began) {
			began = a.began
		}
		if a.end.After(end) {
			end = a.end
		}
	}
	return rate{pages: len(accesses), took: max(end.Sub(began), time.Millisecond)}
}

func (w *rateWorld) wget(t *testing.T, _ int) rate {
	return w.run(t, exec.CommandContext(t.Context(), "wget", "--recursive", "--level=inf", "--quiet", "--tries=1",
		"--directory-prefix="+t.TempDir(), "http://"+w.addr+"/"))
}

func (w *rateWorld) plain(t *testing.T, _ int) rate {
	return w.run(t, exec.CommandContext(t.Context(), programs.path("plaincrawl"), "--workers", fmt.Sprint(rateSlots), "--start", "http://"+w.addr+"/"))
}

// run runs a crawler to its end. (Code 8 of wget says that something was not found.)
func (w *rateWorld) run(t *testing.T, cmd *exec.Cmd) rate {
	t.Helper()
	mark := w.web.count(t)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 8) {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out[max(0, len(out)-logTail):])
	}
	r := w.measured(t, mark)
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r
}

// collectMemory is collect with the store that a dispatcher has when it is told of none.
func (w *rateWorld) collectMemory(t *testing.T, _ int) rate { return w.collect(t, "memory", "rate") }

// collectRedis is collect with keys of the round's own in Redis.
func (w *rateWorld) collectRedis(t *testing.T, round int) rate {
	redis := w.redisCPU(t)
	r := w.collect(t, w.redis.URL(), fmt.Sprintf("rate-%d", round))
	r.other += fmt.Sprintf(", of Redis's %v", ((w.redisCPU(t) - redis) / time.Duration(r.pages)).Round(time.Microsecond))
	return r
}

// collect crawls with one collector, from a dispatcher of its own.
func (w *rateWorld) collect(t *testing.T, store, prefix string) rate {
	mark := w.web.count(t)
	d := serve(t, "dispatcher", store, prefix)
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 4*rateSlots)
	collector := launch(t, "collector", programs.path("waggle"), "collect", "--server", d.addr, "--id", "rate", "--slots", fmt.Sprint(rateSlots), "--allow-private")
	collector.line("takes tasks", startLimit)
	c.createSource(t, &pb.SourceSpec{Id: "rate", Seeds: []*pb.Seed{{Url: "http://" + w.addr + "/"}}, Follow: &pb.Follow{}, Retry: &pb.RetryPolicy{MaxAttempts: proto.Int32(1)}})
	looks := 0
	until(t, rateLimit, "the crawl is over", func() bool {
		if looks++; looks%20 != 0 {
			return false // to look costs processor time, and when it was over the log tells
		}
		tasks := c.stats(t).GetTasks()
		return tasks.GetScheduled()+tasks.GetReady()+tasks.GetLeased() == 0 && tasks.GetDone() > 0
	})
	collector.stop(20 * time.Second)
	d.stop(drainLimit)
	r := w.measured(t, mark)
	state := d.cmd.ProcessState
	r.cpu = collector.cmd.ProcessState.UserTime() + collector.cmd.ProcessState.SystemTime()
	r.other = fmt.Sprintf("; of the dispatcher's %v", ((state.UserTime() + state.SystemTime()) / time.Duration(r.pages)).Round(time.Microsecond))
	return r
}

// redisCPU is how much processor time Redis has used.
func (w *rateWorld) redisCPU(t *testing.T) time.Duration {
	t.Helper()
	var sum float64
	for line := range strings.Lines(redisCLI(t, w.redis, "INFO", "cpu")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user" && name != "used_cpu_sys" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second))
}
