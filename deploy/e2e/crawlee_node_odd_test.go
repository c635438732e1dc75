//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
)

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
		ends(t, absent, 1, "the source absent does not exist. Create it: waggle source create absent --server "+d.addr)
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
		ends(t, p, 0, "userData.deep.parse is a function", "userData.seen is a Map", "a link to example.com is refused", "2 links refused: example.com",
			"url has 2055 bytes, and the limit is 2048", "1 links refused: long.example")
		for path, want := range map[string]string{
			"/function": "only JSON can be sent", "/map": "only JSON can be sent",
			"/large":    "the request for " + site.URL + "/never cannot be sent to another process: payload, headers and userData have ",
			"/enormous": "bytes, most of them userData, and the limit is 262144",
		} {
			if e := c.wantDead(t, "links", site.URL+path, pb.FailureReason_FAILURE_REASON_HANDLER); !strings.Contains(e.GetMessage(), want) {
				t.Errorf("%s failed with %q", path, e.GetMessage())
			}
		}
		c.wantDone(t, "links", 4) // two pages, and two of their links
	})

	t.Run("tags", func(t *testing.T) {
		site := newOddSite(t)
		c.createSource(t, &pb.SourceSpec{Id: "tags"})
		payloads := map[string][2]string{ // what is in the payload, and in the error
			"/python": {`{"crawlee-python":1,"method":"POST"}`, `the tag "crawlee-python"`},
			"/older":  {`{"crawlee":1,"method":"POST"}`, `the tag "crawlee"`},
			"/newer":  {`{"crawlee-js":2}`, `version 2 of "crawlee-js"`},
			"/text":   {`a=b`, "no JSON object"},
		}
		for path, texts := range payloads {
			c.submit(t, &pb.SubmitItem{SourceId: "tags", Url: site.URL + path, Payload: []byte(texts[0])})
		}
		ends(t, launchCommand(t, "tags", nodeIn(dir, []string{"odd.mjs", "page"}, "SERVER="+d.addr, "SOURCE=tags", "SITE="+site.URL)), 0)
		for path, texts := range payloads {
			if e := c.wantDead(t, "tags", site.URL+path, pb.FailureReason_FAILURE_REASON_BAD_REQUEST); !strings.Contains(e.GetMessage(), texts[1]) {
				t.Errorf("%s failed with %q", path, e.GetMessage())
			}
			if n := len(site.times(path)); n != 0 {
				t.Errorf("%s was asked for %d times", path, n)
			}
		}
	})

	t.Run("missing", func(t *testing.T) {
		_, p := run(t, "missing", once)
		ends(t, p, 0, "Hookless has no optionsShape", "Crawl-delay of robots.txt is not kept: Cacheless has no robotsTxtFileCache",
			"too large: true, away: false")
	})

	t.Run("thrown", func(t *testing.T) { // the budget of the source allows more attempts
		site, p := run(t, "thrown", nil)
		ends(t, p, 0, "maxRequestRetries 2 has no effect: Waggle makes 4 attempts", "waggle source update thrown --max-attempts 3")
		if e := c.wantDead(t, "thrown", site.URL+"/status/404", pb.FailureReason_FAILURE_REASON_NOT_FOUND); e.GetMessage() != "status 404" {
			t.Errorf("it failed with %q", e.GetMessage())
		}
		c.wantDead(t, "thrown", site.URL+"/status/400", pb.FailureReason_FAILURE_REASON_CLIENT_ERROR)
		if n := len(site.times("/status/404")); n != 1 {
			t.Errorf("a page that is not there was asked for %d times", n)
		}
	})

	t.Run("waiting", func(t *testing.T) { // for the next attempt, which is due in an hour
		policy := &pb.RetryPolicy{MinBackoff: durationpb.New(time.Hour), MaxBackoff: durationpb.New(time.Hour)}
		site, p := run(t, "waiting", policy)
		p.line("; the next is due at ", startLimit)
		p.line("waggle task cancel --source waiting --state scheduled --yes", startLimit)
		p.signal(syscall.SIGTERM)
		ends(t, p, 0)
		again := launchCommand(t, "waiting, again", nodeIn(dir, []string{"odd.mjs", "waiting", "again"}, "SERVER="+d.addr, "SOURCE=waiting", "SITE="+site.URL))
		again.line("; the next is due at ", startLimit)
		again.signal(syscall.SIGTERM)
		ends(t, again, 0, "0 attempts of this process succeeded")
		if text, _ := again.out.text(); strings.Contains(text, "nothing to do") {
			t.Error("a crawl with an outstanding page logged that there is nothing to do")
		}
	})

	t.Run("away", func(t *testing.T) { // the dispatcher leaves while a page submits links, and does not come back
		d := serve(t, "dispatcher that leaves for good", "memory", "")
		dial(t, d.addr).createSource(t, &pb.SourceSpec{Id: "away"})
		p := launchCommand(t, "away", nodeIn(dir, []string{"odd.mjs", "away"}, "SERVER="+d.addr, "SOURCE=away", "SITE="+newOddSite(t).URL))
		p.line("the handler waits", startLimit)
		d.kill()
		p.signal(syscall.SIGHUP)
		p.line("SubmitTasks fails and is repeated", startLimit)
		p.signal(syscall.SIGTERM)
		ends(t, p, 0, "the crawl has ended, and 1 links were not stored")
	})

	t.Run("request", func(t *testing.T) {
		site, p := run(t, "request", once)
		ends(t, p, 0, "bare: true", `received: {"url":"`+site.URL+`/echo?b=1&a=2#part","uniqueKey":"mine","label":"echo","crawlDepth":3,`+
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
			Targets: []*pb.HoldTarget{{SourceId: "stopped"}}, By: "ada", Reason: "they called.",
		}); err != nil {
			t.Fatal(err)
		}
		c.submit(t, &pb.SubmitItem{SourceId: "stopped", Url: "http://127.0.0.1:1/held"})
		p.line("by ada: they called. Details", startLimit)
		p.signal(syscall.SIGTERM)
		ends(t, p, 0)
		if n := c.counts(t, "stopped"); n.GetReady() != 1 {
			t.Errorf("its tasks are %v", n)
		}
		again := launchCommand(t, "stopped, again", nodeIn(dir, []string{"odd.mjs", "stopped"}, "SERVER="+d.addr, "SOURCE=stopped"))
		again.line("by ada: they called", startLimit)
		if _, err := c.holds.LiftHolds(t.Context(), &pb.LiftHoldsRequest{Targets: []*pb.HoldTarget{{SourceId: "stopped"}}, By: "ada"}); err != nil {
			t.Fatal(err)
		}
		again.line("stopped: resumed", startLimit)
		again.signal(syscall.SIGTERM)
		ends(t, again, 0)
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
