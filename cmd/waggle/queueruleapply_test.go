package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// rules are what export writes, by its exit code and on stdout.
func exportedRules(t *testing.T, env map[string]string) string {
	t.Helper()
	got := command(t, env, "queue", "rule", "export")
	if got.code != waggle.ExitOK {
		t.Fatalf("%d: %s", got.code, got.err)
	}
	return got.out
}

// What export writes brings another Waggle to the same rules, and then nothing changes.
func TestQueueRule_roundTrip(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	wantNoted(t, command(t, env, "queue", "rule", "export"), "there are no rules to export", "")
	for _, args := range []string{
		"* --min-delay 2s --reason gently", "*.ads.example --deny", "a.example --min-delay 200ms --max-in-flight 4 --queue a --max-block 1h",
		"b.example:8080 --delay-factor 1.5 --max-delay 30s --paused --reason they-asked", "plain.example --replace", "www.a.example --min-delay 200ms --max-in-flight 4 --queue a --max-block 1h",
	} {
		if got := command(t, env, append([]string{"queue", "rule", "set"}, strings.Fields(args)...)...); got.code != waggle.ExitOK {
			t.Fatalf("%s: %s", args, got.err)
		}
	}
	const want = `{"pattern":"*","min_delay":"2s","reason":"gently"}
{"pattern":"*.ads.example","deny":true}
{"pattern":"a.example","queue":"a","min_delay":"0.200s","max_in_flight":4,"max_block":"3600s"}
{"pattern":"b.example:8080","delay_factor":1.5,"max_delay":"30s","paused":true,"reason":"they-asked"}
{"pattern":"plain.example"}
{"pattern":"www.a.example","queue":"a","min_delay":"0.200s","max_in_flight":4,"max_block":"3600s"}
`
	exported := exportedRules(t, env)
	if exported != want {
		t.Fatalf("exported\n%s\nwant\n%s", exported, want)
	}
	wantOutput(t, commandWith(t, env, exported, "queue", "rule", "apply", "-"), "6 rules: 0 created, 0 updated, 6 unchanged, 0 refused\n")
	other, _ := served(t)
	got := command(t, other, "queue", "rule", "apply", write(t, "rules.jsonl", exported))
	if got.code != waggle.ExitOK || !strings.HasSuffix(got.out, "\n6 rules: 6 created, 0 updated, 0 unchanged, 0 refused\n") || exportedRules(t, other) != want {
		t.Errorf("%d: %s%s\n%s", got.code, got.out, got.err, exportedRules(t, other))
	}
	// As it is shown for programs, indented and with who set it, it can be read, too.
	shown := command(t, env, "queue", "rule", "set", "plain.example", "--replace", "-o", "json")
	wantOutput(t, commandWith(t, other, shown.out, "queue", "rule", "apply", "-"), "1 rule: 0 created, 0 updated, 1 unchanged, 0 refused\n")
}

