package task_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

func TestTask_CancelAndRetry(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "tour", "--scope", "tour")
	clitest.Command(t, env, "task", "submit", "--source", "tour", "https://news.example/today")
	clitest.WantOutput(t, clitest.Command(t, env, "task", "cancel", clitest.HeldTask, "--reason", "a trap"), `
RESULT    TASK                             STATE     WHY
CANCELED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  -
`)
	got := clitest.Command(t, env, "task", "cancel", clitest.HeldTask, clitest.NoTask)
	clitest.WantFailure(t, got, cli.ExitFailed, "1 task not found or refused")
	if want := `RESULT           TASK                             STATE     WHY
ALREADY_SETTLED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  -
NOT_FOUND        17-aaaaaaaaaaaaaaaaaaaaaaaaaa    -         -
2 tasks: 1 NOT_FOUND, 1 ALREADY_SETTLED
`; got.Out != want {
		t.Errorf("printed\n%s\nwant\n%s", got.Out, want)
	}
	clitest.WantOutput(t, clitest.Command(t, env, "task", "retry", clitest.HeldTask), `
RESULT   TASK                             STATE  WHY
RETRIED  2239-4bltnyzhotfdv53si3p3mp2jza  READY  -
`)
	clitest.WantOutput(t, clitest.Command(t, env, "task", "retry", clitest.HeldTask), `
RESULT       TASK                             STATE  WHY
NOT_SETTLED  2239-4bltnyzhotfdv53si3p3mp2jza  READY  -
`)
	clitest.Command(t, env, "task", "cancel", clitest.HeldTask)
	clitest.Command(t, env, "source", "delete", "tour")
	got = clitest.Command(t, env, "task", "retry", clitest.HeldTask)
	clitest.WantFailure(t, got, cli.ExitFailed, "1 task not found or refused")
	if !strings.Contains(got.Out, `REFUSED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  source_id "tour": source not found`) {
		t.Errorf("printed\n%s", got.Out)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "task", "retry", "nonsense"), cli.ExitUsage, "task_ids[0]")
}

// TestTask_ChangeByURL names the task by its source and URL, as wherever an id is taken.
func TestTask_ChangeByURL(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	for _, test := range []struct{ group, command, result, state string }{
		{"lease", "revoke", "REVOKED", "READY"},
		{"task", "cancel", "CANCELED", "CANCELED"},
		{"task", "retry", "RETRIED", "READY"},
	} {
		got := clitest.Command(t, env, test.group, test.command, "--source", "tour", "--url", "https://news.example/today")
		if got.Code != cli.ExitOK || !strings.Contains(got.Out, test.result+"  "+clitest.HeldTask+"  "+test.state) {
			t.Errorf("%s: exit code %d\n%s%s", test.command, got.Code, got.Out, got.Err)
		}
	}
	clitest.WantFailure(t, clitest.Command(t, env, "task", "cancel", clitest.HeldTask, "--source", "tour", "--url", "https://news.example/today"),
		cli.ExitUsage, "not both")
	clitest.WantFailure(t, clitest.Command(t, env, "task", "cancel", "--source", "tour"), cli.ExitUsage, "--dry-run", "--yes")
	clitest.WantFailure(t, clitest.Command(t, env, "task", "cancel", "--source", "tour", "--url", "", "--yes"), cli.ExitUsage, "which task? say its ID, or --source with --url or --key")
	clitest.WantFailure(t, clitest.Command(t, env, "task", "cancel", "--source", "tour", "--url", "https://news.example/never"), cli.ExitFailed, "task not found")
}

// TestTask_CancelMany goes in several calls, and counts instead of listing.
func TestTask_CancelMany(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	var urls strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&urls, "https://a.example/%d\n", i)
	}
	clitest.CommandWith(t, env, urls.String(), "task", "submit", "--source", "a", "--file", "-")
	var all struct{ Tasks []struct{ ID string } }
	list := clitest.Command(t, env, "task", "list", "--source", "a", "--limit", "0", "-o", "json")
	if err := json.Unmarshal([]byte(list.Out), &all); err != nil {
		t.Fatal(err)
	}
	args := []string{"task", "cancel"}
	for _, task := range all.Tasks {
		args = append(args, task.ID)
	}
	clitest.WantOutput(t, clitest.Command(t, env, args...), "1,500 tasks: 1,500 CANCELED\n")
	got := clitest.Command(t, env, append(args, clitest.NoTask, "-o", "json")...)
	var changes struct {
		Results []struct {
			TaskID, Code, State string
		} `json:"results"`
	}
	if err := json.Unmarshal([]byte(got.Out), &changes); err != nil || len(changes.Results) != 1501 || got.Code != cli.ExitFailed {
		t.Errorf("exit code %d, %d results: %v", got.Code, len(changes.Results), err)
	}
}

