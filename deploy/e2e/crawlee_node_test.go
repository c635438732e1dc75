//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
)

// crawleeNode is the package for Crawlee, seen from this package.
const crawleeNode = repository + "/collector/crawlee/node"

// crawleeEnd is how long a process of Crawlee may take to end, after its crawl: it waits for timers and connections of its own.
const crawleeEnd = 40 * time.Second

// packCrawlee packs the packages for TypeScript and for Crawlee into a new folder.
func packCrawlee(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	shell(t, repository, "make --silent crawlee-node && for package in collector/typescript collector/crawlee/node; do"+
		" (cd $package && npm pack --silent --pack-destination "+dir+"); done")
	return dir
}

// crawleeFolder installs the package for Crawlee with a version of Crawlee in a new folder, which has the programs of crawleenode.
func crawleeFolder(t *testing.T, version string) string {
	t.Helper()
	dir := packCrawlee(t)
	shell(t, dir, "npm install --no-audit --no-fund --prefer-offline ./waggle-collector-0.1.0.tgz ./waggle-crawlee-0.1.0.tgz @crawlee/cheerio@"+version+
		" @crawlee/core@"+version)
	shell(t, repository, "cp deploy/e2e/crawleenode/*.mjs "+dir)
	return dir
}

// nodeIn is a command that runs a program in a folder, with variables in its environment.
func nodeIn(dir string, args []string, variables ...string) *exec.Cmd {
	cmd := exec.Command("node", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), variables...)
	return cmd
}

// TestCrawleeNode crawls a shop by Crawlee for Node, and lets its crawlers meet trouble.
func TestCrawleeNode(t *testing.T) {
	t.Parallel()
	dir := crawleeFolder(t, "3.18.1")
	t.Run("shop", func(t *testing.T) {
		t.Parallel()
		crawlShop(t, spider{name: "crawlee", drops: true, command: func() *exec.Cmd { return nodeIn(dir, []string{"shop.mjs"}) }})
	})
	t.Run("odd", func(t *testing.T) {
		t.Parallel()
		crawlOdd(t, dir)
	})
}

// TestCrawleeNode_Versions does the same with the versions of Crawlee that WAGGLE_E2E_CRAWLEE_VERSIONS names, as 3.18.0,3.18.1.
func TestCrawleeNode_Versions(t *testing.T) {
	for version := range strings.FieldsFuncSeq(os.Getenv("WAGGLE_E2E_CRAWLEE_VERSIONS"), func(r rune) bool { return r == ',' }) {
		t.Run(version, func(t *testing.T) {
			dir := crawleeFolder(t, version)
			crawlShop(t, spider{name: "crawlee", drops: true, command: func() *exec.Cmd { return nodeIn(dir, []string{"shop.mjs"}) }})
			crawlOdd(t, dir)
		})
	}
}

// TestCrawleeNode_Browser crawls a shop by PlaywrightCrawler with the browser that WAGGLE_E2E_CHROMIUM names, as /usr/bin/chromium.
func TestCrawleeNode_Browser(t *testing.T) {
	if browser := os.Getenv("WAGGLE_E2E_CHROMIUM"); browser != "" {
		dir := crawleeFolder(t, "3.18.1")
		shell(t, dir, "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --no-audit --no-fund --prefer-offline @crawlee/playwright@3.18.1 playwright")
		crawlShop(t, spider{name: "browser", drops: true, command: func() *exec.Cmd {
			return nodeIn(dir, []string{"browser.mjs"}, "CHROMIUM="+browser)
		}})
	}
}

// oddSite answers as its paths say, and notes who asks for what.
type oddSite struct {
	*httptest.Server
	mu    sync.Mutex // guards asked
	asked map[string][]time.Time
}

