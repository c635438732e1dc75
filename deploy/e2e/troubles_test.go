//go:build e2e

package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// troubleLimit is how long a trouble may take until it has its finding and its alert, and how long they may last after its end.
const troubleLimit = 2 * time.Minute

// trouble is what can go wrong, staged by real means. Its begin returns what ends it.
type trouble struct {
	name string
	// finding is the kind that `waggle status` shows, and of is a name that it has, or a part of its text. Empty: none, since nobody
	// can be asked, or the owner does not know of it.
	finding, of string
	alert       string
	also        []string // alerts that follow from it
	begin       func(t *testing.T, s *stage) (end func())
	at          string // the job of the dispatcher whose status is asked for; empty: waggle
}

// is reports whether a finding is that of the trouble.
func (one *trouble) is(f foundThing) bool {
	return f.Kind == one.finding && (one.of == "" || slices.Contains(f.Names, one.of) || strings.Contains(f.Text, one.of))
}

// troubles are staged batch by batch; those of a batch, which do not disturb each other, at the same time. What takes days is tested in
// virtual time: a hold that was forgotten (WaggleHoldForgotten), by promtool.
func troubles(long bool) [][]trouble {
	crawl := []trouble{
		{"a source fails", "FAILING", "failing", "WaggleSourcesFailing", nil, stageFailing, ""},
		{"a source has moved", "MOVED", "moved", "WaggleSourcesMoved", nil, stageMoved, ""},
		{"a source is stuck", "STUCK", "stuck", "WaggleSourcesStuck", nil, stageStuck, ""},
		{"tasks are dead", "DEAD", "dead", "WaggleTasksDead", nil, stageDead, ""},
		{"a pool has no collector", "NO_COLLECTOR", "nobody", "WagglePoolUnserved", nil, stageUnserved, ""},
		{"a proxy is dead", "COLLECTOR", "proxy-1", "WaggleCollectorUseless", nil, stageProxy, ""},
	}
	if !long {
		return [][]trouble{crawl}
	}
	crawl = append(crawl, []trouble{
		{"a source fails again and again", "BACKED_OFF", "backed-off", "WaggleSourcesBackedOff", nil, stageBackedOff, ""},
		{"a source has never succeeded", "NEVER", "never", "WaggleSourcesNever", nil, stageNever, ""},
		{"a source is late", "LATE", "late", "WaggleSourcesLate", nil, stageLate, ""},
		{"the articles of a feed answer 403", "PAGES_FAIL", "forbidden", "WagglePagesFail", nil, stageForbidden, ""},
		{"a host is down", "BLOCKED", "", "WaggleHostsBlocked", nil, stageHostDown, ""},
		{"a feed is empty", "EMPTY", "empty", "WaggleSourcesEmpty", nil, stageEmpty, ""},
		{"a feed is quiet", "QUIET", "quiet", "WaggleSourcesQuiet", nil, stageQuiet, ""},
		{"a task is released again and again", "RELEASED", "", "WaggleTaskReleased", nil, stageReleased, ""},
		{"a collector is killed", "GONE", "killed-1", "WaggleCollectorsGone", nil, stageKilled, ""},
		{"a collector is frozen", "HUNG", "frozen-1", "WaggleCollectorHung", nil, stageFrozen, ""},
		{"a handler overstays", "HANDLER", "", "WaggleHandlerSlow", nil, stageHandler, ""},
		{"a collector is deaf", "DEAF", "deaf-1", "WaggleCollectorDeaf", nil, stageDeaf, ""},
		{"all fetches of a collector fail", "FETCHES_FAIL", "refused-1", "WaggleCollectorFails", nil, stageRefused, ""},
		{"a certificate ends", "CERTIFICATE", "", "WaggleCertificateEnds", nil, stageCertificate, jobTLS},
	}...)
	batches := [][]trouble{crawl}
	for _, store := range []trouble{
		{"Redis is full", "STORE", "full", "WaggleStoreFull", nil, stageFull, ""},
		{"Redis is nearly full", "ROOM", "", "WaggleStoreRoom", nil, stageNearlyFull, ""},
		{"the clock makes a step", "CLOCK", "", "WaggleClockStep", nil, stageClock, ""},
		{"Redis is away", "STORE", "does not answer", "WaggleStoreAway", nil, stageAway, ""},
		{"no standby", "STORE", "no standby", "WaggleNoStandby", nil, stageNoStandby, ""},
		{"a dispatcher is down", "", "", "WaggleDispatcherDown", []string{"WaggleNoStandby"}, stageDown, ""},
		{"the owner is lost, and nobody is left", "", "", "WaggleOwnerless", []string{"WaggleDispatcherDown"}, stageOwnerless, ""},
	} {
		batches = append(batches, []trouble{store})
	}
	if os.Getuid() != 0 { // who may mount a small disk
		return batches
	}
	return append(batches, []trouble{{"the disk is full", "STORE", "full", "WaggleStoreFull", []string{"WaggleStoreRoom", "WagglePoolUnserved"}, stageDisk, jobDisk}})
}

