package main_test

import (
	"regexp"
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	got := command(t, nil, "demo", "--pages", "24")
	if got.code != waggle.ExitOK || got.err != "" {
		t.Fatalf("exit code %d:\n%s%s", got.code, got.out, got.err)
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
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(got.out) {
			t.Errorf("no line matches %q:\n%s", line, got.out)
		}
	}
	if strings.ContainsRune(got.out, '\x1b') {
		t.Errorf("steers a terminal that is none:\n%q", got.out)
	}
}

// TestDemo_Interrupted ends the collectors with it.
func TestDemo_Interrupted(t *testing.T) {
	t.Parallel()
	d := start(t, nil, "demo")
	d.out.line(t, `collector +demo-3`)
	if code := d.end(); code != waggle.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	d.err.line(t, "interrupted")
}