func TestLease_Revoke(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	clitest.WantOutput(t, clitest.Command(t, env, "task", "cancel", clitest.HeldTask, clitest.HeldTask), `
RESULT            TASK                             STATE   WHY
CANCEL_REQUESTED  2239-4bltnyzhotfdv53si3p3mp2jza  LEASED  -
CANCEL_REQUESTED  2239-4bltnyzhotfdv53si3p3mp2jza  LEASED  -
2 tasks: 2 CANCEL_REQUESTED
`)
	if got := clitest.Command(t, env, "task", "get", clitest.HeldTask); !strings.Contains(got.Out, "; a cancel is asked for: it ends CANCELED with its lease\n") {
		t.Errorf("does not say that its cancel was requested:\n%s", got.Out)
	}
	clitest.WantOutput(t, clitest.Command(t, env, "lease", "revoke", clitest.HeldTask+"@1"), `
RESULT       TASK                             STATE   WHY
OTHER_LEASE  2239-4bltnyzhotfdv53si3p3mp2jza  LEASED  -
`)
	if got := clitest.Command(t, env, "lease", "revoke", clitest.HeldTask+"@x"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "the fence after @") {
		t.Errorf("a fence that is none: exit code %d, %s", got.Code, got.Err)
	}
	clitest.WantOutput(t, clitest.Command(t, env, "lease", "revoke", "--collector", "nobody", "--yes"), "no tasks match\n")
	clitest.WantOutput(t, clitest.Command(t, env, "lease", "revoke", "--collector", "paris-1", "--dry-run"), `
nothing is changed; this is what would become of them
RESULT   TASK                             STATE     URL                         WHY
REVOKED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  https://news.example/today  -
`)
	clitest.WantOutput(t, clitest.Command(t, env, "lease", "revoke", "--collector", "paris-1", "--by", "ada", "--reason", "it hangs", "--yes"), `
RESULT   TASK                             STATE     WHY
REVOKED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  -
`)
	clitest.WantOutput(t, clitest.Command(t, env, "lease", "revoke", clitest.HeldTask), `
RESULT      TASK                             STATE     WHY
NOT_LEASED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  -
`)
	clitest.WantOutput(t, clitest.Command(t, env, "lease", "list"), "no leases\n")
	if got := clitest.Command(t, env, "task", "get", clitest.HeldTask); !strings.Contains(got.Out, "REVOKED   ada: it hangs\n") {
		t.Errorf("the history does not say who revoked the lease and why:\n%s", got.Out)
	}
}

// TestTask_ChangeByFilter cancels and retries what flags match, in as many calls as that takes.
func TestTask_ChangeByFilter(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	clitest.Command(t, env, "source", "create", "ab")
	var urls strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&urls, "https://a.example/%d\n", i)
	}
	clitest.CommandWith(t, env, urls.String(), "task", "submit", "--source", "a", "--file", "-")
	clitest.Command(t, env, "task", "submit", "--source", "ab", "https://a.example/ab")
	look := clitest.Settle(clitest.Command(t, env, "task", "cancel", "--source", "a", "--dry-run").Out)
	if lines := strings.Split(look, "\n"); len(lines) != 24 || !strings.HasSuffix(lines[2], "  CANCELED  https://a.example/0  -") ||
		!strings.HasSuffix(look, "\n1,500 tasks: 1,500 CANCELED\n") {
		t.Errorf("a look of %d lines:\n%s", len(lines), look)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "task", "cancel", "--source", "a", "--state", "dead"), cli.ExitUsage, "say scheduled, ready, leased")
	clitest.WantOutput(t, clitest.Command(t, env, "task", "cancel", "--source", "a", "--yes"), "1,500 tasks: 1,500 CANCELED\n")
	clitest.WantOutput(t, clitest.Command(t, env, "task", "cancel", "--source", "a", "--yes"), "no tasks match\n")
	clitest.WantOutput(t, clitest.Command(t, env, "task", "retry", "--source", "a", "--state", "dead", "--yes"), "no tasks match\n")
	var all struct {
		Results          []any
		Matched, Changed int
	}
	got := clitest.Command(t, env, "task", "retry", "--suffix", "example", "--all", "--state", "canceled", "--yes", "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &all); err == nil || got.Code != cli.ExitUsage {
		t.Errorf("everything beside something: exit code %d, %s", got.Code, got.Out)
	}
	got = clitest.Command(t, env, "task", "retry", "--suffix", "example", "--state", "canceled", "--yes", "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &all); err != nil || len(all.Results) != 1500 || all.Matched != 1500 || all.Changed != 1500 {
		t.Errorf("%d results, %d matched, %d changed: %v", len(all.Results), all.Matched, all.Changed, err)
	}
}

// TestTask_ChangeAllOnPurpose wants flags that match many to be meant.
func TestTask_ChangeAllOnPurpose(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	for _, args := range [][]string{
		{"lease", "revoke", "--all"},
		{"lease", "revoke", "--collector", "paris-1"},
		{"task", "cancel", "--all"},
		{"task", "retry", "--all", "--state", "canceled"},
	} {
		clitest.WantFailure(t, clitest.Command(t, env, args...), cli.ExitUsage, "--dry-run", "--yes")
		if got := clitest.Command(t, env, append(args, "--dry-run")...); got.Code != cli.ExitOK {
			t.Errorf("%v --dry-run: exit code %d, %s", args, got.Code, got.Err)
		}
	}
	if got := clitest.Command(t, env, "lease", "list"); !strings.Contains(got.Out, clitest.HeldTask) {
		t.Errorf("nobody holds the task:\n%s", got.Out)
	}
}
