//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector/web"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	politeHosts = 20
	politePages = 16
	politeLimit = 2 * time.Minute

	// politeTick is how exactly a gap is known: both of its ends are cut to the millisecond.
	politeTick = time.Millisecond
)

// politeHost is a host of TestPoliteness and what it may be asked.
type politeHost struct {
	addr string

	// rule is the delay of the queue's rule, asked what the host's robots.txt asks for; 0: nothing.
	rule, asked time.Duration
}

// allowed is the least time between two requests.
func (h politeHost) allowed() time.Duration { return max(h.rule, h.asked) }

// TestPoliteness crawls 20 hosts with three collectors, of which one is killed, and looks at the web server's log: no
// two requests to a host begin sooner after one another than the queue's rule and the host's robots.txt allow. On a
// machine that is busy a web server may notice a request late and the next one at once, so that its log shows less than
// there was; by so much as it noticed the earlier one late after it was sent, the gap may be shorter.
func TestPoliteness(t *testing.T) {
	t.Parallel()
	hosts, served := politeWeb(t)
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c := dial(t, d.addr)
	spec := &pb.SourceSpec{
		Id: "e2e.polite", LeaseDuration: durationpb.New(2 * time.Second), Follow: &pb.Follow{AllowHosts: []string{"*"}},
	}
	for _, h := range hosts {
		c.setRule(t, h.addr, h.rule, 1)
		spec.Seeds = append(spec.Seeds, &pb.Seed{Url: "http://" + h.addr + "/"})
	}
	c.createSource(t, spec)
	began, out := time.Now(), t.TempDir()
	var collectors []*process
	for i := range 3 {
		id := fmt.Sprintf("polite-%d", i)
		collectors = append(collectors, launch(t, id, programs.path("waggle"), "collect", "--server", d.addr, "--id", id,
			"--user-agent", id, "--slots", "16", "--allow-private", "--out", out))
	}
	until(t, politeLimit, "a third of the pages were asked for", func() bool { return served.count(t) >= politeHosts*politePages/3 })
	collectors[0].kill()
	until(t, politeLimit, "the crawl is over", func() bool {
		tasks := c.stats(t).GetTasks()
		return tasks.GetScheduled()+tasks.GetReady()+tasks.GetLeased() == 0 && tasks.GetDone() > 0
	})
	t.Logf("%d requests in %v", served.count(t), time.Since(began).Round(time.Millisecond))
	for _, p := range collectors[1:] {
		p.stop(10 * time.Second)
	}
	checkPolite(t, hosts, served, politeSent(t, out))
}

// politeWeb serves hosts, each on an address of its own, which ask for different delays.
func politeWeb(t *testing.T) ([]politeHost, *nginx) {
	t.Helper()
	plain, slow := politeFiles(t, ""), politeFiles(t, "User-agent: *\nCrawl-delay: 0.4\n")
	port := freePort(t)
	var hosts []politeHost
	var served []virtualHost
	for i := range politeHosts {
		h := politeHost{addr: fmt.Sprintf("127.0.1.%d:%s", i+1, port)}
		root := plain
		switch i % 4 {
		case 0:
			h.rule = 50 * time.Millisecond
		case 1:
			h.rule = 200 * time.Millisecond
		case 2:
			h.rule = 350 * time.Millisecond
		case 3:
			h.rule, h.asked, root = 100*time.Millisecond, 400*time.Millisecond, slow
		}
		hosts = append(hosts, h)
		served = append(served, virtualHost{listen: h.addr, root: root})
	}
	return hosts, serveNginx(t, served...)
}

// politeFiles makes a site of pages that the first one links to.
func politeFiles(t *testing.T, robots string) string {
	t.Helper()
	root := t.TempDir()
	index := "<title>index</title>\n"
	for i := range politePages {
		index += fmt.Sprintf("<a href='/%d.html'>%d</a>\n", i, i)
		politeWrite(t, root, fmt.Sprintf("%d.html", i), "<a href='/'>up</a>\n")
	}
	politeWrite(t, root, "index.html", index)
	politeWrite(t, root, "robots.txt", robots)
	return root
}

func politeWrite(t *testing.T, root, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// politeSent is when the collectors began to ask for each page, by their clocks, which are the web server's.
func politeSent(t *testing.T, out string) map[string]time.Time {
	t.Helper()
	lists, err := filepath.Glob(filepath.Join(out, "pages-*.jsonl"))
	if err != nil || len(lists) != 3 {
		t.Fatalf("lists of pages: %v, %v; want one of each collector", lists, err)
	}
	sent := map[string]time.Time{}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			var page web.Page
			if err := json.Unmarshal(lines.Bytes(), &page); err != nil {
				t.Fatalf("%s: %v", list, err)
			}
			sent[page.URL] = page.FetchTime
		}
	}
	return sent
}

// politeGap is the time between two requests to a host.
type politeGap struct {
	gap  time.Duration // as the web server saw it
	late time.Duration // how much later than it was sent the server noticed the first of the two
}

// checkPolite holds the gaps in the web server's log against what was allowed. A robots.txt is no page, and counts as the
// dispatcher counts it: not at all.
func checkPolite(t *testing.T, hosts []politeHost, served *nginx, sent map[string]time.Time) {
	t.Helper()
	byHost := map[string][]access{}
	for _, a := range served.accesses(t, 0) {
		if a.target != "/robots.txt" {
			byHost[a.host] = append(byHost[a.host], a)
		}
	}
	smallest := map[politeHost]politeGap{} // by kind of host
	gaps, late := 0, 0
	for _, h := range hosts {
		list := byHost[h.addr]
		if len(list) < politePages+1 {
			t.Errorf("%s was asked for %d pages, and has %d", h.addr, len(list), politePages+1)
		}
		slices.SortFunc(list, func(a, b access) int { return a.began.Compare(b.began) })
		kind := politeHost{rule: h.rule, asked: h.asked}
		for i := 1; i < len(list); i++ {
			g := gapBetween(list[i-1], list[i], sent)
			gaps++
			if g.gap < h.allowed()-politeTick {
				late++
			}
			if g.gap+g.late < h.allowed()-politeTick {
				t.Errorf("%s: %s by %s began %v after %s by %s, which the server noticed %v late; allowed is %v",
					h.addr, list[i].target, list[i].agent, g.gap, list[i-1].target, list[i-1].agent, g.late, h.allowed())
			}
			if least, is := smallest[kind]; !is || g.gap < least.gap {
				smallest[kind] = g
			}
		}
	}
	for kind, g := range smallest {
		t.Logf("rule %v, Crawl-delay %v: smallest gap %v, known to %v; its first request was noticed %v after it was sent",
			kind.rule, kind.asked, g.gap, politeTick, g.late)
	}
	t.Logf("%d gaps; %d look shorter than allowed since the server noticed a request late", gaps, late)
}

// gapBetween is the gap between two requests that follow each other.
func gapBetween(first, second access, sent map[string]time.Time) politeGap {
	g := politeGap{gap: second.began.Sub(first.began)}
	if at, is := sent[first.url()]; is { // of a collector that was killed it may not be known
		g.late = max(first.began.Sub(at), 0).Round(time.Millisecond)
	}
	return g
}