func TestQueueRule_apply(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	for _, pattern := range []string{"a.example", "b.example", "old.example"} {
		command(t, env, "queue", "rule", "set", pattern, "--replace", "--reason", "agreed")
	}
	before := exportedRules(t, env)
	file := write(t, "rules.jsonl", `{"pattern": "A.Example", "min_delay": "3s"}
{"pattern": "b.example"}

{"pattern": "https://new.example/", "reason": "slow host", "max_in_flight": 2}
`)
	wantOutput(t, command(t, env, "queue", "rule", "apply", file, "--prune", "--dry-run"), `
nothing is changed; this is what would become of the rules
RESULT   PATTERN      CHANGES                                     LAST SET
UPDATED  a.example    min_delay 1s -> 3s                          by ada, AGO (agreed)
CREATED  new.example  1s apart, 2 at a time, blocked at most 1d  -
DELETED  old.example  1s apart, 1 at a time, blocked at most 1d  by ada, AGO (agreed)
3 rules: would be 1 created, 1 updated, 1 unchanged, 0 refused, 1 deleted
`)
	if after := exportedRules(t, env); after != before {
		t.Errorf("a dry run left\n%s", after)
	}
	wantFailure(t, command(t, env, "queue", "rule", "apply", file, "--prune"), waggle.ExitUsage, "look with --dry-run, then say --yes")
	wantOutput(t, command(t, env, "queue", "rule", "apply", file, "--reason", "ticket 7"), `
RESULT   PATTERN      CHANGES                                     LAST SET
UPDATED  a.example    min_delay 1s -> 3s                          by ada, AGO (agreed)
CREATED  new.example  1s apart, 2 at a time, blocked at most 1d  -
3 rules: 1 created, 1 updated, 1 unchanged, 0 refused
`)
	wantOutput(t, command(t, env, "queue", "rule", "apply", file, "--prune", "--yes"), `
RESULT   PATTERN      CHANGES                                    LAST SET
DELETED  old.example  1s apart, 1 at a time, blocked at most 1d  by ada, AGO (agreed)
3 rules: 0 created, 0 updated, 3 unchanged, 0 refused, 1 deleted
`)
	wantOutput(t, command(t, env, "queue", "rule", "apply", file, "--prune", "--yes"), "3 rules: 0 created, 0 updated, 3 unchanged, 0 refused, 0 deleted\n")
	const want = `{"pattern":"a.example","min_delay":"3s","reason":"ticket 7"}
{"pattern":"b.example","reason":"agreed"}
{"pattern":"new.example","max_in_flight":2,"reason":"slow host"}
`
	if after := exportedRules(t, env); after != want {
		t.Errorf("there is\n%s\nwant\n%s", after, want)
	}
	var total struct {
		Updated int
		Rules   []struct {
			Pattern, Result string
			Changed         []string
			LastSet         struct{ By, Reason string } `json:"last_set"`
		}
	}
	got := commandWith(t, env, `{"pattern":"b.example","max_delay":"9s","reason":"new"}`, "queue", "rule", "apply", "-", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &total); err != nil || total.Updated != 1 || len(total.Rules) != 1 || total.Rules[0].Result != "UPDATED" ||
		strings.Join(total.Rules[0].Changed, ", ") != "max_delay - -> 9s, reason agreed -> new" ||
		total.Rules[0].LastSet.By != "ada" || total.Rules[0].LastSet.Reason != "agreed" {
		t.Errorf("%v: %s%s", err, got.out, got.err)
	}
}

// What is wrong with an entry is told with its line, stops no other, and lets nothing go.
func TestQueueRule_applyRefused(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "old.example", "--replace")
	file := write(t, "rules.jsonl", `{"pattern": "a.example"}
{"pattern": "a.example", "min_delay": "2s"}
{"pattern": "Bad Host"}
{"pattern": "b.example", "min_delay": "200ms"}
{"pattern": "c.example", "max_in_flight": 0}
{"pattern": "d.example", "min_delay": "9s", "max_delay": "1s"}
{"pattern": "e.example", "queue": "shop"}
{"pattern": "f.example", "queue": "shop", "min_delay": "5s"}
{"patern": "g.example"}
pattern,min_delay
`)
	for _, args := range [][]string{{"--dry-run"}, {"--yes"}} {
		got := command(t, env, append([]string{"queue", "rule", "apply", file, "--prune"}, args...)...)
		wantFailure(t, got, waggle.ExitFailed, "waggle: --prune deletes nothing, as not every entry was taken\n")
		for _, part := range []string{
			"line 2: line 1 has the same pattern", "line 3: rule.pattern", "line 4: is no QueueRule: ", `"200ms" is no duration in JSON, where it is in seconds, as "0.2s"`,
			"line 5: rule.max_in_flight", "line 6: rule.max_delay", "line 8: line 7 has other settings for the queue shop", "line 9: is no QueueRule: ", `unknown field "patern"`,
			"line 10: is no QueueRule", "2 created, 0 updated, 0 unchanged, 8 refused, 0 deleted\n",
		} {
			if !strings.Contains(got.out, part) {
				t.Errorf("%v: lacks %q:\n%s", args, part, got.out)
			}
		}
	}
	if got := exportedRules(t, env); got != `{"pattern":"a.example"}`+"\n"+`{"pattern":"e.example","queue":"shop"}`+"\n"+`{"pattern":"old.example"}`+"\n" {
		t.Errorf("there is\n%s", got)
	}
	wantFailure(t, commandWith(t, env, "\n", "queue", "rule", "apply", "-", "--prune", "--yes"), waggle.ExitFailed, "nothing in standard input: nothing is deleted")
	wantFailure(t, commandWith(t, env, "\n", "queue", "rule", "apply", "-", "--dry-run"), waggle.ExitFailed, "waggle: nothing in standard input\n")
	wantFailure(t, command(t, env, "queue", "rule", "apply", "nope.jsonl"), waggle.ExitFailed, "apply: open nope.jsonl")
}