// The jobs of dispatchers beside waggle: one serves TLS, and one has a small disk.
const (
	jobTLS  = "waggle-tls"
	jobDisk = "waggle-disk"
)

// TestTroubles lets a Prometheus scrape two dispatchers and three collectors, and stages what can go wrong. Each trouble has its finding
// and its alert within two minutes, both end with it, no other alert fires, and while all is well none does. `make troubles` stages all
// whose name matches, or stages none and lets all be well for longer.
func TestTroubles(t *testing.T) {
	only := os.Getenv("WAGGLE_E2E_TROUBLES")
	if only == "" {
		t.Parallel()
	}
	name, err := regexp.Compile(only)
	if err != nil {
		t.Fatal(err)
	}
	well := os.Getenv("WAGGLE_E2E_HEALTHY")
	lasts, err := time.ParseDuration(cmp.Or(well, "15s"))
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t, only != "" && os.Getuid() == 0)
	s.healthy(t, lasts)
	for _, batch := range troubles(only != "") {
		batch = slices.DeleteFunc(batch, func(one trouble) bool { return !name.MatchString(one.name) })
		if well == "" && len(batch) > 0 {
			s.run(t, batch)
		}
	}
	s.panels(t)
}

// stage is a running system.
type stage struct {
	redis       *redistest.Server
	grpc, http  [2]string // of the dispatchers
	dispatchers [2]*dispatcher
	*client     // of both dispatchers
	site        *hostSite
	prom        *promServer
	targets     int
	made        []string            // sources of the troubles of now
	asked       map[string][]string // how status is asked of the dispatchers of a job
	pki, disk   string              // directories of certificates and of the small disk
}

func newStage(t *testing.T, disk bool) *stage {
	t.Helper()
	s := &stage{redis: redistest.Start(t, redistest.WithAOF(redistest.FsyncAlways), redistest.WithClock()), site: newHostSite(t)}
	for i := range s.dispatchers {
		s.grpc[i], s.http[i] = lastingAddr(t), lastingAddr(t)
		s.serve(t, i)
	}
	s.client = dial(t, s.grpc[0])
	s.setRule(t, "*", 20*time.Millisecond, 8)
	targets := []scraped{{job: "waggle", addr: s.http[0]}, {job: "waggle", addr: s.http[1]}}
	for i := range 3 {
		addr := freeAddr(t)
		s.collect(t, fmt.Sprintf("well-%d", i+1), "default", "--http", addr)
		targets = append(targets, scraped{job: "waggle-collectors", addr: addr})
	}
	s.asked = map[string][]string{"": {"--server", s.grpc[0] + "," + s.grpc[1]}}
	targets = append(targets, s.serveTLS(t))
	if disk {
		targets = append(targets, s.serveDisk(t))
	}
	s.targets = len(targets)
	var feeds []string
	for _, host := range []int{2, 101, 102, 103, 104, 105, 106, 107, 108, 109} {
		s.site.set(host, newFeed())
		feeds = append(feeds, s.site.url(host, "/feed"))
	}
	s.source(t, &pb.SourceSpec{Id: "well", Seeds: seeds(feeds...), Schedule: every(time.Minute)})
	s.made = nil
	s.succeeded(t, "well")
	s.goodPages(t, "well", 2)
	s.prom = startPrometheus(t, targets)
	return s
}

// serve starts a dispatcher at its addresses.
func (s *stage) serve(t *testing.T, i int, args ...string) {
	t.Helper()
	s.dispatchers[i] = serve(t, fmt.Sprintf("dispatcher-%d", i+1), s.redis.URL(), "waggle", append([]string{"--listen", s.grpc[i], "--http", s.http[i]}, args...)...)
}

