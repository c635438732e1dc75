package browsertest_test

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

//go:embed testdata/axe.min.js
var axe string

// screens are the pages, by name; the failure is one that is not found.
func (b *bed) screens() [][2]string {
	return [][2]string{
		{"overview", ""}, {"sources", "sources"}, {"source", "source?id=news"}, {"failing source", "source?id=gone"}, {"queues", "queues"},
		{"queue", "queue?name=" + url.QueryEscape(b.queue)}, {"tasks", "tasks?source=gone"}, {"task", "task?source=news&find=" + url.QueryEscape(b.site+"/item/5")},
		{"collectors", "collectors"}, {"holds", "holds"}, {"rules", "rules"}, {"audit", "audit"}, {"signin", "signin"}, {"failure", "source?id=none"},
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	b, browser := newBed(t), newBrowser(t)
	for _, lang := range []string{"en", "zh"} {
		t.Run("screens "+lang, func(t *testing.T) { t.Parallel(); b.testScreens(t, browser, lang) })
	}
	t.Run("keyboard", func(t *testing.T) { t.Parallel(); b.testKeyboard(t, browser) })
	t.Run("live", func(t *testing.T) { t.Parallel(); b.testLive(t, browser) })
	t.Run("without script", func(t *testing.T) { t.Parallel(); b.testWithoutScript(t, browser) })
	t.Run("nine tabs", func(t *testing.T) { b.testNineTabs(t, browser) })
	t.Run("sign-in", func(t *testing.T) { t.Parallel(); testSignIn(t, browser) })
	if dir := os.Getenv("WAGGLE_PICTURES"); dir != "" {
		t.Run("pictures", func(t *testing.T) { b.takePictures(t, browser, dir) })
	}
}

// Each page, in a language, has no errors, breaks no rule of axe, and needs no scrolling to the side.
func (b *bed) testScreens(t *testing.T, browser context.Context, lang string) { //nolint:revive // t comes first in tests
	page := newTab(t, browser, chromedp.WithNewBrowserContext())
	page.language(b.prefixed, lang)
	for _, screen := range b.screens() {
		page.looks(1280, "light")
		page.do(chromedp.Navigate(b.prefixed + screen[1]))
		if got := eval[string](page, "document.documentElement.lang"); got != lang {
			t.Errorf("%s is in %s, want %s", screen[0], got, lang)
		}
		for _, problem := range page.noted() {
			if screen[0] != "failure" || !strings.Contains(problem, "404") {
				t.Errorf("%s: %s", screen[0], problem)
			}
		}
		eval[bool](page, axe+"; true")
		for _, width := range []int64{1280, 390} {
			for _, scheme := range []string{"light", "dark"} {
				page.looks(width, scheme)
				if over := eval[int64](page, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s at %d is %d pixels too wide: %s", screen[0], width, over, eval[string](page,
						`[...document.querySelectorAll("body *")].filter(e => !e.closest(".wide") && e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 120)).slice(0, 5).join("\n")`))
				}
				for _, broken := range eval[[]string](page, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => v.id + ": " + v.help + ": " +
					v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + " " + n.failureSummary).join(" | ")))`) {
					t.Errorf("%s at %d, %s: %s", screen[0], width, scheme, broken)
				}
			}
		}
		page.noted() // of axe
	}
}

// Everything is reached by Tab, and shows that it has the focus.
func (b *bed) testKeyboard(t *testing.T, browser context.Context) { //nolint:revive // t comes first in tests
	page := newTab(t, browser, chromedp.WithNewBrowserContext())
	page.looks(1280, "light")
	for _, screen := range b.screens() {
		page.do(chromedp.Navigate(b.prefixed + screen[1]))
		all := eval[int](page, `const at = new Set(); const every = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")]
			.filter(e => e.checkVisibility()); window.every = every; document.activeElement.blur(); every.length`)
		for range all + 1 {
			page.do(chromedp.KeyEvent("\t"))
			if dim := eval[string](page, `(() => { const e = document.activeElement, s = getComputedStyle(e); e.reached = true;
				return e === document.body || s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 ? "" : e.outerHTML.slice(0, 120) })()`); dim != "" {
				t.Errorf("%s: the focus does not show: %s", screen[0], dim)
			}
		}
		if missed := eval[[]string](page, `every.filter(e => e.isConnected && !e.reached).map(e => e.outerHTML.slice(0, 120))`); len(missed) > 0 {
			t.Errorf("%s: Tab does not reach %d of %d: %q", screen[0], len(missed), all, missed)
		}
	}
}

// A page changes by itself when the data does, and keeps what its reader has opened.
func (b *bed) testLive(t *testing.T, browser context.Context) { //nolint:revive // t comes first in tests
	page := newTab(t, browser, chromedp.WithNewBrowserContext())
	page.do(chromedp.Navigate(b.prefixed + "sources?prefix=live"))
	eval[int](page, `window.same = 1`)
	b.call(t, "SourceService/CreateSource", map[string]any{"spec": map[string]any{"id": "live.born"}}) //nolint:contextcheck // chromedp keeps the tabs in contexts; this is the test's own
	b.within(t, 10*time.Second, "the page shows the new source", func() bool { return eval[bool](page, `document.querySelector("main").innerText.includes("live.born")`) })
	if !eval[bool](page, `window.same === 1`) {
		t.Error("the page was loaded anew")
	}
	for _, problem := range page.noted() {
		t.Error(problem)
	}
}

var varies = regexp.MustCompile(`\d+`)

// Without script a page reads the same.
func (b *bed) testWithoutScript(t *testing.T, browser context.Context) { //nolint:revive // t comes first in tests
	page := newTab(t, browser, chromedp.WithNewBrowserContext())
	read := func(screen string) string {
		page.do(chromedp.Navigate(b.prefixed + screen))
		return varies.ReplaceAllString(eval[string](page, `document.body.innerText`), "0")
	}
	for _, screen := range b.screens() {
		if strings.HasPrefix(screen[1], "sources") || screen[0] == "overview" || screen[0] == "audit" {
			continue // another test changes what they show
		}
		page.scripts(true)
		with := read(screen[1])
		page.scripts(false)
		if without := read(screen[1]); without != with && without != read(screen[1]) {
			t.Errorf("%s reads\n%s\nwithout script, and with it\n%s", screen[0], without, with)
		}
	}
	page.do(chromedp.Click(chromedp.CSS("button[name=lang]"))) // a form works, too
	b.within(t, 5*time.Second, "the language is another one", func() bool { return eval[string](page, `document.documentElement?.lang ?? ""`) == "zh" })
}

// seen makes a page think that its tab is hidden, or is not.
const seen = `Object.defineProperty(document, "hidden", {value: %s, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`

// A browser has six connections to a host over HTTP/1.1, and each tab that is seen an event stream: one that is not seen has none.
func (b *bed) testNineTabs(t *testing.T, browser context.Context) { //nolint:revive // t comes first in tests
	first := newTab(t, browser, chromedp.WithNewBrowserContext())
	for i := range 9 {
		began := time.Now()
		tab := first
		if i > 0 {
			tab = newTab(t, first.ctx) //nolint:contextcheck // chromedp keeps the tabs in contexts; this is the test's own
		}
		within, cancel := context.WithTimeout(tab.ctx, 10*time.Second) //nolint:contextcheck // chromedp keeps the tabs in contexts; this is the test's own
		_, err := chromedp.Run(within, chromedp.NavigateResponse(b.prefixed+"sources"))
		cancel()
		if err != nil {
			t.Fatalf("tab %d: %v", i+1, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("tab %d took %v", i+1, took)
		}
		b.within(t, 5*time.Second, "the tab is live", func() bool { return eval[bool](tab, `!!document.querySelector("#events")._htmx?.sse?.reader`) })
		eval[bool](tab, fmt.Sprintf(seen, "true")) // Chromium without a window shows all its tabs at once
	}
	first.do(chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
		_, err := cdp.Call(ctx, to, page.BringToFront, cdp.Empty{})
		return err
	}))
	eval[bool](first, fmt.Sprintf(seen, "false"))
	b.call(t, "SourceService/CreateSource", map[string]any{"spec": map[string]any{"id": "back.again"}}) //nolint:contextcheck // chromedp keeps the tabs in contexts; this is the test's own
	b.within(t, 15*time.Second, "the first tab is live again", func() bool {
		return eval[bool](first, `document.querySelector("main").innerText.includes("back.again")`)
	})
	if code := eval[int](first, `fetch("sources").then(r => r.status)`); code != http.StatusOK {
		t.Errorf("the first tab then: %d", code)
	}
}

// Who signs in comes to the page that was asked for, and signs out.
func testSignIn(t *testing.T, browser context.Context) { //nolint:revive // t comes first in tests
	policy := filepath.Join(t.TempDir(), "auth.yaml")
	token := newToken(t, policy)       //nolint:contextcheck // chromedp keeps the tabs in contexts; this is the test's own
	b, _ := serve(t, "--auth", policy) //nolint:contextcheck // chromedp keeps the tabs in contexts; this is the test's own
	page := newTab(t, browser, chromedp.WithNewBrowserContext())
	page.do(chromedp.Navigate(b.prefixed + "sources?pool=a"))
	page.do(chromedp.SendKeys(chromedp.CSS("input[name=token]"), "wrong\r"))
	b.within(t, 5*time.Second, "a wrong token is refused", func() bool { return eval[bool](page, `document.querySelector("[role=alert]") != null`) })
	page.noted() // the refusal has a status of its own
	page.do(chromedp.SendKeys(chromedp.CSS("input[name=token]"), token+"\r"))
	b.within(t, 5*time.Second, "the page that was asked for, signed in", func() bool {
		return eval[string](page, `location.href + " " + document.querySelector(".identity")?.innerText`) == b.prefixed+"sources?pool=a token:bob"
	})
	page.do(chromedp.Click(chromedp.CSS(`form[action=signout] button`)))
	b.within(t, 5*time.Second, "the page to sign in at", func() bool { return eval[string](page, "location.href") == b.prefixed+"signin" })
	for _, problem := range page.noted() {
		t.Error(problem)
	}
}

// takePictures takes those of the README.
func (b *bed) takePictures(t *testing.T, browser context.Context, dir string) { //nolint:revive // t comes first in tests
	tab := newTab(t, browser, chromedp.WithNewBrowserContext())
	tab.looks(1000, "light")
	for _, screen := range b.screens() {
		if screen[0] != "overview" && screen[0] != "sources" && screen[0] != "source" && screen[0] != "task" {
			continue
		}
		quality := int64(80)
		tab.do(chromedp.Navigate(b.prefixed+screen[1]), chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
			shot, err := cdp.Call(ctx, to, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "webp", Quality: &quality})
			if err != nil {
				return err
			}
			if len(shot.Data) > 100_000 {
				return fmt.Errorf("%s has %d bytes", screen[0], len(shot.Data))
			}
			return os.WriteFile(filepath.Join(dir, "console-"+screen[0]+".webp"), shot.Data, 0o600)
		}))
	}
}
