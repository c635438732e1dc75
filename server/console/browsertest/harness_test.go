package browsertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// site has a feed, its items, and a page that fails.
func site(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/feed":
		w.Header().Set("Content-Type", "application/rss+xml")
		fmt.Fprint(w, `<rss version="2.0"><channel><title>News</title>`)
		for n := range 6 {
			fmt.Fprintf(w, `<item><title>Item %d</title><link>http://%s/item/%[1]d</link></item>`, n, r.Host)
		}
		fmt.Fprint(w, `</channel></rss>`)
	case strings.HasPrefix(r.URL.Path, "/item/"):
		fmt.Fprintf(w, `<!doctype html><title>item</title><p>%s</p>`, r.URL.Path)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// bed is a dispatcher, a collector, a site that it crawls, and a proxy that has the console below /waggle/.
type bed struct {
	api, prefixed, site, queue string
}

// command builds the command once.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "waggle-console")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "waggle")
	build := exec.Command("go", "build", "-o", path, "./cmd/waggle")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	m.Run()
	if path, err := command(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path)) // it is in a directory for temporary files
	}
}

// start runs the command until the test ends.
func start(t *testing.T, args ...string) {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)
	run.Dir = t.TempDir()
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Signal(os.Interrupt) // it may have ended
		timer := time.AfterFunc(10*time.Second, func() { _ = run.Process.Kill() })
		_ = run.Wait() // what it prints is shown below
		timer.Stop()
		if t.Failed() {
			t.Logf("%s: %.2000s", args[0], out.String())
		}
	})
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// serve starts a dispatcher, and a proxy before its console.
func serve(t *testing.T, args ...string) (b *bed, grpcAddress string) {
	t.Helper()
	grpcAddress, httpAddress := freeAddress(t), freeAddress(t)
	start(t, append([]string{"serve", "--store", "memory", "--listen", grpcAddress, "--http", httpAddress}, args...)...)
	to := &url.URL{Scheme: "http", Host: httpAddress}
	proxy := httptest.NewServer(http.StripPrefix("/waggle", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
	}))
	t.Cleanup(proxy.Close)
	b = &bed{api: "http://" + httpAddress, prefixed: proxy.URL + "/waggle/"}
	b.within(t, 20*time.Second, "the dispatcher is ready", func() bool {
		code, _ := b.ask(t, "GET", "/readyz", "")
		return code == http.StatusOK
	})
	return b, grpcAddress
}

// newBed has a source of each health that is soon there.
func newBed(t *testing.T) *bed {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(site))
	t.Cleanup(web.Close)
	b, grpcAddress := serve(t)
	b.site, b.queue = web.URL, strings.TrimPrefix(web.URL, "http://")
	b.call(t, "QueueService/SetQueueRule", map[string]any{"rule": map[string]any{"pattern": "127.0.0.1", "minDelay": "0s", "maxInFlight": 4}, "reason": "a site of our own"})
	b.call(t, "SourceService/CreateSource", map[string]any{"spec": map[string]any{
		"id": "news", "displayName": "The news of today", "seeds": []any{map[string]any{"url": web.URL + "/feed"}}, "schedule": map[string]any{"every": "3600s"}, "labels": map[string]string{"land": "fr"},
	}})
	b.call(t, "SourceService/CreateSource", map[string]any{"spec": map[string]any{"id": "gone", "seeds": []any{map[string]any{"url": web.URL + "/none"}}, "schedule": map[string]any{"every": "3600s"}}})
	held := "quiet." + strings.Repeat("long-", 10) + "name"
	b.call(t, "SourceService/CreateSource", map[string]any{"spec": map[string]any{"id": held, "displayName": "Held for a while"}})
	b.call(t, "HoldService/SetHolds", map[string]any{
		"targets": []any{map[string]any{"sourceId": held}}, "name": "ops", "effect": "HOLD_EFFECT_STOP_GRANTS", "reason": "they asked us to wait",
	})
	start(t, "collect", "--id", "c1", "--server", grpcAddress, "--allow-private", "--ignore-robots", "--labels", "zone=eu", "--contact", "https://example.com/crawler")
	b.within(t, 30*time.Second, "the site is crawled", func() bool {
		_, page := b.ask(t, "GET", "/source?id=gone", "")
		_, news := b.ask(t, "GET", "/task?source=news&find="+url.QueryEscape(web.URL+"/item/5"), "")
		return strings.Contains(page, "badge bad") && strings.Contains(news, `class="badge good">done`)
	})
	return b
}

func (b *bed) ask(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.api+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// call makes a call of the API.
func (b *bed) call(t *testing.T, method string, request any) {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	if code, text := b.ask(t, "POST", "/waggle.v1."+method, string(body)); code != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, body, code, text)
	}
}

func (b *bed) within(t *testing.T, most time.Duration, what string, is func() bool) {
	t.Helper()
	late, again := time.After(most), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-late:
			t.Fatalf("not within %v: %s", most, what)
		case <-again.C:
		}
	}
}

// newBrowser starts Chromium for all tests.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("no-sandbox", os.Geteuid() == 0), chromedp.Flag("hide-scrollbars", true))
	allocator, closeAllocator := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	browser, closeBrowser := chromedp.NewContext(allocator)
	t.Cleanup(func() { closeBrowser(); closeAllocator() })
	if _, err := chromedp.Run(browser, chromedp.Location()); err != nil {
		t.Fatalf("Chromium is needed (Debian: apt-get install chromium): %v", err)
	}
	return browser
}

// tab is a page of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // of chromedp, whose contexts are the tabs

	mu       sync.Mutex // guards problems
	problems []string   // errors of the console, and violations of the policy
}

// newTab opens one with cookies of its own; or, with a tab, beside that.
func newTab(t *testing.T, parent context.Context, options ...chromedp.ContextOption) *tab { //nolint:revive // t comes first in tests
	t.Helper()
	ctx, closeTab := chromedp.NewContext(parent, options...)
	t.Cleanup(closeTab)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *cdplog.EventEntryAdded:
			b.note(string(e.Entry.Level), e.Entry.Text+" "+e.Entry.URL)
		case *runtime.EventConsoleAPICalled:
			text, _ := json.Marshal(e.Args)
			b.note(string(e.Type), string(text))
		case *runtime.EventExceptionThrown:
			b.note("error", e.ExceptionDetails.Text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
		if _, err := cdp.Call(ctx, to, cdplog.Enable, cdp.Empty{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, to, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	}))
	return b
}

func (b *tab) note(level, text string) {
	if level != "error" && level != "warning" && level != "assert" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, level+": "+text)
}

// noted are the problems since it was asked last.
func (b *tab) noted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	noted := b.problems
	b.problems = nil
	return noted
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// eval is what an expression gives.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.80s: %v", expression, err)
	}
	return got
}

func (b *tab) language(address, lang string) {
	b.do(chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
		_, err := cdp.Call(ctx, to, network.SetCookie, network.SetCookieParams{Name: "waggle-language", Value: lang, URL: address, Path: "/"})
		return err
	}))
}

func (b *tab) looks(width int64, scheme string) {
	b.do(chromedp.EmulateViewport(width, 844), chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
		_, err := cdp.Call(ctx, to, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

func (b *tab) scripts(on bool) {
	b.do(chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
		_, err := cdp.Call(ctx, to, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
		return err
	}))
}

// newToken makes a token of an admin.
func newToken(t *testing.T, policy string) string {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "auth", "token", "new", "bob", "--role", "admin", "--file", policy).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
