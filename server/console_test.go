package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/auth"
)

// webPage is an answer of the console.
type webPage struct {
	status int
	header http.Header
	body   string
	cookie []*http.Cookie
}

// visit asks for a page of the console. form is sent by POST; headers are names and values in turn.
func (b *bed) visit(t testing.TB, path string, form url.Values, header ...string) webPage {
	t.Helper()
	return visitAt(t, http.DefaultTransport, "http://"+b.http.Addr().String()+path, form, header...)
}

func visitAt(t testing.TB, transport http.RoundTripper, address string, form url.Values, header ...string) webPage {
	t.Helper()
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(t.Context(), method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", formType)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	req.Close = true
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return webPage{resp.StatusCode, resp.Header, string(text), resp.Cookies()}
}

// session is the header of who signed in with a token.
func session(name string) []string {
	return []string{"Cookie", "waggle-session=" + base64.RawURLEncoding.EncodeToString([]byte("wgl_"+name))}
}

// filled has something of everything, and returns the pages that show it. call is the context of who may do everything.
func filled(t *testing.T, b *bed, call context.Context) []string { //nolint:revive // t comes first in tests
	t.Helper()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.sources.CreateSource(call, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
		Id: "news.a", DisplayName: "News of A", Labels: map[string]string{"land": "fr"}, Seeds: []*pb.Seed{{Url: "https://a.example/feed"}},
		Schedule: &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(time.Hour)}},
	}}))
	must(b.sources.CreateSource(call, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "blogs.b", DisplayName: "Secret blog"}}))
	must(b.tasks.SubmitTasks(call, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{
		{SourceId: "news.a", Url: "https://a.example/1"}, {SourceId: "news.a", Url: "https://a.example/2"}, {SourceId: "blogs.b", Url: "https://secret.example/1"},
	}}))
	fetched, err := b.dispatch.FetchTask(call, &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", MaxTasks: 1, Wait: durationpb.New(5 * time.Second)})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", fetched, err)
	}
	leased := fetched.GetLeasedTasks()[0]
	must(b.dispatch.ReportTask(call, &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{succeeded(leased)}}))
	must(b.queues.SetQueueRule(call, &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "a.example", MaxInFlight: proto.Int32(2)}, Reason: "asked for"}))
	must(b.holds.SetHolds(call, &pb.SetHoldsRequest{
		Targets: []*pb.HoldTarget{{SourceId: "blogs.b"}}, Name: "n", Effect: pb.HoldEffect_HOLD_EFFECT_STOP_GRANTS, Reason: "secret reason",
	}))
	return []string{
		"/", "/sources", "/sources?health=ok&prefix=n", "/source?id=news.a", "/queues", "/queues?order=waiting&held=1", "/queue?name=a.example", "/queue?name=unknown.example",
		"/tasks", "/tasks?source=news.a&state=ready", "/tasks?queue=a.example&reason=timeout", "/task?id=" + leased.GetTask().GetId(),
		"/task?source=news.a&find=" + url.QueryEscape("https://a.example/2"), "/collectors", "/holds", "/rules", "/audit", "/signin",
	}
}

var nonceOf = regexp.MustCompile(`script-src 'nonce-([A-Z0-9]+)'`)

