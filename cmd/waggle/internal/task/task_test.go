package task_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

func TestTask_Submit(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "tour.news", "--scope", "tour")
	got := clitest.Command(t, env, "task", "submit", "--source", "tour.news", "https://news.example/today", "https://news.example/today#top", "nonsense")
	clitest.WantFailure(t, got, cli.ExitFailed, "1 task not submitted")
	want := `RESULT   TASK                             STATE  URL
CREATED  2239-4bltnyzhotfdv53si3p3mp2jza  READY  https://news.example/today
EXISTS   2239-4bltnyzhotfdv53si3p3mp2jza  READY  https://news.example/today#top
3 tasks: 1 created, 1 existed, 0 due again, 0 limited, 1 invalid
`
	if got.Out != want {
		t.Errorf("printed\n%s\nwant\n%s", got.Out, want)
	}
	clitest.WantOutput(t, clitest.Command(t, env, "task", "submit", "--source", "tour.news", "--key", "item-17", "--queue", "api.example", "--due", "2h"), `
RESULT   TASK                             STATE      URL
CREATED  2419-7d34pjxnqromc3oibv6ecunona  SCHEDULED  item-17
`)
	lines := "# urls\n\nhttps://news.example/1\n" + `{"source_id": "tour.news", "url": "https://news.example/2", "priority": 9, "payload": "aGk="}` + "\n"
	clitest.WantOutput(t, clitest.CommandWith(t, env, lines, "task", "submit", "--source", "tour.news", "--file", "-", "--kind", "article", "--metadata", "a=b"), `
RESULT   TASK                             STATE  URL
CREATED  2239-dhhdfwpn4gxrmwilkyof2urvn4  READY  https://news.example/1
CREATED  2239-277vtxk6o3kh7oqis5fp7ldmtu  READY  https://news.example/2
2 tasks: 2 created, 0 existed, 0 due again, 0 limited, 0 invalid
`)
	shown := clitest.Command(t, env, "task", "get", "--source", "tour.news", "--url", "https://news.example/2")
	for _, line := range []string{"Place     submitted, priority 9, kind article\n", "Metadata  a=b\n", "Payload   2 B\n"} {
		if !strings.Contains(shown.Out, line) {
			t.Errorf("lacks %q:\n%s", line, shown.Out)
		}
	}
	clitest.WantFailure(t, clitest.CommandWith(t, env, `{"url": "https://x.example"}`, "task", "submit", "-f", "-"), cli.ExitFailed, "waggle: standard input, line 1: names no source_id, and --source is missing\n")
	clitest.WantFailure(t, clitest.CommandWith(t, env, `{"urls": 1}`, "task", "submit", "-f", "-"), cli.ExitFailed, "waggle: standard input, line 1: is no SubmitItem: (column 2): unknown field \"urls\"\n")
}

// TestTask_SubmitMany goes in several calls, and shows only what was refused.
func TestTask_SubmitMany(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	var urls strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&urls, "https://a.example/%d\n", i)
	}
	urls.WriteString("nonsense\n")
	got := clitest.CommandWith(t, env, urls.String(), "task", "submit", "--source", "a", "--file", "-")
	clitest.WantFailure(t, got, cli.ExitFailed, "1 task not submitted",
		`waggle: standard input, line 2501: nonsense: url is "nonsense"; it must begin with http:// or https://`+"\n")
	want := `2,501 tasks: 2,500 created, 0 existed, 0 due again, 0 limited, 1 invalid
`
	if got.Out != want {
		t.Errorf("printed\n%s\nwant\n%s", got.Out, want)
	}

	list := clitest.Command(t, env, "task", "list", "--source", "a", "--limit", "1200", "-o", "json")
	var all struct{ Tasks []struct{ ID string } }
	if err := json.Unmarshal([]byte(list.Out), &all); err != nil || len(all.Tasks) != 1200 {
		t.Errorf("%d tasks: %v", len(all.Tasks), err)
	}
	if want := "more follow after these 1,200; --limit 0 lists all\n"; list.Err != want {
		t.Errorf("stderr %q, want %q", list.Err, want)
	}
	list = clitest.Command(t, env, "task", "list", "--source", "a", "--limit", "0", "-o", "json")
	if err := json.Unmarshal([]byte(list.Out), &all); err != nil || len(all.Tasks) != 2500 || list.Err != "" {
		t.Errorf("%d tasks, stderr %q: %v", len(all.Tasks), list.Err, err)
	}
}

func TestTask_GetAndList(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.WantFailure(t, clitest.Command(t, env, "task", "list", "--source", "tour"), cli.ExitFailed, "source not found")
	clitest.Command(t, env, "source", "create", "tour", "--scope", "tour")
	clitest.WantOutput(t, clitest.Command(t, env, "task", "list", "--source", "tour"), "no tasks (DONE ones are not listed; `waggle task get` finds them)\n")
	clitest.Command(t, env, "task", "submit", "--source", "tour", "https://news.example/today")
	clitest.WantOutput(t, clitest.Command(t, env, "task", "list", "--queue", "news.example"), `
TASK                             STATE  SOURCE  DUE  DEPTH  HELD BY  URL                         LAST ERROR
2239-4bltnyzhotfdv53si3p3mp2jza  READY  tour    AGO      0  -        https://news.example/today  -
`)
	clitest.WantOutput(t, clitest.Command(t, env, "task", "list", "--source", "tour", "--state", "dead,canceled"),
		"no tasks (DONE ones are not listed; `waggle task get` finds them)\n")
	want := `
Task     2239-4bltnyzhotfdv53si3p3mp2jza
URL      https://news.example/today
Source   tour
Queue    news.example, pool default
State    READY
Due      AGO (TIME)
Place    submitted, priority 5
Cycle    0, attempt 0: 0 failures, 0 expirations, 0 throttled
Created  AGO (TIME)
`
	clitest.WantOutput(t, clitest.Command(t, env, "task", "get", "2239-4bltnyzhotfdv53si3p3mp2jza"), want)
	clitest.WantOutput(t, clitest.Command(t, env, "task", "get", "--source", "tour", "--url", "HTTPS://news.example/today#x"), want)
	clitest.WantOutput(t, clitest.Command(t, env, "task", "get", "--source", "tour", "--key", "https://news.example/today", "--queue", "news.example"), want)
	clitest.WantFailure(t, clitest.Command(t, env, "task", "get", "--source", "tour", "--url", "https://news.example/no"), cli.ExitFailed, "task not found", "never submitted")
	clitest.WantFailure(t, clitest.Command(t, env, "task", "get", "nonsense"), cli.ExitUsage, "task_id")
}
