package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
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
	env, _ := served(t)
	taken(t, env, "default")
	text := config()
	file := write(t, "waggle.yaml", text)
	got := command(t, env, "apply", "-f", file, "--dry-run")
	for _, part := range []string{
		"CREATED  queue_rule  *.example", "2s apart, 1 at a time", "CREATED  hold        queue shop.example", "CREATED  source      news.a", "CREATED  hold        collectors region=eu move",
		"nothing is changed; it would be: 5 created, 0 updated, 0 unchanged\n",
	} {
		if !strings.Contains(got.out, part) {
			t.Errorf("dry run lacks %q:\n%s%s", part, got.out, got.err)
		}
	}
	if list := command(t, env, "source", "list").out + command(t, env, "hold", "list").out + command(t, env, "queue", "rule", "list").out; strings.Contains(list, "example") {
		t.Errorf("a dry run changed\n%s", list)
	}
	if got := command(t, env, "apply", "-f", file); got.code != waggle.ExitOK || !strings.HasSuffix(got.out, "\n5 created, 0 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.code, got.out, got.err)
	}
	if got := command(t, env, "hold", "list"); !strings.Contains(got.out, "collectors region=eu  move     END_LEASES") || !strings.Contains(got.out, "they asked") {
		t.Errorf("holds:\n%s%s", got.out, got.err)
	}
	if a := spec(t, env, "news.a"); a.GetSchedule().GetEvery().AsDuration().Minutes() != 30 || a.GetFirstCrawl().String() != "FIRST_CRAWL_SPREAD" {
		t.Errorf("news.a is %v", a)
	}
	wantOutput(t, command(t, env, "apply", "-f", file, "--by", "bob"), "0 created, 0 updated, 5 unchanged\n")

	changed := write(t, "changed.yaml", strings.NewReplacer("30m", "1h", "2s", "3s", "they asked", "they insist").Replace(text))
	got = command(t, env, "apply", "-f", changed, "-o", "json")
	var report struct {
		Updated, Unchanged int
		Entries            []struct{ Name, Result, Text string }
	}
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || report.Updated != 3 || report.Unchanged != 2 {
		t.Fatalf("%v: %s%s", err, got.out, got.err)
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
	env, _ := served(t)
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
	if got := command(t, env, "apply", "-f", dir); got.code != waggle.ExitOK || !strings.HasSuffix(got.out, "\n8 created, 0 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.code, got.out, got.err)
	}
	exported := command(t, env, "source", "export")
	if got := commandWith(t, env, exported.out, "apply", "-f", "-"); got.code != waggle.ExitOK || got.out != "0 created, 0 updated, 4 unchanged\n" {
		t.Errorf("what was exported: %d, %s%s", got.code, got.out, got.err)
	}
}

