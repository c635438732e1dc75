package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

const (
	heldTask = "2239-4bltnyzhotfdv53si3p3mp2jza" // holdOne's https://news.example/today
	noTask   = "17-aaaaaaaaaaaaaaaaaaaaaaaaaa"
)

func TestTask_CancelAndRetry(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "tour", "--scope", "tour")
	command(t, env, "task", "submit", "--source", "tour", "https://news.example/today")
	wantOutput(t, command(t, env, "task", "cancel", heldTask, "--reason", "a trap"), `
RESULT    TASK                             STATE     WHY
CANCELED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  -
`)
	got := command(t, env, "task", "cancel", heldTask, noTask)
	wantFailure(t, got, waggle.ExitFailed, "1 task not found or refused")
	if want := `RESULT           TASK                             STATE     WHY
ALREADY_SETTLED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  -
NOT_FOUND        17-aaaaaaaaaaaaaaaaaaaaaaaaaa    -         -
2 tasks: 1 NOT_FOUND, 1 ALREADY_SETTLED
`; got.out != want {
		t.Errorf("printed\n%s\nwant\n%s", got.out, want)
	}
	wantOutput(t, command(t, env, "task", "retry", heldTask), `
RESULT   TASK                             STATE  WHY
RETRIED  2239-4bltnyzhotfdv53si3p3mp2jza  READY  -
`)
	wantOutput(t, command(t, env, "task", "retry", heldTask), `
RESULT       TASK                             STATE  WHY
NOT_SETTLED  2239-4bltnyzhotfdv53si3p3mp2jza  READY  -
`)
	command(t, env, "task", "cancel", heldTask)
	command(t, env, "source", "delete", "tour")
	got = command(t, env, "task", "retry", heldTask)
	wantFailure(t, got, waggle.ExitFailed, "1 task not found or refused")
	if !strings.Contains(got.out, `REFUSED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  source_id "tour": source not found`) {
		t.Errorf("printed\n%s", got.out)
	}
	wantFailure(t, command(t, env, "task", "retry", "nonsense"), waggle.ExitUsage, "task_ids[0]")
}

// TestTask_ChangeByURL names the task by its source and URL, as wherever an id is taken.
func TestTask_ChangeByURL(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	holdOne(t, env)
	for _, test := range []struct{ group, command, result, state string }{
		{"lease", "revoke", "REVOKED", "READY"},
		{"task", "cancel", "CANCELED", "CANCELED"},
		{"task", "retry", "RETRIED", "READY"},
	} {
		got := command(t, env, test.group, test.command, "--source", "tour", "--url", "https://news.example/today")
		if got.code != waggle.ExitOK || !strings.Contains(got.out, test.result+"  "+heldTask+"  "+test.state) {
			t.Errorf("%s: exit code %d\n%s%s", test.command, got.code, got.out, got.err)
		}
	}
	wantFailure(t, command(t, env, "task", "cancel", heldTask, "--source", "tour", "--url", "https://news.example/today"),
		waggle.ExitUsage, "not both")
	wantFailure(t, command(t, env, "task", "cancel", "--source", "tour"), waggle.ExitUsage, "--dry-run", "--yes")
	wantFailure(t, command(t, env, "task", "cancel", "--source", "tour", "--url", "", "--yes"), waggle.ExitUsage, "which task? say its ID, or --source with --url or --key")
	wantFailure(t, command(t, env, "task", "cancel", "--source", "tour", "--url", "https://news.example/never"), waggle.ExitFailed, "task not found")
}

// TestTask_CancelMany goes in several calls, and counts instead of listing.
func TestTask_CancelMany(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "a")
	var urls strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&urls, "https://a.example/%d\n", i)
	}
	commandWith(t, env, urls.String(), "task", "submit", "--source", "a", "--file", "-")
	var all struct{ Tasks []struct{ ID string } }
	list := command(t, env, "task", "list", "--source", "a", "--limit", "0", "-o", "json")
	if err := json.Unmarshal([]byte(list.out), &all); err != nil {
		t.Fatal(err)
	}
	args := []string{"task", "cancel"}
	for _, task := range all.Tasks {
		args = append(args, task.ID)
	}
	wantOutput(t, command(t, env, args...), "1,500 tasks: 1,500 CANCELED\n")
	got := command(t, env, append(args, noTask, "-o", "json")...)
	var changes struct {
		Results []struct {
			TaskID, Code, State string
		} `json:"results"`
	}
	if err := json.Unmarshal([]byte(got.out), &changes); err != nil || len(changes.Results) != 1501 || got.code != waggle.ExitFailed {
		t.Errorf("exit code %d, %d results: %v", got.code, len(changes.Results), err)
	}
}