// wantPage checks what each page has.
func wantPage(t *testing.T, path string, page webPage, status int) {
	t.Helper()
	if page.status != status {
		t.Errorf("%s: %d, want %d: %s", path, page.status, status, page.body)
		return
	}
	found := nonceOf.FindStringSubmatch(page.header.Get("Content-Security-Policy"))
	if found == nil {
		t.Fatalf("%s: the policy is %q", path, page.header.Get("Content-Security-Policy"))
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Content-Type": "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; script-src 'nonce-" + found[1] + "'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx",
	} {
		if got := page.header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s is %q, want %q", path, name, got, want)
		}
	}
	for _, script := range regexp.MustCompile(`(?i)<script[^>]*>`).FindAllString(page.body, -1) {
		if !strings.HasPrefix(script, `<script nonce="`+found[1]+`" src="assets/`) {
			t.Errorf("%s has a script that is not of the console: %s", path, script)
		}
	}
	for _, link := range regexp.MustCompile(`(?:href|src|action|hx-get)="([^"]*)"`).FindAllStringSubmatch(page.body, -1) {
		if strings.HasPrefix(link[1], "/") {
			t.Errorf("%s has a link that is not relative: %s", path, link[1])
		}
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	for _, path := range filled(t, b, t.Context()) {
		wantPage(t, path, b.visit(t, path, nil), http.StatusOK)
	}
	for _, path := range []string{"/source?id=gone", "/task?id=0-" + strings.Repeat("a", 26)} {
		wantPage(t, path, b.visit(t, path, nil), http.StatusNotFound)
	}
	for path, part := range map[string]string{
		"/": "finding-FINDING_KIND_HELD", "/sources": "News of A", "/source?id=news.a": "https://a.example/feed", "/tasks?source=news.a": "https://a.example/2",
		"/collectors": "c1", "/holds": "secret reason", "/rules": "asked for", "/audit": "SetHolds",
	} {
		if page := b.visit(t, path, nil); !strings.Contains(page.body, part) {
			t.Errorf("%s has no %q: %s", path, part, page.body)
		}
	}
	if page := b.visit(t, "/nothing", nil); page.status != http.StatusNotFound {
		t.Errorf("no page: %d", page.status)
	}
	asset := regexp.MustCompile(`assets/[^"]*/console\.css`).FindString(b.visit(t, "/", nil).body)
	if page := b.visit(t, "/"+asset, nil); page.status != http.StatusOK || !strings.Contains(page.header.Get("Cache-Control"), "immutable") {
		t.Errorf("%s: %d %v", asset, page.status, page.header)
	}
}

// Without a policy the name of the host must be known, and another origin changes nothing.
func TestConsole_origins(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{HTTPHosts: []string{"waggle.example"}})
	for _, test := range []struct {
		name   string
		form   url.Values
		header []string
		status int
	}{
		{"own host", nil, []string{"Host", "waggle.example"}, 200},
		{"rebound name", nil, []string{"Host", "evil.example"}, 403},
		{"form of another origin", url.Values{"lang": {"zh"}}, []string{"Origin", "http://evil.example"}, 403},
		{"form of another site", url.Values{"lang": {"zh"}}, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"own form", url.Values{"lang": {"zh"}}, []string{"Sec-Fetch-Site", "same-origin"}, 303},
	} {
		path := "/"
		if test.form != nil {
			path = "/language"
		}
		if page := b.visit(t, path, test.form, test.header...); page.status != test.status || (page.status == 403 && len(page.cookie) > 0) {
			t.Errorf("%s: %d, want %d: %s", test.name, page.status, test.status, page.body)
		}
	}
}

func TestConsole_language(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	chosen := b.visit(t, "/language", url.Values{"lang": {"zh"}, "to": {"source?id=a"}})
	if chosen.status != http.StatusSeeOther || chosen.header.Get("Location") != "source?id=a" || len(chosen.cookie) != 1 {
		t.Fatalf("%+v", chosen)
	}
	// The page to return to is named by itself: a query alone would be one of the form's address.
	if page := b.visit(t, "/sources?prefix=a", nil); !strings.Contains(page.body, `name="to" value="sources?prefix=a"`) {
		t.Errorf("a choice of the language leads elsewhere: %s", page.body)
	}
	for name, test := range map[string]struct {
		header []string
		lang   string
	}{
		"nothing":           {nil, "en"},
		"browser":           {[]string{"Accept-Language", "zh-CN,zh;q=0.9,en;q=0.8"}, "zh"},
		"browser, French":   {[]string{"Accept-Language", "fr-FR"}, "en"},
		"chosen":            {[]string{"Cookie", chosen.cookie[0].Name + "=zh"}, "zh"},
		"chosen of another": {[]string{"Cookie", chosen.cookie[0].Name + "=en", "Accept-Language", "zh-CN"}, "en"},
		"chosen none":       {[]string{"Cookie", chosen.cookie[0].Name + "=xx"}, "en"},
	} {
		page := b.visit(t, "/", nil, test.header...)
		if !strings.Contains(page.body, `<html lang="`+test.lang+`">`) || page.header.Get("Content-Language") != test.lang || strings.Contains(page.body, "概览") != (test.lang == "zh") {
			t.Errorf("%s: not in %s", name, test.lang)
		}
	}
	if page := b.visit(t, "/language", url.Values{"lang": {"zh"}, "to": {"https://evil.example/"}}); page.header.Get("Location") != "." {
		t.Errorf("leads to %q", page.header.Get("Location"))
	}
}

