package root_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

func TestAdmin_Tables(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.WantOutput(t, clitest.Command(t, env, "collector", "list"), "no collectors; `waggle collect` starts one\n")
	clitest.WantOutput(t, clitest.Command(t, env, "lease", "list"), "no leases\n")
	clitest.HoldOne(t, env)
	leases := clitest.Command(t, env, "lease", "list")
	leases.Out = regexp.MustCompile(`(paris-1 +)\S+`).ReplaceAllString(leases.Out, "${1}SOON")
	clitest.WantOutput(t, leases, `
TASK                             SOURCE  QUEUE         HOLDER   HELD FOR  ENDS    FENCE  URL
2239-4bltnyzhotfdv53si3p3mp2jza  tour    news.example  paris-1  SOON      in 20m  FENCE  https://news.example/today
`)
	for args, held := range map[string]bool{
		"--source tour": true, "--queue NEWS.example --collector paris-1": true, "--collector paris-1 --limit 1": true,
		"--queue example": false, "--source tour --collector paris": false,
	} {
		got := clitest.Command(t, env, append([]string{"lease", "list"}, strings.Fields(args)...)...)
		if got.Code != cli.ExitOK || strings.Contains(got.Out, "2239-4bltnyzhotfdv53si3p3mp2jza") != held || (got.Out == "no leases\n") == held {
			t.Errorf("lease list %s: %d, %s%s", args, got.Code, got.Out, got.Err)
		}
	}
	clitest.WantOutput(t, clitest.Command(t, env, "collector", "list"), `
COLLECTOR  STATE   LEASES  SLOTS  STUCK  POOLS    ONLY  LAST BEAT  STARTED  HOST   VERSION  CLIENT           LABELS            HELD  FAILS
paris-1    ACTIVE       1      4      0  default  -       AGO  AGO      paris  v1       waggle-go/0.1.0  region=eu tier=1  -     -
`)
	got := clitest.Command(t, env, "task", "get", "--source", "tour", "--url", "https://news.example/")
	for _, part := range []string{
		"State        SCHEDULED\n", "Last error   NOT_FOUND (HTTP 404): nothing here, ", "seed, priority 5",
		"CYCLE  COLLECTOR", "FAILED  NOT_FOUND, HTTP 404, nothing here\n",
	} {
		if !strings.Contains(got.Out, part) {
			t.Errorf("lacks %q:\n%s", part, got.Out)
		}
	}
	got = clitest.Command(t, env, "task", "get", "--source", "tour", "--url", "https://news.example/today")
	if !strings.Contains(got.Out, "State    LEASED by paris-1 for ") || !strings.Contains(got.Out, ", 20m left (fence ") {
		t.Errorf("does not say who holds it:\n%s", got.Out)
	}
	got = clitest.Command(t, env, "stats")
	for _, line := range []string{
		"Tasks       1 scheduled, 0 ready, 1 leased; 0 done, 0 dead, 0 canceled\n", "Leases      1\n", "Collectors  1\n",
		"Ever        2 granted, 1 settled, 0 expired\n", "Store       memory, 1 shard\n",
	} {
		if !strings.Contains(got.Out, line) {
			t.Errorf("lacks %q:\n%s", line, got.Out)
		}
	}
}

func TestAdmin_JSON(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	for _, args := range [][]string{
		{"stats"},
		{"lease", "list"},
		{"collector", "list"},
		{"queue", "list"},
		{"queue", "rule", "list"},
		{"queue", "get", "news.example"},
		{"task", "list", "--source", "tour"},
		{"task", "get", "--source", "tour", "--url", "https://news.example/"},
	} {
		got := clitest.Command(t, env, append(args, "--output", "json")...)
		var whole map[string]any
		if err := json.Unmarshal([]byte(got.Out), &whole); err != nil || got.Code != cli.ExitOK || len(whole) == 0 {
			t.Errorf("%s: exit code %d, %v:\n%s%s", strings.Join(args, " "), got.Code, err, got.Out, got.Err)
		}
		if again := clitest.Command(t, env, append(args, "--output", "json")...); args[0] == "queue" && again.Out != got.Out {
			t.Errorf("%s prints the same in two ways:\n%s%s", strings.Join(args, " "), got.Out, again.Out)
		}
	}
}

// Collectors and leases are found by what they have, and a hold on a collector is its state.
func TestAdmin_filters(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	clitest.Command(t, env, "hold", "set", "--collector-label", "region=eu", "--reason", "new image")
	for args, listed := range map[string]bool{
		"collector list --state held": true, "collector list --state active": false, "collector list --label tier=1,region=eu": true,
		"collector list --label tier=1,region=us": false, "collector list --pool default": true, "collector list --pool browser": false,
		"collector list --collector paris-1": true, "collector list --collector paris": false, "lease list --prefix to": true, "lease list --prefix a": false,
		"lease list --pool default": true, "lease list --pool browser": false, "lease list --suffix example": true,
		"hold list --collector paris-1": true, "hold list --collector paris-2": false,
	} {
		got := clitest.Command(t, env, strings.Fields(args)...)
		if has := strings.Contains(got.Out, "paris-1") || strings.Contains(got.Out, "region=eu"); got.Code != cli.ExitOK || has != listed {
			t.Errorf("%s: %d, %s%s", args, got.Code, got.Out, got.Err)
		}
	}
	if got := clitest.Command(t, env, "collector", "list"); !strings.Contains(clitest.Settle(got.Out), "collectors region=eu by ada, AGO: new image  -\n") {
		t.Errorf("what holds it:\n%s", got.Out)
	}
	if got := clitest.Command(t, env, "stats"); !strings.Contains(got.Out, "Holds       1, beside those on sources\n") {
		t.Errorf("stats:\n%s", got.Out)
	}
}
