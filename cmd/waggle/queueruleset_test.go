package main_test

import (
	"regexp"
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// The rules as a program reads them have the etag to change them with.
func TestQueueRule_listEtag(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "a.example", "--min-delay", "2s")
	if got := command(t, env, "queue", "rule", "list", "-o", "json"); !regexp.MustCompile(`"etag": +".+[0-9].+"`).MatchString(got.out) {
		t.Errorf("no etag:\n%s", got.out)
	}
}

// Setting a rule ends no pause and no denial that somebody else has set, unless it says so,
// and tells what it replaced.
func TestQueueRule_setKeepsHolds(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	set := func(args ...string) answer {
		t.Helper()
		got := command(t, env, append([]string{"queue", "rule", "set"}, args...)...)
		if got.code != waggle.ExitOK {
			t.Errorf("%v: %d: %s", args, got.code, got.err)
		}
		return got
	}
	wantRules := func(want string) {
		t.Helper()
		if got := exportedRules(t, env); got != want {
			t.Errorf("there is\n%s\nwant\n%s", got, want)
		}
	}
	if got := set("*", "--paused", "--by", "eve", "--reason", "emergency"); got.err != "" {
		t.Errorf("of the first rule it says %s", got.err)
	}
	got := set("*", "--min-delay", "2s", "--reason", "gently")
	for _, part := range []string{
		"waggle: this changed min_delay 1s -> 2s, reason emergency -> gently of the rule *, set by eve, now (emergency)\n",
		"waggle: * stays paused, as the rule * is: paused by eve, now: emergency; --lift ends that\n",
	} {
		if !strings.Contains(got.err, part) {
			t.Errorf("stderr lacks %q:\n%s", part, got.err)
		}
	}
	wantRules(`{"pattern":"*","min_delay":"2s","paused":true,"reason":"emergency"}` + "\n")
	got = set("*", "--paused", "--by", "bob", "--reason", "me too")
	if !strings.Contains(got.err, "waggle: * was already paused by eve, now: emergency\n") || !strings.Contains(got.out, "PAUSED; paused by eve, now: emergency  bob") {
		t.Errorf("paused again: %s%s", got.out, got.err)
	}
	got = set("*", "--min-delay", "2s", "--lift", "--by", "ann")
	if strings.Contains(got.err, "stays") || !strings.Contains(got.err, "waggle: this changed paused true -> false of the rule *, set by bob, now (me too); paused by eve, now: emergency\n") {
		t.Errorf("lifted: %s", got.err)
	}
	set("*", "--max-in-flight", "3")
	got = set("*", "--min-delay", "2s", "--replace")
	if want := "waggle: this replaced the rule * that stood: 2s apart, 3 at a time, blocked at most 1d by ada, now\n"; got.err != want {
		t.Errorf("replaced: %q, want %q", got.err, want)
	}
	set("*.ads.example", "--deny", "--by", "eve")
	if got := set("x.ads.example", "--max-in-flight", "1"); !strings.Contains(got.err, "waggle: x.ads.example stays denied, as the rule *.ads.example is: denied by eve, now; --lift ends that\n") {
		t.Errorf("an exception: %s", got.err)
	}
	set("y.ads.example", "--lift")
	set("*.ads.example", "--deny=false", "--paused")
	set("a.example", "--queue", "a", "--paused", "--by", "eve")
	if got := set("b.example", "--queue", "a"); !strings.Contains(got.err, "waggle: b.example stays paused, as the rule a.example is: paused by eve, now; --lift ends that\n") {
		t.Errorf("another rule for the queue: %s", got.err)
	}
	wantRules(`{"pattern":"*","min_delay":"2s"}
{"pattern":"*.ads.example","paused":true}
{"pattern":"a.example","queue":"a","paused":true}
{"pattern":"b.example","queue":"a","paused":true}
{"pattern":"x.ads.example","deny":true}
{"pattern":"y.ads.example"}
`)
}

// A command that lifts nothing says so, changes nothing, and tells what holds all the same.
func TestQueueRule_setLiftsNothing(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "a.example", "--min-delay", "2s")
	lift := func(pattern string) answer { return command(t, env, "queue", "rule", "set", pattern, "--lift") }
	wantOutput(t, lift("a.example"), "\na.example was not paused or denied; nothing changed\n")
	command(t, env, "queue", "rule", "set", "*", "--paused", "--by", "eve", "--reason", "emergency")
	for _, pattern := range []string{"a.example", "b.example"} {
		wantOutput(t, lift(pattern), "\n"+pattern+" was not paused or denied; nothing changed\nit is held by the rule *: paused by eve, now: emergency\n")
	}
	if got := exportedRules(t, env); strings.Contains(got, "b.example") {
		t.Errorf("there is %s", got)
	}
	if got := lift("*"); !strings.Contains(got.out, "ada") || strings.Contains(got.out, "nothing changed") {
		t.Errorf("lifted: %s", got.out)
	}
}

// Setting a rule changes what is given of it; the rest goes back to its default only where
// that is asked for.
func TestQueueRule_setChangesWhatIsGiven(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	for _, step := range []struct{ args, want string }{
		{"--min-delay 2s --max-delay 30s --queue a", `"queue":"a","min_delay":"2s","max_delay":"30s"`},
		{"--paused", `"queue":"a","min_delay":"2s","max_delay":"30s","paused":true`},
		{"--max-in-flight 4 --delay-factor 2", `"queue":"a","min_delay":"2s","max_in_flight":4,"delay_factor":2,"max_delay":"30s","paused":true`},
		{"--paused=false --max-block 1h --reason why", `"queue":"a","min_delay":"2s","max_in_flight":4,"delay_factor":2,"max_delay":"30s","max_block":"3600s","reason":"why"`},
		{"--max-in-flight 4", `"queue":"a","min_delay":"2s","max_in_flight":4,"delay_factor":2,"max_delay":"30s","max_block":"3600s"`},
		{"--deny --replace", `"deny":true`},
		{"--replace", `"deny":true`},
		{"--lift", ""},
	} {
		command(t, env, append([]string{"queue", "rule", "set", "a.example"}, strings.Fields(step.args)...)...)
		want := strings.TrimSuffix(`{"pattern":"a.example",`+step.want, ",") + "}\n"
		if got := exportedRules(t, env); got != want {
			t.Errorf("after %q there is\n%swant\n%s", step.args, got, want)
		}
	}
}