func TestConsole_signIn(t *testing.T) {
	t.Parallel()
	b := withPolicyOn(t, accessPolicy(time.Now().Add(time.Hour)), func(t testing.TB, cfg server.Config) *bed { return newHTTPBed(t, cfg) })
	paths := filled(t, b, as(t.Context(), "admin"))
	if page := b.visit(t, "/source?id=news.a", nil); page.status != http.StatusSeeOther || page.header.Get("Location") != "signin?to=source%3Fid%3Dnews.a" {
		t.Fatalf("without a session: %d %q", page.status, page.header.Get("Location"))
	}
	for _, path := range paths {
		if page := b.visit(t, path, nil); path != "/signin" && page.status != http.StatusSeeOther {
			t.Errorf("%s without a session: %d", path, page.status)
		}
	}
	for form, header := range map[string][]string{"http": nil, "https": {"X-Forwarded-Proto", "https"}} {
		page := b.visit(t, "/signin", url.Values{"token": {"wgl_admin"}, "to": {"source?id=news.a"}}, header...)
		if page.status != http.StatusSeeOther || page.header.Get("Location") != "source?id=news.a" || len(page.cookie) != 1 {
			t.Fatalf("%s: %d %q %v: %s", form, page.status, page.header.Get("Location"), page.cookie, page.body)
		}
		if c := page.cookie[0]; !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure != (form == "https") {
			t.Errorf("%s: the cookie is %v", form, c)
		}
	}
	for _, path := range paths {
		page := b.visit(t, path, nil, session("admin")...)
		wantPage(t, path, page, http.StatusOK)
		if path != "/signin" && !strings.Contains(page.body, `<span class="identity">token:admin</span>`) {
			t.Errorf("%s does not show who it is", path)
		}
	}
	if page := b.visit(t, "/signout", url.Values{}, session("admin")...); page.status != http.StatusSeeOther || page.header.Get("Location") != "signin" ||
		len(page.cookie) != 1 || page.cookie[0].MaxAge >= 0 || page.cookie[0].Value != "" {
		t.Errorf("sign-out: %+v", page)
	}
	for name, form := range map[string]url.Values{"empty": {"token": {" "}}, "too long": {"token": {strings.Repeat("x", 3000)}}} {
		if page := b.visit(t, "/signin", form); page.status != http.StatusBadRequest || len(page.cookie) != 0 {
			t.Errorf("%s: %d", name, page.status)
		}
	}
	refused := 0
	for i := range 11 {
		page := b.visit(t, "/signin", url.Values{"token": {fmt.Sprintf("wgl_guess%d", i)}})
		if len(page.cookie) != 0 || strings.Contains(page.body, "wgl_guess") {
			t.Errorf("a wrong token: %v %s", page.cookie, page.body)
		}
		if page.status == http.StatusUnauthorized {
			refused++
		} else if page.status != http.StatusTooManyRequests || page.header.Get("Retry-After") == "" {
			t.Errorf("a wrong token: %d", page.status)
		}
	}
	if refused != 10 {
		t.Errorf("%d wrong tokens were tried, want 10", refused)
	}
	if page := b.visit(t, "/signin", url.Values{"token": {"wgl_admin"}}); page.status != http.StatusTooManyRequests {
		t.Errorf("after 10 failures: %d", page.status)
	}
}

// The cookie goes over TLS only where it came so.
func TestConsole_tls(t *testing.T) {
	t.Parallel()
	cert, key, pool := keyPair(t)
	policy := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(policy, []byte(accessPolicy(time.Now().Add(time.Hour))), 0o600); err != nil {
		t.Fatal(err)
	}
	n := onNetwork(t, server.Config{HTTP: "127.0.0.1:0", TLSCertFile: cert, TLSKeyFile: key, PolicyFile: policy})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	page := visitAt(t, transport, "https://"+n.HTTPAddress()+"/signin", url.Values{"token": {"wgl_viewer"}})
	if page.status != http.StatusSeeOther || len(page.cookie) != 1 || !page.cookie[0].Secure {
		t.Errorf("%d %v", page.status, page.cookie)
	}
}