// run runs the waggle command.
func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), programs.path("waggle"), args...).CombinedOutput(); err != nil {
		t.Fatalf("waggle %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// serveTLS starts a dispatcher with a certificate.
func (s *stage) serveTLS(t *testing.T) scraped {
	t.Helper()
	s.pki = filepath.Join(t.TempDir(), "pki")
	at := func(name string) string { return filepath.Join(s.pki, name) }
	run(t, "cert", "ca", s.pki)
	run(t, "cert", "server", s.pki, "127.0.0.1")
	d := serve(t, "dispatcher with TLS", "memory", "", "--tls-cert", at("server.pem"), "--tls-key", at("server-key.pem"))
	s.asked[jobTLS] = []string{"--server", d.addr, "--tls-ca", at("ca.pem")}
	return scraped{jobTLS, d.http, at("ca.pem")}
}

// serveDisk starts a dispatcher on a directory with a small disk of its own.
func (s *stage) serveDisk(t *testing.T) scraped {
	t.Helper()
	s.disk = t.TempDir()
	if err := syscall.Mount("tmpfs", s.disk, "tmpfs", 0, "size=400m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(s.disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := serve(t, "dispatcher on a disk", "file:"+filepath.Join(s.disk, "store"), "")
	s.asked[jobDisk] = []string{"--server", d.addr}
	return scraped{job: jobDisk, addr: d.http}
}

// owner is which of the dispatchers owns the store.
func (s *stage) owner(t *testing.T) (i int) {
	t.Helper()
	until(t, startLimit, "a dispatcher owns the store", func() bool {
		for i = range s.http {
			for _, sample := range s.prom.query(t, `waggle_owner == 1 and on (instance) up{instance="`+s.http[i]+`"} == 1`) {
				if sample.Metric["instance"] == s.http[i] {
					return true
				}
			}
		}
		return false
	})
	return i
}

func (s *stage) collect(t *testing.T, id, pool string, args ...string) *process {
	t.Helper()
	return launch(t, id, programs.path("waggle"), append([]string{
		"collect", "--server", s.grpc[0] + "," + s.grpc[1], "--id", id, "--pools", pool, "--allow-private", "--fetch-timeout", "10m", "--log-format", "json",
	}, args...)...)
}

func every(d time.Duration) *pb.Schedule {
	return &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(d)}}
}

func seeds(urls ...string) (out []*pb.Seed) {
	for _, url := range urls {
		out = append(out, &pb.Seed{Url: url})
	}
	return out
}

// source makes a source, whose failures do not use its budget up unless it has another one. It is deleted when its trouble is over.
func (s *stage) source(t *testing.T, spec *pb.SourceSpec) {
	t.Helper()
	if spec.GetRetry() == nil {
		many := int32(1000)
		spec.Retry = &pb.RetryPolicy{MaxThrottled: &many}
	}
	s.createSource(t, spec)
	s.made = append(s.made, spec.GetId())
}

// pages submits pages of hosts.
func (s *stage) pages(t *testing.T, source string, urls ...string) []string {
	t.Helper()
	var items []*pb.SubmitItem
	for _, url := range urls {
		items = append(items, &pb.SubmitItem{SourceId: source, Url: url})
	}
	return s.submit(t, items...)
}

// succeeded waits for the first success of a source.
func (s *stage) succeeded(t *testing.T, source string) {
	t.Helper()
	until(t, startLimit, source+" succeeds", func() bool {
		reply, err := s.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: source})
		return err == nil && reply.GetSource().GetStatus().GetLastSuccessTime() != nil
	})
}

// healthy wants no alert, and no finding, while all is well.
func (s *stage) healthy(t *testing.T, lasts time.Duration) {
	t.Helper()
	until(t, startLimit, "all are scraped", func() bool { return len(s.prom.query(t, "up == 1")) == s.targets })
	began := time.Now()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for ; time.Since(began) < lasts; <-tick.C {
		if found := s.status(t, ""); len(found) > 0 {
			t.Errorf("while all is well there are, after %v, the findings %v", time.Since(began), found)
		}
	}
	if fired := s.prom.alerts(t, time.Since(began)); len(fired) > 0 {
		t.Errorf("while all is well there were the alerts %v", fired)
	}
	t.Logf("all was well for %v", lasts)
}

// foundThing is a finding as `waggle status` shows it.
type foundThing struct {
	Kind  string
	Names []string
	Text  string
}

// status are the findings of `waggle status`, asked of the dispatchers of a job.
func (s *stage) status(t *testing.T, job string) []foundThing {
	t.Helper()
	args := append([]string{"status", "--output", "json"}, s.asked[job]...)
	out, err := exec.CommandContext(t.Context(), programs.path("waggle"), args...).Output()
	var answer struct{ Findings []foundThing }
	if e := json.Unmarshal(out, &answer); e != nil {
		t.Logf("waggle status: %v: %v: %s", err, e, out)
	}
	return answer.Findings
}

