package demo_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	got := clitest.Command(t, nil, "demo", "--pages", "24")
	if got.Code != cli.ExitOK || got.Err != "" {
		t.Fatalf("exit code %d:\n%s%s", got.Code, got.Out, got.Err)
	}
	for _, line := range []string{
		`kill -9 +demo-2, while it fetches http://127\.0\.0\.\d:\d+/page/\d+; its leases run out in 3s`,
		`pages on the site +96`,
		`crawled once +96, by 96 reports accepted`,
		`duplicates +0`,
		`lost +0`,
		`requeued after the kill +[1-3], the leases that demo-2 left behind`,
		`finished by others +[1-3]`,
		`HOST +REQUESTS +DELAY +SMALLEST GAP`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(got.Out) {
			t.Errorf("no line matches %q:\n%s", line, got.Out)
		}
	}
	if strings.ContainsRune(got.Out, '\x1b') {
		t.Errorf("steers a terminal that is none:\n%q", got.Out)
	}
}

// TestDemo_Console shows the crawl in the console, while it runs and after it.
func TestDemo_Console(t *testing.T) {
	t.Parallel()
	d := clitest.Start(t, nil, "demo", "--console", "--pages", "24")
	address := d.Out.Line(t, `console +(http://127\.0\.0\.1:\d+/)`)[1]
	page := func(path, want string) {
		t.Helper()
		reply, err := http.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		if err != nil || reply.Body.Close() != nil || reply.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v, without %q:\n%s", path, reply.Status, err, want, text)
		}
	}
	page("", "<h1>Overview</h1>")
	d.Out.Line(t, `collector +demo-3`) // so the source is there
	page("source?id=demo", "<h1>Source demo</h1>")
	d.Out.Line(t, `The console goes on until Ctrl-C: `+address)
	page("collectors", "demo-2")
	if code := d.End(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestDemo_Interrupted ends the collectors with it.
func TestDemo_Interrupted(t *testing.T) {
	t.Parallel()
	d := clitest.Start(t, nil, "demo")
	d.Out.Line(t, `collector +demo-3`)
	if code := d.End(); code != cli.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	d.Err.Line(t, "interrupted")
}