// Who sees some sources only sees nothing of others on any page.
func TestConsole_narrow(t *testing.T) {
	t.Parallel()
	b := withPolicyOn(t, accessPolicy(time.Now().Add(time.Hour)), func(t testing.TB, cfg server.Config) *bed { return newHTTPBed(t, cfg) })
	paths := filled(t, b, as(t.Context(), "admin"))
	paths = append(paths, "/source?id=blogs.b", "/tasks?source=blogs.b", "/tasks?queue=secret.example", "/task?source=blogs.b&find="+url.QueryEscape("https://secret.example/1"), "/sources?prefix=blogs.")
	allowed := map[string]bool{"/": true, "/sources": true, "/source?id=news.a": true, "/tasks?source=news.a&state=ready": true, "/signin": true, "/tasks": true}
	whole := b.visit(t, "/sources", nil, session("whole-viewer")...)
	if !strings.Contains(whole.body, "Secret blog") {
		t.Fatalf("who sees all: %s", whole.body)
	}
	for _, name := range []string{"viewer", "producer"} {
		for _, path := range paths {
			page := b.visit(t, path, nil, session(name)...)
			shown := strings.ReplaceAll(page.body, url.QueryEscape("https://secret.example/1"), "") // of its own address
			for _, secret := range []string{"secret", "Secret"} {
				if strings.Contains(shown, secret) && !strings.Contains(path, "secret") {
					t.Errorf("%s at %s shows %s: %s", name, path, secret, page.body)
				}
			}
			switch {
			case allowed[path]:
				wantPage(t, path, page, http.StatusOK)
			case page.status != http.StatusOK:
				wantPage(t, path, page, http.StatusForbidden)
			case strings.Contains(path, "blogs"):
				t.Errorf("%s may see %s", name, path)
			}
		}
		if page := b.visit(t, "/sources", nil, session(name)...); !strings.Contains(page.body, "News of A") {
			t.Errorf("%s does not see own sources: %s", name, page.body)
		}
	}
}

// stream reads the lines of an event stream until it ends.
func (b *bed) stream(t *testing.T, header ...string) (lines <-chan string, got http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.http.Addr().String()+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req) //nolint:bodyclose // the goroutine below closes it
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the event stream: %d", resp.StatusCode)
	}
	all := make(chan string, 1000)
	go func() {
		defer close(all)
		defer resp.Body.Close()
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			all <- scan.Text()
		}
	}()
	return all, resp.Header
}

// wantLine reads lines until one begins with this; empty: until the stream ends.
func wantLine(t *testing.T, lines <-chan string, begins string, within time.Duration) {
	t.Helper()
	late := time.After(within)
	for {
		select {
		case line, ok := <-lines:
			if !ok && begins == "" || ok && begins != "" && strings.HasPrefix(line, begins) {
				return
			}
			if !ok {
				t.Fatalf("the stream ended before %q", begins)
			}
		case <-late:
			t.Fatalf("no %q within %v", begins, within)
		}
	}
}

func TestConsole_events(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	lines, header := b.stream(t)
	if header.Get("X-Accel-Buffering") != "no" || header.Get("Content-Type") != "text/event-stream" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers: %v", header)
	}
	wantLine(t, lines, ":", time.Second)
	wantLine(t, lines, "event: tick", 6*time.Second)
	wantLine(t, lines, ": heartbeat", 15*time.Second)
	b.stop()
	wantLine(t, lines, "", 3*time.Second)
}