func TestLease_Revoke(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	holdOne(t, env)
	wantOutput(t, command(t, env, "task", "cancel", heldTask, heldTask), `
RESULT            TASK                             STATE   WHY
CANCEL_REQUESTED  2239-4bltnyzhotfdv53si3p3mp2jza  LEASED  -
CANCEL_REQUESTED  2239-4bltnyzhotfdv53si3p3mp2jza  LEASED  -
2 tasks: 2 CANCEL_REQUESTED
`)
	if got := command(t, env, "task", "get", heldTask); !strings.Contains(got.out, "; a cancel is asked for: it ends CANCELED with its lease\n") {
		t.Errorf("does not say that its cancel was requested:\n%s", got.out)
	}
	wantOutput(t, command(t, env, "lease", "revoke", heldTask+"@1"), `
RESULT       TASK                             STATE   WHY
OTHER_LEASE  2239-4bltnyzhotfdv53si3p3mp2jza  LEASED  -
`)
	if got := command(t, env, "lease", "revoke", heldTask+"@x"); got.code != waggle.ExitUsage || !strings.Contains(got.err, "the fence after @") {
		t.Errorf("a fence that is none: exit code %d, %s", got.code, got.err)
	}
	wantOutput(t, command(t, env, "lease", "revoke", "--collector", "nobody", "--yes"), "no tasks match\n")
	wantOutput(t, command(t, env, "lease", "revoke", "--collector", "paris-1", "--dry-run"), `
nothing is changed; this is what would become of them
RESULT   TASK                             STATE     URL                         WHY
REVOKED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  https://news.example/today  -
`)
	wantOutput(t, command(t, env, "lease", "revoke", "--collector", "paris-1", "--by", "ada", "--reason", "it hangs", "--yes"), `
RESULT   TASK                             STATE     WHY
REVOKED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  -
`)
	wantOutput(t, command(t, env, "lease", "revoke", heldTask), `
RESULT      TASK                             STATE     WHY
NOT_LEASED  2239-4bltnyzhotfdv53si3p3mp2jza  CANCELED  -
`)
	wantOutput(t, command(t, env, "lease", "list"), "no leases\n")
	if got := command(t, env, "task", "get", heldTask); !strings.Contains(got.out, "REVOKED   ada: it hangs\n") {
		t.Errorf("the history does not say who revoked the lease and why:\n%s", got.out)
	}
}

// TestTask_ChangeByFilter cancels and retries what flags match, in as many calls as that takes.
func TestTask_ChangeByFilter(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "a")
	command(t, env, "source", "create", "ab")
	var urls strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&urls, "https://a.example/%d\n", i)
	}
	commandWith(t, env, urls.String(), "task", "submit", "--source", "a", "--file", "-")
	command(t, env, "task", "submit", "--source", "ab", "https://a.example/ab")
	look := settle(command(t, env, "task", "cancel", "--source", "a", "--dry-run").out)
	if lines := strings.Split(look, "\n"); len(lines) != 24 || !strings.HasSuffix(lines[2], "  CANCELED  https://a.example/0  -") ||
		!strings.HasSuffix(look, "\n1,500 tasks: 1,500 CANCELED\n") {
		t.Errorf("a look of %d lines:\n%s", len(lines), look)
	}
	wantFailure(t, command(t, env, "task", "cancel", "--source", "a", "--state", "dead"), waggle.ExitUsage, "say scheduled, ready, leased")
	wantOutput(t, command(t, env, "task", "cancel", "--source", "a", "--yes"), "1,500 tasks: 1,500 CANCELED\n")
	wantOutput(t, command(t, env, "task", "cancel", "--source", "a", "--yes"), "no tasks match\n")
	wantOutput(t, command(t, env, "task", "retry", "--source", "a", "--state", "dead", "--yes"), "no tasks match\n")
	var all struct {
		Results          []any
		Matched, Changed int
	}
	got := command(t, env, "task", "retry", "--suffix", "example", "--all", "--state", "canceled", "--yes", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &all); err == nil || got.code != waggle.ExitUsage {
		t.Errorf("everything beside something: exit code %d, %s", got.code, got.out)
	}
	got = command(t, env, "task", "retry", "--suffix", "example", "--state", "canceled", "--yes", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || len(all.Results) != 1500 || all.Matched != 1500 || all.Changed != 1500 {
		t.Errorf("%d results, %d matched, %d changed: %v", len(all.Results), all.Matched, all.Changed, err)
	}
}

// TestTask_ChangeAllOnPurpose wants flags that match many to be meant.
func TestTask_ChangeAllOnPurpose(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	holdOne(t, env)
	for _, args := range [][]string{
		{"lease", "revoke", "--all"},
		{"lease", "revoke", "--collector", "paris-1"},
		{"task", "cancel", "--all"},
		{"task", "retry", "--all", "--state", "canceled"},
	} {
		wantFailure(t, command(t, env, args...), waggle.ExitUsage, "--dry-run", "--yes")
		if got := command(t, env, append(args, "--dry-run")...); got.code != waggle.ExitOK {
			t.Errorf("%v --dry-run: exit code %d, %s", args, got.code, got.err)
		}
	}
	if got := command(t, env, "lease", "list"); !strings.Contains(got.out, heldTask) {
		t.Errorf("nobody holds the task:\n%s", got.out)
	}
}