// What a Waggle has, as the commands write it, comes back in another one, with who held what.
func TestApply_roundTrip(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	taken(t, env, "default")
	command(t, env, "apply", "-f", write(t, "waggle.yaml", config()))
	command(t, env, "hold", "set", "--source", "news.a", "--by", "eve", "--reason", "they move")
	dir := t.TempDir()
	for name, args := range map[string]string{
		"sources.jsonl": "source export", "rules.json": "queue rule list -o json --limit 0", "holds.json": "hold list -o json --limit 0",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(command(t, env, strings.Fields(args)...).out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantOutput(t, command(t, env, "apply", "-f", dir), "0 created, 0 updated, 6 unchanged\n")
	other, _ := served(t)
	taken(t, other, "default")
	if got := command(t, with(other, "USER", "bob"), "apply", "-f", dir); got.code != waggle.ExitOK || !strings.HasSuffix(got.out, "\n6 created, 0 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.code, got.out, got.err)
	}
	for _, args := range [][]string{{"source", "export"}, {"hold", "list"}} {
		if was, is := settle(command(t, env, args...).out), settle(command(t, other, args...).out); was != is {
			t.Errorf("%v: there was\n%s\nand is\n%s", args, was, is)
		}
	}
}

// What is wrong is named by file and line, before anything is changed.
func TestApply_wrong(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
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
		file := write(t, "wrong.yaml", good+text)
		got := command(t, env, "apply", "-f", file)
		if got.code == waggle.ExitOK || !strings.Contains(got.err, file) || !strings.Contains(got.err, want) {
			t.Errorf("%q: %d, lacks %q:\n%s%s", text, got.code, want, got.out, got.err)
		}
		if strings.Contains(got.err, "(line") {
			t.Errorf("%q: a position that the file does not have: %s", text, got.err)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": "a: [\n", "b.yaml": "id: x\nnosuch: 1\n---\nid: y\nnosuch: 2\n", "c.jsonl": "{\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantFailure(t, command(t, env, "apply", "-f", dir), waggle.ExitFailed, "a.yaml: line 1: ", "b.yaml:1: ", "b.yaml:4: ", "c.jsonl:1: ", "4 objects are wrong; nothing is changed")
	wantFailure(t, command(t, env, "apply", "-f", write(t, "empty.yaml", "# nothing\n")), waggle.ExitFailed, "nothing in ")
	missing := filepath.Join(t.TempDir(), "nothere")
	wantFailure(t, command(t, env, "apply", "-f", missing), waggle.ExitFailed, missing+": no such file or directory")
	wantFailure(t, command(t, env, "apply"), waggle.ExitUsage, "apply what?")
	if got := command(t, env, "source", "list"); !strings.HasPrefix(got.out, "no sources") {
		t.Errorf("there is\n%s", got.out)
	}
}

// The file that the help shows can be applied.
func TestApply_example(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	_, text, _ := strings.Cut(command(t, nil, "apply", "--help").out, "  # waggle.yaml\n")
	text, _, _ = strings.Cut(text, "\n\n")
	file := write(t, "waggle.yaml", strings.ReplaceAll("\n"+text, "\n  ", "\n"))
	if got := command(t, env, "apply", "-f", file); got.code != waggle.ExitOK || !strings.HasSuffix(got.out, "\n3 created, 0 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.code, got.out, got.err)
	}
}

// Rules for one queue change together, and a refusal of the dispatcher is named by file and line.
func TestApply_rules(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	rules := "kind: queue_rule\npattern: z.example\nqueue: shops\nmin_delay: 2s\n"
	command(t, env, "apply", "-f", write(t, "one.yaml", rules))
	both := strings.Replace(rules, "2s", "3s", 1)
	both = strings.Replace(both, "z.example", "a.example", 1) + "---\n" + both
	if got := command(t, env, "apply", "-f", write(t, "both.yaml", both)); got.code != waggle.ExitOK || !strings.HasSuffix(got.out, "\n1 created, 1 updated, 0 unchanged\n") {
		t.Errorf("apply: %d, %s%s", got.code, got.out, got.err)
	}
	command(t, env, "source", "create", "s", "--seed", "https://b.example/")
	file := write(t, "left.yaml", "kind: queue_rule\npattern: b.example\nqueue: other\n")
	wantFailure(t, command(t, env, "apply", "-f", file), waggle.ExitFailed, file+":1: queue not empty")
}

// Sources below a prefix that no file names are deleted, unless they are so many that a file may have been cut short.
func TestApply_prune(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	taken(t, env, "default")
	file := write(t, "waggle.yaml", config())
	command(t, env, "apply", "-f", file)
	command(t, env, "source", "create", "news.old")
	command(t, env, "source", "create", "other.old")
	prune := []string{"apply", "-f", file, "--prune", "news."}
	wantFailure(t, command(t, env, prune...), waggle.ExitUsage, "--dry-run", "--yes")
	wantFailure(t, command(t, env, "apply", "-f", file, "--prune", "new", "--dry-run"), waggle.ExitUsage, "up to a dot")
	wantFailure(t, command(t, env, "apply", "-f", file, "--prune", "shops.", "--yes"), waggle.ExitFailed, "no id of the files begins with shops.")
	wantFailure(t, command(t, env, append(prune, "--prune-max", "0", "--yes")...), waggle.ExitFailed, "news.old", "--prune-max 1 lets them go")
	for _, step := range [][2]string{{"--dry-run", "nothing is changed; it would be: 0 created, 0 updated, 5 unchanged, 1 deleted\n"}, {"--yes", "\n0 created, 0 updated, 5 unchanged, 1 deleted\n"}} {
		got := command(t, env, append(prune, step[0])...)
		if got.code != waggle.ExitOK || !strings.Contains(got.out, "DELETED  source  news.old") || !strings.HasSuffix(got.out, step[1]) {
			t.Errorf("%s: %d, %s%s", step[0], got.code, got.out, got.err)
		}
	}
	got := command(t, env, "source", "list")
	if strings.Contains(got.out, "news.old") || !strings.Contains(got.out, "other.old") || !strings.Contains(got.out, "news.a") {
		t.Errorf("there is\n%s", got.out)
	}
}