// A token that is revoked ends the pages and the event stream.
func TestConsole_revoked(t *testing.T) {
	t.Parallel()
	var path string
	b := withPolicyOn(t, accessPolicy(time.Now().Add(time.Hour)), func(t testing.TB, cfg server.Config) *bed {
		path = cfg.PolicyFile
		return newHTTPBed(t, cfg)
	})
	if page := b.visit(t, "/", nil, session("whole")...); page.status != http.StatusOK {
		t.Fatalf("before: %d %s", page.status, page.body)
	}
	lines, _ := b.stream(t, session("whole")...)
	wantLine(t, lines, ":", time.Second)
	others := fmt.Sprintf("tokens:\n- {name: other, sha256: %s}\ngrants:\n- {identity: 'token:other', role: viewer}\n", auth.HashToken("wgl_other"))
	if err := os.WriteFile(path+".new", []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	within(t, 3*time.Second, "the page leads to sign-in", func() bool { return b.visit(t, "/", nil, session("whole")...).status == http.StatusSeeOther })
	wantLine(t, lines, "", 3*time.Second)
}

// What comes from the web or from people is shown as it is, and is never markup, a script or a link that runs.
func TestConsole_hostile(t *testing.T) {
	t.Parallel()
	b := newHTTPBed(t, server.Config{})
	for i, text := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</title></main><h1 id=pwned>`, `{{.}} ${alert(1)} <%= 1 %>`,
		"line\nbreak\rand\r\nmore", "u\u2028v\u2029w\u0085x\vy\fz", "user\u202egnp.exe", `javascript:alert(1)`, `data:text/html,<script>alert(1)</script>`,
		strings.Repeat("word", 60), `hx-get="/evil" hx-on:load="alert(1)" <div hx-get=evil>`, "nul\x00here", `<!--`, `]]>`, `&lt;script&gt;&#x3c;script>`,
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			id := fmt.Sprintf("s%d", i)
			for what, err := range map[string]error{
				"name": func() error {
					_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
						Id: id, DisplayName: text, Pool: "p" + id, Seeds: []*pb.Seed{{Url: "https://h" + id + ".example/feed"}},
					}})
					return err
				}(),
				"label": func() error {
					_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: id + "l", Labels: map[string]string{"k": text}}})
					return err
				}(),
				"URL": func() error {
					_, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: id, Url: "https://h" + id + ".example/" + text}}})
					return err
				}(),
				"hold": func() error {
					_, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{
						Targets: []*pb.HoldTarget{{SourceId: id}}, Name: "n", Effect: pb.HoldEffect_HOLD_EFFECT_STOP_GRANTS, Reason: text,
					})
					return err
				}(),
			} {
				if err != nil {
					t.Logf("%s is refused: %v", what, err) // what is refused is shown nowhere
				}
				if err != nil && what == "name" && !strings.ContainsAny(text, "\x00\v\f\u0085") {
					t.Errorf("the name is refused, so that no page shows it: %v", err)
				}
				if page := b.visit(t, "/source?id="+id, nil); err == nil && what == "name" && !strings.Contains(html.UnescapeString(page.body), text) {
					t.Errorf("the page of the source has no name %q", text)
				}
			}
			if _, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: id, Url: "https://f" + id + ".example/"}}}); err == nil {
				if _, err := b.holds.LiftHolds(t.Context(), &pb.LiftHoldsRequest{Targets: []*pb.HoldTarget{{SourceId: id}}, Name: "n"}); err != nil {
					t.Logf("nothing to lift: %v", err)
				}
				fetched, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", MaxTasks: 3, Pools: []string{"p" + id}, Wait: durationpb.New(time.Second)})
				if err != nil {
					t.Fatal(err)
				}
				for _, leased := range fetched.GetLeasedTasks() {
					if _, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{{
						TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken(),
						Outcome: &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_PARSE, Message: text}}},
					}}}); err != nil {
						t.Logf("the error is refused: %v", err)
					}
				}
			}
			escaped := url.QueryEscape(text)
			for _, path := range []string{
				"/", "/sources", "/sources?prefix=" + escaped, "/source?id=" + id, "/source?id=" + id + "l", "/source?id=" + escaped, "/queues", "/queue?name=" + escaped,
				"/tasks?source=" + id, "/tasks?queue=" + escaped, "/task?id=" + escaped, "/task?find=" + escaped, "/holds", "/audit", "/audit?by=" + escaped,
				"/collectors", "/signin?to=" + escaped, "/sources?page=" + escaped, "/sources?health=" + escaped,
			} {
				page := b.visit(t, path, nil)
				wantPage(t, path, page, page.status)
				if page.status >= 500 {
					t.Errorf("%s: %d", path, page.status)
				}
				for _, markup := range []string{"<img", "<script>", "<h1 id=pwned", "<div hx-get=evil", "<!--", "onmouseover='alert"} {
					if strings.Contains(page.body, markup) {
						t.Errorf("%s has the markup %s", path, markup)
					}
				}
				if regexp.MustCompile(`(?i)(?:href|src|action)="\s*(?:javascript|data|vbscript):`).MatchString(page.body) {
					t.Errorf("%s has a link that runs", path)
				}
			}
		})
	}
}
