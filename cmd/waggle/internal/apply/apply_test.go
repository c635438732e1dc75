package apply_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// config is a file with one of each kind, twice.
func config() string {
	return `# what news crawls
kind: queue_rule
pattern: "*.example"
min_delay: 2s
---
kind: hold
target: {queue: shop.example}
reason: they asked
---
- id: news.a
  seeds: [{url: "https://a.example/", kind: feed}]
  schedule: {every: 30m}
  first_crawl: spread
- kind: source
  id: news.b
  seeds: [{url: "https://b.example/"}]
- kind: hold
  target: {collector_labels: {region: eu}}
  name: move
  effect: end-leases
  until: ` + time.Now().Add(48*time.Hour).UTC().Format(time.RFC3339) + `
`
}

// What files say is there after an apply; a dry run changes nothing, and the same files again change nothing.
func TestApply(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "default")
	text := config()
	file := clitest.WriteFile(t, "waggle.yaml", text)
	got := clitest.Command(t, env, "apply", "-f", file, "--dry-run")
	for _, part := range []string{
		"CREATED  queue_rule  *.example", "2s apart, 1 at a time", "CREATED  hold        queue shop.example", "CREATED  source      news.a", "CREATED  hold        collectors region=eu move",
		"nothing is changed; it would be: 5 created, 0 updated, 0 unchanged\n",
	} {
		if !strings.Contains(got.Out, part) {
			t.Errorf("dry run lacks %q:\n%s%s", part, got.Out, got.Err)
		}
	}
	if list := clitest.Command(t, env, "source", "list").Out + clitest.Command(t, env, "hold", "list").Out + clitest.Command(t, env, "queue", "rule", "list").Out; strings.Contains(list, "example") {
		t.Errorf("a dry run changed\n%s", list)
	}
	if got := clitest.Command(t, env, "apply", "-f", file); got.Code != cli.ExitOK || !strings.HasSuffix(got.Out, "\n5 created, 0 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.Code, got.Out, got.Err)
	}
	if got := clitest.Command(t, env, "hold", "list"); !strings.Contains(got.Out, "collectors region=eu  move     END_LEASES") || !strings.Contains(got.Out, "they asked") {
		t.Errorf("holds:\n%s%s", got.Out, got.Err)
	}
	if a := clitest.SourceSpec(t, env, "news.a"); a.GetSchedule().GetEvery().AsDuration().Minutes() != 30 || a.GetFirstCrawl().String() != "FIRST_CRAWL_SPREAD" {
		t.Errorf("news.a is %v", a)
	}
	clitest.WantOutput(t, clitest.Command(t, env, "apply", "-f", file, "--by", "bob"), "0 created, 0 updated, 5 unchanged\n")

	changed := clitest.WriteFile(t, "changed.yaml", strings.NewReplacer("30m", "1h", "2s", "3s", "they asked", "they insist").Replace(text))
	got = clitest.Command(t, env, "apply", "-f", changed, "-o", "json")
	var report struct {
		Updated, Unchanged int
		Entries            []struct{ Name, Result, Text string }
	}
	if err := json.Unmarshal([]byte(got.Out), &report); err != nil || report.Updated != 3 || report.Unchanged != 2 {
		t.Fatalf("%v: %s%s", err, got.Out, got.Err)
	}
	for i, want := range []string{"min_delay from 2s to 3s", "they insist; it was by ada, ", "schedule.every"} {
		if !strings.Contains(report.Entries[i].Text, want) {
			t.Errorf("%s: %q lacks %q", report.Entries[i].Name, report.Entries[i].Text, want)
		}
	}
}

// A directory is read in the order of its files, each in its format; what it leaves out has its default.
func TestApply_directory(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": config(), "more/b.csv": "id,url,every\nnews.c,https://c.example/,1h\n", "more/c.jsonl": `{"id": "news.d", "seeds": [{"url": "https://d.example/"}]}` + "\n" +
			`{"kind": "queue_rule", "pattern": "d.example", "max_in_flight": 3}` + "\n", "README.md": "no config", ".hidden.yaml": "kind: [",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := clitest.Command(t, env, "apply", "-f", dir); got.Code != cli.ExitOK || !strings.HasSuffix(got.Out, "\n8 created, 0 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.Code, got.Out, got.Err)
	}
	exported := clitest.Command(t, env, "source", "export")
	if got := clitest.CommandWith(t, env, exported.Out, "apply", "-f", "-"); got.Code != cli.ExitOK || got.Out != "0 created, 0 updated, 4 unchanged\n" {
		t.Errorf("what was exported: %d, %s%s", got.Code, got.Out, got.Err)
	}
}