func newOddSite(t *testing.T) *oddSite {
	t.Helper()
	s := &oddSite{asked: map[string][]time.Time{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *oddSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path] = append(s.asked[r.URL.Path], time.Now())
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html")
	var status int
	switch _, err := fmt.Sscanf(r.URL.Path, "/status/%d", &status); {
	case err == nil:
		http.Error(w, "as you wish", status)
	case r.URL.Path == "/robots.txt":
		fmt.Fprint(w, "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n")
	case r.URL.Path == "/busy":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case r.URL.Path == "/pdf":
		w.Header().Set("Content-Type", "application/pdf")
	case r.URL.Path == "/slow":
		<-r.Context().Done()
	case r.URL.Path == "/cut":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	case r.URL.Path == "/echo":
		w.Header().Set("Content-Type", "text/plain")
		body := make([]byte, 10)
		n, _ := r.Body.Read(body)
		fmt.Fprintf(w, "%s %x %s", r.Method, body[:n], r.Header.Get("X-Mine"))
	default:
		fmt.Fprint(w, "<h1>a page</h1>")
	}
}

func (s *oddSite) times(path string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.asked[path]...)
}

// crawlOdd runs each case of odd.mjs with a source of its own, all at one dispatcher.
func crawlOdd(t *testing.T, dir string) {
	t.Helper()
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c := dial(t, d.addr)
	rule := &pb.QueueRule{Pattern: "*", MinDelay: durationpb.New(0), MaxInFlight: new(int32(4)), MaxBlock: durationpb.New(time.Second)}
	if _, err := c.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{Rule: rule, By: "e2e"}); err != nil {
		t.Fatal(err)
	}
	once := &pb.RetryPolicy{MaxAttempts: new(int32(1)), MaxThrottled: new(int32(1)), MinBackoff: durationpb.New(time.Second)}
	run := func(t *testing.T, name string, retry *pb.RetryPolicy) (*oddSite, *process) {
		t.Helper()
		site := newOddSite(t)
		c.createSource(t, &pb.SourceSpec{Id: name, Retry: retry})
		return site, launchCommand(t, name, nodeIn(dir, []string{"odd.mjs", name}, "SERVER="+d.addr, "SOURCE="+name, "SITE="+site.URL))
	}
	ends := func(t *testing.T, p *process, code int, logs ...string) {
		t.Helper()
		if got := p.exit(crawleeEnd); got != code {
			t.Errorf("%s ended with code %d, want %d", p.name, got, code)
		}
		text, _ := p.out.text()
		for _, want := range logs {
			if !strings.Contains(text, want) {
				t.Errorf("%s did not log %q", p.name, want)
			}
		}
	}

	t.Run("page", func(t *testing.T) {
		site, first := run(t, "page", nil)
		ends(t, first, 0, "1 attempts of this process succeeded, 0 failed")
		again := launchCommand(t, "page, again", nodeIn(dir, []string{"odd.mjs", "page"}, "SERVER="+d.addr, "SOURCE=page", "SITE="+site.URL))
		ends(t, again, 0, "nothing to do: all start requests are known already (DONE 1)")
		absent := launchCommand(t, "absent", nodeIn(dir, []string{"odd.mjs", "page"}, "SERVER="+d.addr, "SOURCE=absent", "SITE="+site.URL))
		ends(t, absent, 1, "the source absent does not exist. Create it: waggle source create absent")
	})

	t.Run("failures", func(t *testing.T) {
		site, p := run(t, "failures", once)
		ends(t, p, 0, "answers 429 and asks for a pause of 1 s", "given up: "+site.URL+"/throws", "2 attempts of this process succeeded, 15 failed")
		want := map[string]pb.FailureReason{
			"/status/404": pb.FailureReason_FAILURE_REASON_NOT_FOUND, "/status/410": pb.FailureReason_FAILURE_REASON_GONE,
			"/status/403": pb.FailureReason_FAILURE_REASON_FORBIDDEN, "/status/500": pb.FailureReason_FAILURE_REASON_SERVER_ERROR,
			"/status/503": pb.FailureReason_FAILURE_REASON_SERVER_ERROR, "/status/400": pb.FailureReason_FAILURE_REASON_CLIENT_ERROR,
			"/busy": pb.FailureReason_FAILURE_REASON_THROTTLED, "/pdf": pb.FailureReason_FAILURE_REASON_UNSUPPORTED_CONTENT,
			"/throws": pb.FailureReason_FAILURE_REASON_HANDLER, "/hopeless": pb.FailureReason_FAILURE_REASON_HANDLER,
			"/cut": pb.FailureReason_FAILURE_REASON_CONNECTION_LOST, "/slow": pb.FailureReason_FAILURE_REASON_TIMEOUT,
		}
		for path, reason := range want {
			e := c.wantDead(t, "failures", site.URL+path, reason)
			if path == "/throws" && !strings.HasPrefix(e.GetMessage(), "the handler does not like it ü") {
				t.Errorf("the handler's error came as %q", e.GetMessage())
			}
		}
		c.wantDead(t, "failures", strings.Replace(site.URL, "http:", "https:", 1)+"/tls", pb.FailureReason_FAILURE_REASON_TLS)
		c.wantDead(t, "failures", "http://127.0.0.1:1/", pb.FailureReason_FAILURE_REASON_CONNECT)
		c.wantDead(t, "failures", "http://no-such-host.invalid/", pb.FailureReason_FAILURE_REASON_DNS)
		c.wantDone(t, "failures", 2) // the page, and the status that the crawler takes as one
		for path := range want {
			if n := len(site.times(path)); n != 1 {
				t.Errorf("%s was asked for %d times", path, n)
			}
		}
	})

	t.Run("links", func(t *testing.T) {
		site, p := run(t, "links", once)
		ends(t, p, 0, "userData.deep.parse is a function", "userData.seen is a Map", "a link to example.com is refused", "2 links refused: example.com")
		for _, path := range []string{"/function", "/map"} {
			if e := c.wantDead(t, "links", site.URL+path, pb.FailureReason_FAILURE_REASON_HANDLER); !strings.Contains(e.GetMessage(), "only JSON travels") {
				t.Errorf("%s failed with %q", path, e.GetMessage())
			}
		}
		c.wantDone(t, "links", 2)
	})

	t.Run("travel", func(t *testing.T) {
		site, p := run(t, "travel", once)
		ends(t, p, 0, "bare: true", `traveled: {"url":"`+site.URL+`/echo?b=1&a=2#part","uniqueKey":"mine","label":"echo","crawlDepth":3,`+
			`"userData":{"list":[1,{"two":"zwei"}],"none":null,"label":"echo"},"body":"PUT 00ff0a yes"}`)
		if n := len(site.times("/bare")); n != 0 {
			t.Errorf("a request without navigation was made %d times", n)
		}
	})

	t.Run("basic", func(t *testing.T) {
		site, p := run(t, "basic", once)
		ends(t, p, 0, "answers 429 and asks for a pause of 1 s")
		c.wantDead(t, "basic", site.URL+"/busy", pb.FailureReason_FAILURE_REASON_THROTTLED)
		c.wantDead(t, "basic", site.URL+"/status/404", pb.FailureReason_FAILURE_REASON_NOT_FOUND)
		c.wantDone(t, "basic", 1)
	})

	t.Run("proxy", func(t *testing.T) {
		site, p := run(t, "proxy", once)
		until(t, startLimit, "the page fails", func() bool {
			reply, err := c.tasks.GetTask(t.Context(), &pb.GetTaskRequest{SourceId: "proxy", Url: site.URL + "/page"})
			return err == nil && reply.GetTask().GetLastError().GetReason() == pb.FailureReason_FAILURE_REASON_PROXY
		})
		p.kill()
	})

	t.Run("early", func(t *testing.T) {
		_, p := run(t, "early", once)
		ends(t, p, 0)
		until(t, startLimit, "what it had is given back", func() bool { return c.counts(t, "early").GetLeased() == 0 })
		if n := c.counts(t, "early"); n.GetDone() < 2 || n.GetDead() != 0 {
			t.Errorf("its tasks are %v", n)
		}
	})

	t.Run("forever", func(t *testing.T) {
		site, p := run(t, "forever", once)
		p.line("Starting the crawler", startLimit)
		until(t, startLimit, "it waits for work", func() bool { return c.waits(t, "forever") })
		for i := range 10 {
			path := fmt.Sprintf("/new/%d", i)
			began := time.Now()
			c.submit(t, &pb.SubmitItem{SourceId: "forever", Url: site.URL + path})
			until(t, startLimit, "a new page is asked for", func() bool { return len(site.times(path)) > 0 })
			took := site.times(path)[0].Sub(began)
			t.Logf("a new page was asked for after %v", took)
			if i > 0 && took > 300*time.Millisecond { // the first one loads Crawlee's client too
				t.Errorf("a new page was asked for after %v, want 300ms", took)
			}
		}
		if _, err := c.sources.DeleteSources(t.Context(), &pb.DeleteSourcesRequest{Ids: []string{"forever"}}); err != nil {
			t.Fatal(err)
		}
		ends(t, p, 1, "the source forever was deleted")
	})

	t.Run("stopped", func(t *testing.T) {
		_, p := run(t, "stopped", once)
		until(t, startLimit, "it waits for work", func() bool { return c.waits(t, "stopped") })
		if _, err := c.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{
			Targets: []*pb.HoldTarget{{SourceId: "stopped"}}, By: "ada", Reason: "they called",
		}); err != nil {
			t.Fatal(err)
		}
		c.submit(t, &pb.SubmitItem{SourceId: "stopped", Url: "http://127.0.0.1:1/held"})
		p.line("by ada: they called", startLimit)
		p.signal(syscall.SIGTERM)
		ends(t, p, 0)
		if n := c.counts(t, "stopped"); n.GetReady() != 1 {
			t.Errorf("its tasks are %v", n)
		}
	})

	t.Run("robots", func(t *testing.T) {
		site := newOddSite(t)
		c.createSource(t, &pb.SourceSpec{Id: "robots", Retry: once})
		paths := []string{"/private/1", "/1", "/2", "/3", "/4", "/5", "/6"}
		for _, path := range paths {
			c.submit(t, &pb.SubmitItem{SourceId: "robots", Url: site.URL + path})
		}
		p := launchCommand(t, "robots", nodeIn(dir, []string{"odd.mjs", "robots"}, "SERVER="+d.addr, "SOURCE=robots", "SITE="+site.URL))
		ends(t, p, 0)
		c.wantDead(t, "robots", site.URL+"/private/1", pb.FailureReason_FAILURE_REASON_ROBOTS_DENIED)
		c.wantDone(t, "robots", 6)
		var starts []time.Time
		for _, path := range paths[1:] {
			starts = append(starts, site.times(path)...)
		}
		slices.SortFunc(starts, time.Time.Compare)
		// The first ones are under way before robots.txt is known.
		if gap := starts[5].Sub(starts[4]); gap < 1900*time.Millisecond {
			t.Errorf("the last pages were asked for %v apart, and robots.txt asks for 2s", gap)
		}
		if n := len(site.times("/private/1")); n != 0 {
			t.Errorf("a forbidden page was asked for %d times", n)
		}
	})

	t.Run("route", func(t *testing.T) {
		site, p := run(t, "route", once)
		ends(t, p, 1)
		c.wantDead(t, "route", site.URL+"/page", pb.FailureReason_FAILURE_REASON_HANDLER)
	})

	t.Run("secured", func(t *testing.T) {
		text := "grants:\n- {identity: token:ops, role: admin}\n- {identity: token:*, role: collector}\n" +
			"- {identity: token:crawl, role: producer, sources: [page]}\ntokens:\n"
		folder := t.TempDir()
		for _, name := range []string{"ops", "crawl", "other"} {
			text += fmt.Sprintf("- {name: %s, sha256: %s}\n", name, auth.HashToken("wgl_"+name))
			replace(t, filepath.Join(folder, name), "wgl_"+name)
		}
		d := serve(t, "secured dispatcher", "memory", "", "--auth", replace(t, filepath.Join(folder, "auth.yaml"), text))
		ops := dialAs(t, collector.Config{Targets: []string{d.addr}, Token: "wgl_ops"})
		request := &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "page"}}
		if _, err := pb.NewSourceServiceClient(ops).CreateSource(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		as := func(token string) *process {
			return launchCommand(t, token, nodeIn(dir, []string{"odd.mjs", "page"}, "SERVER="+d.addr, "SOURCE=page", "SITE="+newOddSite(t).URL,
				"TOKEN_FILE="+filepath.Join(folder, token)))
		}
		ends(t, as("crawl"), 0, "1 attempts of this process succeeded, 0 failed")
		ends(t, as("other"), 1, "PERMISSION_DENIED", "A crawl needs the roles collector and producer")
	})

	t.Run("late", func(t *testing.T) {
		late, store := lastingAddr(t), "file:"+t.TempDir()
		d := serve(t, "dispatcher that leaves", store, "waggle", "--listen", late)
		dial(t, late).createSource(t, &pb.SourceSpec{Id: "late"})
		d.kill()
		p := launchCommand(t, "late", nodeIn(dir, []string{"odd.mjs", "page"}, "SERVER="+late, "SOURCE=late", "SITE="+newOddSite(t).URL))
		p.line("no dispatcher answers at "+late, startLimit)
		refusing, err := net.Listen("tcp", late)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 { // it goes on trying
			conn, err := refusing.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
		if err := refusing.Close(); err != nil {
			t.Fatal(err)
		}
		if text, _ := p.out.text(); strings.Count(text, "\n") > 3 {
			t.Errorf("it logged more than one warning:\n%s", text)
		}
		serve(t, "dispatcher that is back", store, "waggle", "--listen", late)
		ends(t, p, 0, "1 attempts of this process succeeded, 0 failed")
	})
}