// A file that was cut short changes nothing.
func TestQueueRule_applyPruneMax(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	var all strings.Builder
	for i := range 24 {
		fmt.Fprintf(&all, `{"pattern":"h%02d.example"}`+"\n", i)
	}
	commandWith(t, env, all.String(), "queue", "rule", "apply", "-")
	before := exportedRules(t, env)
	half := write(t, "half.jsonl", `{"pattern":"new.example"}`+"\n"+all.String()[:12*len(all.String())/24])
	for _, mode := range []string{"--dry-run", "--yes"} {
		got := command(t, env, "queue", "rule", "apply", half, "--prune", mode)
		wantFailure(t, got, waggle.ExitFailed, "--prune would delete 12 of 24 rules (h12.example, h13.example, h14.example, ...), more than 10: is the file whole?",
			"--prune-max 12 lets them go")
		if after := exportedRules(t, env); after != before || got.out != "" {
			t.Errorf("%s: %s\nthere is\n%s", mode, got.out, after)
		}
	}
	got := command(t, env, "queue", "rule", "apply", half, "--prune", "--prune-max", "50%", "--yes")
	if got.code != waggle.ExitOK || !strings.HasSuffix(got.out, "1 created, 0 updated, 12 unchanged, 0 refused, 12 deleted\n") {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
}

// What is paused or denied stays so until it is asked for, by whichever way the file would
// end it.
func TestQueueRule_applyLift(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "*", "--paused", "--by", "eve", "--reason", "emergency")
	command(t, env, "queue", "rule", "set", "*.ads.example", "--deny")
	command(t, env, "queue", "rule", "set", "old.example", "--paused")
	command(t, env, "queue", "rule", "set", "a.example", "--queue", "a", "--paused")
	file := write(t, "rules.jsonl", `{"pattern": "*", "min_delay": "2s", "reason": "gently"}
{"pattern": "x.ads.example"}
{"pattern": "www.a.example", "queue": "a"}
`)
	got := command(t, env, "queue", "rule", "apply", file, "--prune", "--yes")
	wantNoted(t, got, "6 rules stay paused or denied as now, which the file does not say; --lift ends that", `
RESULT   PATTERN        CHANGES                                                                   LAST SET
UPDATED  *              min_delay 1s -> 2s, reason emergency -> gently, stays paused              by eve, AGO (emergency)
CREATED  x.ads.example  1s apart, 1 at a time, blocked at most 1d, DENIED, stays denied           -
CREATED  www.a.example  1s apart, 1 at a time, blocked at most 1d, PAUSED, queue a, stays paused  -
KEPT     *.ads.example  1s apart, 1 at a time, blocked at most 1d, DENIED, stays denied           by ada, AGO
KEPT     a.example      1s apart, 1 at a time, blocked at most 1d, PAUSED, queue a, stays paused  by ada, AGO
KEPT     old.example    1s apart, 1 at a time, blocked at most 1d, PAUSED, stays paused           by ada, AGO
3 rules: 2 created, 1 updated, 0 unchanged, 0 refused, 0 deleted
`)
	if rules := exportedRules(t, env); !strings.HasPrefix(rules, `{"pattern":"*","min_delay":"2s","paused":true,"reason":"emergency"}`+"\n") {
		t.Errorf("there is\n%s", rules)
	}
	wantOutput(t, command(t, env, "queue", "rule", "apply", file, "--lift", "--dry-run"), `
nothing is changed; this is what would become of the rules
RESULT   PATTERN        CHANGES                                                              LAST SET
UPDATED  *              paused true -> false                                                 by ada, AGO (gently); paused by eve, AGO: emergency
UPDATED  x.ads.example  deny true -> false                                                   by ada, AGO
UPDATED  www.a.example  paused true -> false                                                 by ada, AGO; paused by ada, AGO
UPDATED  a.example      paused true -> false, as www.a.example, which is for the same queue  by ada, AGO
3 rules: would be 0 created, 3 updated, 0 unchanged, 0 refused
`)
	wantFailure(t, command(t, env, "queue", "rule", "apply", file, "--lift", "--prune", "--yes"), waggle.ExitOK)
	const want = `{"pattern":"*","min_delay":"2s","reason":"gently"}
{"pattern":"www.a.example","queue":"a"}
{"pattern":"x.ads.example"}
`
	if rules := exportedRules(t, env); rules != want {
		t.Errorf("there is\n%s\nwant\n%s", rules, want)
	}
}

