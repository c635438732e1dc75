package queue_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// A queue is found by any spelling of its host, and by a URL, as a task is.
func TestQueue_names(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "s", "--seed", "https://bücher.example/")
	for _, name := range []string{"bücher.example", "BÜCHER.example.", "https://xn--bcher-kva.example/page", "xn--bcher-kva.example"} {
		for _, args := range [][]string{
			{"queue", "get", name},
			{"hold", "set", "--queue", name},
			{"hold", "lift", "--queue", name},
			{"queue", "list", "--suffix", name},
			{"explain", "queue", name},
			{"task", "list", "--queue", name},
			{"task", "cancel", "--queue", name, "--dry-run"},
			{"queue", "rule", "set", "*." + name, "--min-delay", "2s"},
			{"queue", "rule", "delete", "*." + name},
		} {
			got := clitest.Command(t, env, args...)
			if got.Code != cli.ExitOK || strings.Contains(got.Out, "no tasks") || strings.Contains(got.Out, "no queues") || strings.Contains(got.Out, "0 waiting") {
				t.Errorf("%v: %d, %s%s", args, got.Code, got.Out, got.Err)
			}
		}
	}
	clitest.Command(t, env, "queue", "rule", "set", "*.Shops.Example", "--queue", "Shops", "--min-delay", "2s")
	got := clitest.Command(t, env, "queue", "get", "https://Never.shops.example/seen")
	for _, part := range []string{"Queue       never.shops.example", "Mapped      new tasks of this host go to the queue shops"} {
		if !strings.Contains(got.Out, part) {
			t.Errorf("lacks %q: %s%s", part, got.Out, got.Err)
		}
	}
	if got = clitest.Command(t, env, "queue", "get", "shops"); !strings.Contains(got.Out, "2s apart, 1 at a time, blocked at most 1d (by shops)") {
		t.Errorf("the queue it maps to: %s%s", got.Out, got.Err)
	}
}

// Hosts whose sources are there already come to one queue: their seeds move by an
// import, and then the rule can be set.
func TestQueue_mapImported(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	file := clitest.WriteFile(t, "shops.csv", "id,url,kind,every\na,https://a.shops.example/,feed,1d\nb,https://b.shops.example/,,1d\nc,https://c.example/,,1d\n")
	clitest.Command(t, env, "source", "import", file)
	rule := []string{"queue", "rule", "set", "*.shops.example", "--queue", "shops"}
	got := clitest.Command(t, env, rule...)
	clitest.WantFailure(t, got, cli.ExitFailed, `queue not empty: pattern "*.shops.example", tasks_left_in "a.shops.example (1), b.shops.example (1)"`+"\n",
		"source import FILE --queue NAME")
	if moved := clitest.Command(t, env, "source", "import", file, "--queue", "Shops"); !strings.Contains(moved.Out, "updated: seeds.queue of 3") {
		t.Errorf("%s%s", moved.Out, moved.Err)
	}
	if a := clitest.SourceSpec(t, env, "a"); a.GetSeeds()[0].GetQueue() != "shops" || a.GetSeeds()[0].GetKind() != "feed" {
		t.Errorf("a is %v", a)
	}
	if got = clitest.Command(t, env, rule...); got.Code != cli.ExitOK {
		t.Errorf("%s%s", got.Out, got.Err)
	}
	if got = clitest.Command(t, env, "queue", "get", "shops"); !strings.Contains(got.Out, "3 waiting") {
		t.Errorf("%s%s", got.Out, got.Err)
	}
	exported := clitest.Command(t, env, "source", "export", "--format", "csv", "--prefix", "a")
	if !strings.Contains(exported.Out, ",feed,shops,") {
		t.Errorf("exported %s", exported.Out)
	}
}

func TestQueue_contradictoryRule(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	got := clitest.Command(t, env, "queue", "rule", "set", "a.example", "--min-delay", "10s", "--max-delay", "5s")
	clitest.WantFailure(t, got, cli.ExitUsage, "rule.max_delay is \"5s\"; it must be min_delay, 10s, or more")
}

// Of a host that is mapped to another queue it is shown where its rule is.
func TestQueue_mapped(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "a.example", "--queue", "merged")
	if got := clitest.Command(t, env, "queue", "get", "a.example"); !strings.Contains(got.Out, "(by default: the rule is for merged)") {
		t.Errorf("which rule sets it:\n%s", got.Out)
	}
}