// wantDead fails unless a page is DEAD for a reason, and returns its last error.
func (c *client) wantDead(t *testing.T, source, url string, reason pb.FailureReason) *pb.TaskError {
	t.Helper()
	reply, err := c.tasks.GetTask(t.Context(), &pb.GetTaskRequest{SourceId: source, Url: url})
	if err != nil {
		t.Errorf("%s: %v", url, err)
		return nil
	}
	task := reply.GetTask()
	if task.GetState() != pb.TaskState_TASK_STATE_DEAD || task.GetLastError().GetReason() != reason {
		t.Errorf("%s is %v with %v, want DEAD with %v", url, task.GetState(), task.GetLastError(), reason)
	}
	return task.GetLastError()
}

// counts is how many tasks a source has, by state.
func (c *client) counts(t *testing.T, source string) *pb.TaskCounts {
	t.Helper()
	reply, err := c.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: source})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetSource().GetStatus().GetTasks()
}

// wantDone fails unless so many tasks of a source are DONE.
func (c *client) wantDone(t *testing.T, source string, want int64) {
	t.Helper()
	if n := c.counts(t, source).GetDone(); n != want {
		t.Errorf("%d tasks of %s are DONE, want %d", n, source, want)
	}
}

// waits reports whether a collector waits for tasks of a source.
func (c *client) waits(t *testing.T, source string) bool {
	t.Helper()
	reply, err := c.admin.ListCollectors(t.Context(), &pb.ListCollectorsRequest{PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range reply.GetCollectors() {
		if strings.HasPrefix(one.GetInfo().GetId(), source+"-") {
			return true
		}
	}
	return false
}

// TestCrawleeNode_Readme runs the commands of the package's README in an empty folder: install, source, rule, its program, and both
// examples.
func TestCrawleeNode_Readme(t *testing.T) {
	t.Parallel()
	readme := crawleeNode + "/README.md"
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```js\n(.*?)```").FindStringSubmatch(string(text))
	if program == nil {
		t.Fatal("the README has no program")
	}
	checkDocument(t, readme, nil, documentRun{dir: packCrawlee(t), prepare: []string{"cat > spider.mjs <<'END'\n" + program[1] + "END"}})
}