// An exception from what the file denies is the file's to make, and is told.
func TestQueueRule_applyException(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "*.ads.example", "--deny")
	got := commandWith(t, env, `{"pattern":"*.ads.example","deny":true}`+"\n"+`{"pattern":"x.ads.example:81"}`, "queue", "rule", "apply", "-")
	wantOutput(t, got, `
RESULT   PATTERN           CHANGES                                                                     LAST SET
CREATED  x.ads.example:81  1s apart, 1 at a time, blocked at most 1d, no longer held by *.ads.example  -
2 rules: 1 created, 0 updated, 1 unchanged, 0 refused
`)
	// An entry that is refused, as it is there twice, says nothing of that.
	got = commandWith(t, env, `{"pattern":"*.ads.example","deny":true}`+"\n"+`{"pattern":"*.ads.example"}`+"\n"+`{"pattern":"y.ads.example"}`, "queue", "rule", "apply", "-")
	if !strings.Contains(got.out, "CREATED  y.ads.example  1s apart, 1 at a time, blocked at most 1d, no longer held by *.ads.example  -\n") {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
}

// Rules that can only be set after others are; what the dispatcher refuses is told, and
// nothing is deleted then.
func TestQueueRule_applyOrder(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "b.example", "--queue", "shop")
	command(t, env, "queue", "rule", "set", "old.example", "--replace")
	got := commandWith(t, env, `{"pattern":"a.example","queue":"shop","min_delay":"2s"}`+"\n"+`{"pattern":"b.example","queue":"shop","min_delay":"2s"}`,
		"queue", "rule", "apply", "-")
	if got.code != waggle.ExitOK || !strings.HasSuffix(got.out, "2 rules: 1 created, 1 updated, 0 unchanged, 0 refused\n") {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
	command(t, env, "source", "create", "s")
	command(t, env, "task", "submit", "--source", "s", "https://c.example/")
	got = commandWith(t, env, `{"pattern":"c.example","queue":"else"}`+"\n"+`{"pattern":"d.example"}`, "queue", "rule", "apply", "-", "--prune", "--yes")
	wantFailure(t, got, waggle.ExitFailed, "--prune deletes nothing, as not every entry was taken")
	if !strings.Contains(got.out, "REFUSED  c.example    line 1: ") || !strings.Contains(got.out, "tasks stay where they are") ||
		!strings.HasSuffix(got.out, "2 rules: 1 created, 0 updated, 0 unchanged, 1 refused, 0 deleted\n") {
		t.Errorf("%d: %s", got.code, got.out)
	}
}
