package main_test

import (
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// A queue is found by any spelling of its host, and by a URL, as a task is.
func TestQueue_names(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "s", "--seed", "https://bücher.example/")
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
			got := command(t, env, args...)
			if got.code != waggle.ExitOK || strings.Contains(got.out, "no tasks") || strings.Contains(got.out, "no queues") || strings.Contains(got.out, "0 waiting") {
				t.Errorf("%v: %d, %s%s", args, got.code, got.out, got.err)
			}
		}
	}
	command(t, env, "queue", "rule", "set", "*.Shops.Example", "--queue", "Shops", "--min-delay", "2s")
	got := command(t, env, "queue", "get", "https://Never.shops.example/seen")
	for _, part := range []string{"Queue       never.shops.example", "Mapped      new tasks of this host go to the queue shops"} {
		if !strings.Contains(got.out, part) {
			t.Errorf("lacks %q: %s%s", part, got.out, got.err)
		}
	}
	if got = command(t, env, "queue", "get", "shops"); !strings.Contains(got.out, "2s apart, 1 at a time, blocked at most 1d (by shops)") {
		t.Errorf("the queue it maps to: %s%s", got.out, got.err)
	}
}

// Hosts whose sources are there already come to one queue: their seeds move by an
// import, and then the rule can be set.
func TestQueue_mapImported(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	file := write(t, "shops.csv", "id,url,kind,every\na,https://a.shops.example/,feed,1d\nb,https://b.shops.example/,,1d\nc,https://c.example/,,1d\n")
	command(t, env, "source", "import", file)
	rule := []string{"queue", "rule", "set", "*.shops.example", "--queue", "shops"}
	got := command(t, env, rule...)
	wantFailure(t, got, waggle.ExitFailed, `queue not empty: pattern "*.shops.example", tasks_left_in "a.shops.example (1), b.shops.example (1)"`+"\n",
		"source import FILE --queue NAME")
	if moved := command(t, env, "source", "import", file, "--queue", "Shops"); !strings.Contains(moved.out, "updated: seeds.queue of 3") {
		t.Errorf("%s%s", moved.out, moved.err)
	}
	if a := spec(t, env, "a"); a.GetSeeds()[0].GetQueue() != "shops" || a.GetSeeds()[0].GetKind() != "feed" {
		t.Errorf("a is %v", a)
	}
	if got = command(t, env, rule...); got.code != waggle.ExitOK {
		t.Errorf("%s%s", got.out, got.err)
	}
	if got = command(t, env, "queue", "get", "shops"); !strings.Contains(got.out, "3 waiting") {
		t.Errorf("%s%s", got.out, got.err)
	}
	exported := command(t, env, "source", "export", "--format", "csv", "--prefix", "a")
	if !strings.Contains(exported.out, ",feed,shops,") {
		t.Errorf("exported %s", exported.out)
	}
}

func TestQueue_contradictoryRule(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	got := command(t, env, "queue", "rule", "set", "a.example", "--min-delay", "10s", "--max-delay", "5s")
	wantFailure(t, got, waggle.ExitUsage, "rule.max_delay is \"5s\"; it must be min_delay, 10s, or more")
}

// Of a host that is mapped to another queue it is shown where its rule is.
func TestQueue_mapped(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "a.example", "--queue", "merged")
	if got := command(t, env, "queue", "get", "a.example"); !strings.Contains(got.out, "(by default: the rule is for merged)") {
		t.Errorf("which rule sets it:\n%s", got.out)
	}
}