// run stages troubles at the same time.
func (s *stage) run(t *testing.T, batch []trouble) {
	t.Helper()
	began := time.Now()
	wanted := map[string]bool{}
	var ends []func()
	for _, one := range batch {
		for _, alert := range append(one.also, one.alert) {
			wanted[alert] = true
		}
		ends = append(ends, one.begin(t, s))
	}
	found, fired := make([]time.Duration, len(batch)), make([]time.Duration, len(batch))
	staged := time.Now()
	missing := func() (out []string) {
		things, alerts := map[string][]foundThing{}, s.prom.alerts(t, 0)
		for i, one := range batch {
			if _, asked := things[one.at]; !asked && one.finding != "" {
				things[one.at] = s.status(t, one.at)
			}
			if found[i] == 0 && (one.finding == "" || slices.ContainsFunc(things[one.at], one.is)) {
				found[i] = time.Since(began)
			}
			if fired[i] == 0 && slices.Contains(alerts, one.alert) {
				fired[i] = time.Since(began)
			}
			if found[i] == 0 || fired[i] == 0 {
				out = append(out, fmt.Sprintf("%s (finding %v, alert %v)", one.name, found[i] > 0, fired[i] > 0))
			}
		}
		return out
	}
	var lacks []string
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for lacks = missing(); len(lacks) > 0 && time.Since(staged) < troubleLimit; lacks = missing() {
		<-tick.C
	}
	if len(lacks) > 0 {
		t.Errorf("not within %v: %s", troubleLimit, strings.Join(lacks, "; "))
	}
	for _, end := range ends {
		end()
	}
	ended := time.Now()
	var left []string
	var still []foundThing
	for over := false; !over && time.Since(ended) < troubleLimit; over = len(left)+len(still) == 0 {
		<-tick.C
		left = s.prom.alerts(t, 0)
		still = nil
		for _, one := range batch {
			if one.finding != "" && one.finding != "CLOCK" && len(left) == 0 { // which stays for 10 minutes
				still = append(still, slices.DeleteFunc(s.status(t, one.at), func(f foundThing) bool { return !one.is(f) })...)
			}
		}
	}
	if len(left)+len(still) > 0 {
		t.Errorf("%v after the end there are the alerts %v and the findings %v", troubleLimit, left, still)
	}
	for _, alert := range s.prom.alerts(t, time.Since(began)) {
		if !wanted[alert] {
			t.Errorf("%s fired, which is none of the alerts of %d troubles", alert, len(batch))
		}
	}
	for i, one := range batch {
		t.Logf("%-40s %-22s after %5.1f s, finding %-12s after %5.1f s", one.name, one.alert, fired[i].Seconds(), one.finding, found[i].Seconds())
	}
	t.Logf("all clear %.1f s after their end", time.Since(ended).Seconds())
	if len(s.made) > 0 { // what a later trouble would make late
		command(t, s.grpc[0], append([]string{"source", "delete"}, s.made...)...)
		s.made = nil
	}
}

// panels wants data for each query of each panel of the dashboards.
func (s *stage) panels(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("../grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				queries++
				if !slices.ContainsFunc([]string{"waggle", jobTLS}, func(job string) bool {
					return len(s.prom.query(t, strings.NewReplacer("$__rate_interval", "5m", "$job", job).Replace(target.Expr))) > 0
				}) {
					t.Errorf("%s: %s has no data: %s", filepath.Base(file), panel.Title, target.Expr)
				}
			}
		}
	}
	t.Logf("%d queries of panels have data", queries)
}

// hostSite is a server that is many hosts: 127.0.1.2, 127.0.1.3 and so on. Each does what it is set to.
type hostSite struct {
	port string

	mu    sync.Mutex // guards hosts
	hosts map[string]http.HandlerFunc
}

func newHostSite(t *testing.T) *hostSite {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &hostSite{hosts: map[string]http.HandlerFunc{}}
	server := httptest.NewUnstartedServer(s)
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	_, s.port, _ = net.SplitHostPort(listener.Addr().String())
	return s
}

func (s *hostSite) queue(host int) string { return "127.0.1." + strconv.Itoa(host) + ":" + s.port }

func (s *hostSite) url(host int, path string) string { return "http://" + s.queue(host) + path }

func (s *hostSite) set(host int, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[s.queue(host)] = h
}

// ServeHTTP implements [http.Handler].
func (s *hostSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	h := s.hosts[r.Host]
	s.mu.Unlock()
	if h == nil || r.URL.Path == "/robots.txt" {
		http.NotFound(w, r)
		return
	}
	h(w, r)
}

// newFeed is a host whose feed has another item each second.
func newFeed() http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/feed" {
			page200(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/rss+xml")
		fmt.Fprintf(w, `<rss version="2.0"><channel><title>f</title><item><link>http://%s/item/%d</link></item></channel></rss>`, r.Host, time.Now().Unix())
	}
}

// oldFeed is a host whose feed has always the same item.
func oldFeed(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/feed" {
		page200(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/rss+xml")
	fmt.Fprintf(w, `<rss version="2.0"><channel><title>f</title><item><link>http://%s/item</link></item></channel></rss>`, r.Host)
}

// emptyFeed is a host whose feed has no items.
func emptyFeed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/rss+xml")
	fmt.Fprint(w, `<rss version="2.0"><channel><title>f</title></channel></rss>`)
}

func page200(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, "<title>a page</title>")
}

func answers(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", code) }
}

// hangs answers once the channel is closed.
func hangs(released <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-released:
			page200(w, r)
		case <-r.Context().Done():
		}
	}
}
