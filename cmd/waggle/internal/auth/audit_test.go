package auth_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// Changes are listed with who made them, by identity, in 80 columns.
func TestAudit_list(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	clitest.WantOutput(t, clitest.Command(t, g.env, "audit", "list"), "no changes by operators\n")
	const long = "a-source-with-a-long-name.shops.example"
	clitest.Command(t, g.env, "source", "create", long, "--seed", "https://a.example/", "--reason", "a first source of the shops of Europe")
	clitest.Command(t, g.env, "hold", "set", "--source", long, "--reason", "they move")
	got := clitest.Command(t, g.env, "audit", "list")
	lines := strings.Split(strings.TrimSpace(clitest.Settle(got.Out)), "\n")
	if len(lines) != 3 || lines[0] != "TIME  BY  WHAT  REASON" || !strings.HasPrefix(lines[1], "TIME  token:ada  SetHolds ") || !strings.HasSuffix(lines[1], "  they move") ||
		!strings.HasPrefix(lines[2], "TIME  token:ada  CreateSource "+long+"  a first") {
		t.Errorf("listed\n%s%s", got.Out, got.Err)
	}
	for line := range strings.Lines(clitest.OnTerminal(t, 0, g.env, "audit", "list")) {
		if utf8.RuneCountInString(strings.TrimSpace(line)) > 80 {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
	got = clitest.Command(t, g.env, "audit", "list", "--limit", "1", "--verbose")
	if !strings.Contains(got.Out, "By      token:ada, who wrote countess\n") || !strings.Contains(got.Out, "From    127.0.0.1") || !strings.Contains(got.Err, "more follow") {
		t.Errorf("verbose: %s%s", got.Out, got.Err)
	}
	clitest.WantOutput(t, clitest.Command(t, g.env, "audit", "list", "--by", "token:bob"), "no changes by token:bob\n")
	var reply struct {
		Entries []struct{ By, From, Method, Target, After, Reason string }
	}
	got = clitest.Command(t, g.env, "audit", "list", "--by", "token:ada", "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &reply); err != nil || len(reply.Entries) != 2 || reply.Entries[1].Method != "CreateSource" || reply.Entries[1].After == "" {
		t.Errorf("%v: %s", err, got.Out)
	}
}

// A collector id belongs to the identity that used it first, until it is released.
func TestAuth_release(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	first, second := g.token(t, "first", "--role", "collector"), g.token(t, "second", "--role", "collector")
	clitest.WantOutput(t, clitest.Command(t, g.env, "auth", "release", "eu-1"), "collector eu-1 belonged to nobody\n")
	collect := []string{"collect", "--id", "eu-1", "--out", t.TempDir(), "--log-format", "json"}
	of := clitest.Start(t, first, collect...)
	again(t, cli.ExitOK, "eu-1", g.env, "collector", "list")
	of.End()
	other := clitest.Start(t, second, collect...)
	other.Err.Line(t, `belongs to another identity`)
	got := clitest.Command(t, g.env, "auth", "release", "eu-1", "--reason", "a new token")
	if got.Code != cli.ExitOK || got.Out != "collector eu-1 belonged to token:first; the next identity that uses it owns it\n" {
		t.Errorf("release: %d, %s%s", got.Code, got.Out, got.Err)
	}
	if got := clitest.Command(t, g.env, "audit", "list"); !strings.Contains(got.Out, "ReleaseCollector eu-1  a new token") {
		t.Errorf("listed %s%s", got.Out, got.Err)
	}
}
