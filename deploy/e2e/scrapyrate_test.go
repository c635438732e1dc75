//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// scrapyRatePages is the size of the site that is crawled as fast as it goes: once, or when it is measured.
const scrapyRatePages, scrapyRateMeasured = 200, 2000

// treeSite is a site of pages with ten links each, without anything that makes a crawler wait.
type treeSite struct {
	url string

	mu     sync.Mutex // guards what follows
	starts []time.Time
}

func newTreeSite(t *testing.T, pages int) *treeSite {
	t.Helper()
	s := &treeSite{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/p/"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		s.mu.Lock()
		s.starts = append(s.starts, time.Now())
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, "<h1 class=\"title\">Page %d</h1>\n", page)
		for child := page*10 + 1; child <= page*10+10 && child < pages; child++ {
			fmt.Fprintf(w, "<a href=\"/p/%d\">child</a>\n", child)
		}
		fmt.Fprintf(w, "<a href=\"/p/%d\">next</a>%s\n", min(page+1, pages-1), strings.Repeat("<p>Text of a page.</p>\n", 200))
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// times are those of the requests.
func (s *treeSite) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.starts)
}

// perSecond is how fast the site was crawled, from the first request to the last.
func (s *treeSite) perSecond(t *testing.T, pages int) float64 {
	t.Helper()
	times := s.times()
	if len(times) != pages {
		t.Fatalf("%d requests, want one for each of %d pages", len(times), pages)
	}
	return float64(pages) / times[pages-1].Sub(times[0]).Seconds()
}

// TestScrapy_Rate crawls a site with one process of Scrapy by turns by itself and on Waggle, and prints pages a second and their ratio.
// Then it prints how long a new task waits for an idle spider.
func TestScrapy_Rate(t *testing.T) {
	python, dir := scrapyPython(t), t.TempDir()
	rounds, _ := rateRoundsWanted(t)
	pages := scrapyRatePages
	if os.Getenv("WAGGLE_E2E_ROUNDS") != "" {
		pages = scrapyRateMeasured
	}
	start := func(name, server, site string) *process {
		cmd := scrapyCommand(t, python, "-m", "scrapy", "runspider", "-s", "CONCURRENT_REQUESTS_PER_DOMAIN=16",
			"../../collector/scrapy/tests/shop.py")
		cmd.Env = append(cmd.Env, "SERVER="+server, "SOURCE=shop", "START_URL="+site+"/p/0", "OUT="+filepath.Join(dir, name))
		return launchCommand(t, name, cmd)
	}
	// Processor time of the spider alone, which other work on the machine hardly changes.
	cpu := func(p *process) float64 {
		return (p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()).Seconds() * 1000 / float64(pages)
	}
	var plains, waggles []float64
	for round := range rounds {
		site := newTreeSite(t, pages)
		alone := start("plain", "", site.url)
		if code := alone.exit(rateLimit); code != 0 {
			t.Fatalf("the plain spider ended with code %d", code)
		}
		plain := site.perSecond(t, pages)
		site = newTreeSite(t, pages)
		d := serve(t, "dispatcher", "memory", "waggle")
		newScrapySource(t, dial(t, d.addr), site.url)
		together := start("waggle", d.addr, site.url)
		if code := together.exit(rateLimit); code != 0 {
			t.Fatalf("the spider ended with code %d", code)
		}
		waggle := site.perSecond(t, pages)
		plains, waggles = append(plains, plain), append(waggles, waggle)
		t.Logf("round %d: Scrapy %4.0f pages a second, %.1f ms of processor a page; on Waggle %4.0f, %.1f ms: %.2f", round+1,
			plain, cpu(alone), waggle, cpu(together), waggle/plain)
	}
	slices.Sort(plains)
	slices.Sort(waggles)
	t.Logf("medians: Scrapy %.0f, on Waggle %.0f: %.2f", plains[rounds/2], waggles[rounds/2], waggles[rounds/2]/plains[rounds/2])
	measureIdleStart(t, rounds, start)
}

// measureIdleStart prints how long new tasks wait for a spider that has nothing to do. A task that is due later keeps it from ending.
func measureIdleStart(t *testing.T, rounds int, start func(name, server, site string) *process) {
	t.Helper()
	site := newTreeSite(t, 1)
	d := serve(t, "dispatcher", "memory", "waggle")
	c := dial(t, d.addr)
	newScrapySource(t, c, site.url)
	c.submit(t, &pb.SubmitItem{SourceId: "shop", Url: site.url + "/later", DueTime: timestamppb.New(time.Now().Add(time.Hour))})
	p := start("idle", d.addr, site.url)
	until(t, startLimit, "the spider works", func() bool { return len(site.times()) > 0 })
	var waits []time.Duration
	for i := range 5 * rounds {
		until(t, startLimit, "the spider is idle", func() bool { return c.stats(t).GetTasks().GetLeased() == 0 })
		known, began := len(site.times()), time.Now()
		c.submit(t, &pb.SubmitItem{SourceId: "shop", Url: fmt.Sprintf("%s/p/%d", site.url, i+1)})
		until(t, startLimit, "the task is asked for", func() bool { return len(site.times()) > known })
		waits = append(waits, site.times()[known].Sub(began))
	}
	p.stop(startLimit)
	slices.Sort(waits)
	t.Logf("idle: a new task is asked for after %v, median of %d; the longest %v", waits[len(waits)/2].Round(time.Millisecond), len(waits),
		waits[len(waits)-1].Round(time.Millisecond))
}

// newScrapySource makes the source of a site that may be crawled as fast as it goes.
func newScrapySource(t *testing.T, c *client, site string) {
	t.Helper()
	host := strings.TrimPrefix(site, "http://")
	c.setRule(t, host, 0, 16)
	c.createSource(t, &pb.SourceSpec{Id: "shop", Follow: &pb.Follow{AllowHosts: []string{host}}})
}