// What a Waggle has, as the commands write it, comes back in another one, with who held what.
func TestApply_roundTrip(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "default")
	clitest.Command(t, env, "apply", "-f", clitest.WriteFile(t, "waggle.yaml", config()))
	clitest.Command(t, env, "hold", "set", "--source", "news.a", "--by", "eve", "--reason", "they move")
	dir := t.TempDir()
	for name, args := range map[string]string{
		"sources.jsonl": "source export", "rules.json": "queue rule list -o json --limit 0", "holds.json": "hold list -o json --limit 0",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(clitest.Command(t, env, strings.Fields(args)...).Out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clitest.WantOutput(t, clitest.Command(t, env, "apply", "-f", dir), "0 created, 0 updated, 6 unchanged\n")
	other, _ := clitest.Served(t)
	clitest.Taken(t, other, "default")
	if got := clitest.Command(t, clitest.With(other, "USER", "bob"), "apply", "-f", dir); got.Code != cli.ExitOK || !strings.HasSuffix(got.Out, "\n6 created, 0 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.Code, got.Out, got.Err)
	}
	for _, args := range [][]string{{"source", "export"}, {"hold", "list"}} {
		if was, is := clitest.Settle(clitest.Command(t, env, args...).Out), clitest.Settle(clitest.Command(t, other, args...).Out); was != is {
			t.Errorf("%v: there was\n%s\nand is\n%s", args, was, is)
		}
	}
}

// What is wrong is named by file and line, before anything is changed.
func TestApply_wrong(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	good := "id: good\nseeds: [{url: https://good.example/}]\n---\n"
	for text, want := range map[string]string{
		"kind: rule\n": ":4: kind is rule; say source, queue_rule or hold", "kind: hold\nreason: x\n": ":4: hold: there is no target", "id: Bad\n": ":4: ",
		"kind: queue_rule\npattern: a.example\nmax_in_flight: 0\n": ":4: queue_rule: ", "id: good\n": ":4: source good is at ", "id: x\nschedule: {every: often}\n": `:4: source: schedule.every: "often" is no duration, such as 30m`,
		"id: x\nfirst_crawl: later\nschedule: {every: 30}\n":            `:4: source: first_crawl: "later" is unknown; there are now spread, schedule.every: 30 is no duration, such as 30m`,
		"id: x\nlease_duration: 1 hour\nschedule: often\nseeds: none\n": `schedule: "often" is no object; its fields are `,
		"kind: hold\nqueue: a.example\n":                                `:4: hold: unknown field "queue"; there are target name effect by reason until`,
		"kind: hold\ntarget: {pool: a}\nuntil: tomorrow\n":              `:4: hold: until: "tomorrow" is no time, such as `,
		"kind: queue_rule\npattern: a.example\nmax_in_flight: many\n":   `:4: queue_rule: max_in_flight: "many" is not a number`,
		"id: x\nseeds: [{url: 17}]\n":                                   `:4: source: seeds[0].url: 17 is not text; write it in quotes`,

		"kind: hold\ntarget: {pool: Bad}\n": ":4: ", "kind: hold\ntarget: {pool: a, queue: b}\n": ":4: ", "id: x\nnosuch: 1\n": `unknown field "nosuch"`,
		"just text\n": ":4: is no object", "a: [\n": "line 4",
	} {
		file := clitest.WriteFile(t, "wrong.yaml", good+text)
		got := clitest.Command(t, env, "apply", "-f", file)
		if got.Code == cli.ExitOK || !strings.Contains(got.Err, file) || !strings.Contains(got.Err, want) {
			t.Errorf("%q: %d, lacks %q:\n%s%s", text, got.Code, want, got.Out, got.Err)
		}
		if strings.Contains(got.Err, "(line") {
			t.Errorf("%q: a position that the file does not have: %s", text, got.Err)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": "a: [\n", "b.yaml": "id: x\nnosuch: 1\n---\nid: y\nnosuch: 2\n", "c.jsonl": "{\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clitest.WantFailure(t, clitest.Command(t, env, "apply", "-f", dir), cli.ExitFailed, "a.yaml: line 1: ", "b.yaml:1: ", "b.yaml:4: ", "c.jsonl:1: ", "4 objects are wrong; nothing is changed")
	clitest.WantFailure(t, clitest.Command(t, env, "apply", "-f", clitest.WriteFile(t, "empty.yaml", "# nothing\n")), cli.ExitFailed, "nothing in ")
	missing := filepath.Join(t.TempDir(), "nothere")
	clitest.WantFailure(t, clitest.Command(t, env, "apply", "-f", missing), cli.ExitFailed, missing+": no such file or directory")
	clitest.WantFailure(t, clitest.Command(t, env, "apply"), cli.ExitUsage, "apply what?")
	if got := clitest.Command(t, env, "source", "list"); !strings.HasPrefix(got.Out, "no sources") {
		t.Errorf("there is\n%s", got.Out)
	}
}

// The file that the help shows can be applied.
func TestApply_example(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	_, text, _ := strings.Cut(clitest.Command(t, nil, "apply", "--help").Out, "  # waggle.yaml\n")
	text, _, _ = strings.Cut(text, "\n\n")
	file := clitest.WriteFile(t, "waggle.yaml", strings.ReplaceAll("\n"+text, "\n  ", "\n"))
	if got := clitest.Command(t, env, "apply", "-f", file); got.Code != cli.ExitOK || !strings.HasSuffix(got.Out, "\n3 created, 0 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.Code, got.Out, got.Err)
	}
}

// Rules for one queue change together, and a refusal of the dispatcher is named by file and line.
func TestApply_rules(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	rules := "kind: queue_rule\npattern: z.example\nqueue: shops\nmin_delay: 2s\n"
	clitest.Command(t, env, "apply", "-f", clitest.WriteFile(t, "one.yaml", rules))
	both := strings.Replace(rules, "2s", "3s", 1)
	both = strings.Replace(both, "z.example", "a.example", 1) + "---\n" + both
	if got := clitest.Command(t, env, "apply", "-f", clitest.WriteFile(t, "both.yaml", both)); got.Code != cli.ExitOK || !strings.HasSuffix(got.Out, "\n1 created, 1 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.Code, got.Out, got.Err)
	}
	clitest.Command(t, env, "source", "create", "s", "--seed", "https://b.example/")
	file := clitest.WriteFile(t, "left.yaml", "kind: queue_rule\npattern: b.example\nqueue: other\n")
	clitest.WantFailure(t, clitest.Command(t, env, "apply", "-f", file), cli.ExitFailed, file+":1: queue not empty")
}

// Sources below a prefix that no file names are deleted, unless they are so many that a file may have been cut short.
func TestApply_prune(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "default")
	file := clitest.WriteFile(t, "waggle.yaml", config())
	clitest.Command(t, env, "apply", "-f", file)
	clitest.Command(t, env, "source", "create", "news.old")
	clitest.Command(t, env, "source", "create", "other.old")
	prune := []string{"apply", "-f", file, "--prune", "news."}
	clitest.WantFailure(t, clitest.Command(t, env, prune...), cli.ExitUsage, "--dry-run", "--yes")
	clitest.WantFailure(t, clitest.Command(t, env, "apply", "-f", file, "--prune", "new", "--dry-run"), cli.ExitUsage, "up to a dot")
	clitest.WantFailure(t, clitest.Command(t, env, "apply", "-f", file, "--prune", "shops.", "--yes"), cli.ExitFailed, "no id of the files begins with shops.")
	clitest.WantFailure(t, clitest.Command(t, env, append(prune, "--prune-max", "0", "--yes")...), cli.ExitFailed, "news.old", "--prune-max 1 lets them go")
	for _, step := range [][2]string{{"--dry-run", "nothing is changed; it would be: 0 created, 0 updated, 5 unchanged, 1 deleted\n"}, {"--yes", "\n0 created, 0 updated, 5 unchanged, 1 deleted\n"}} {
		got := clitest.Command(t, env, append(prune, step[0])...)
		if got.Code != cli.ExitOK || !strings.Contains(got.Out, "DELETED  source  news.old") || !strings.HasSuffix(got.Out, step[1]) {
			t.Errorf("%s: %d, %s%s", step[0], got.Code, got.Out, got.Err)
		}
	}
	got := clitest.Command(t, env, "source", "list")
	if strings.Contains(got.Out, "news.old") || !strings.Contains(got.Out, "other.old") || !strings.Contains(got.Out, "news.a") {
		t.Errorf("there is\n%s", got.Out)
	}
}
