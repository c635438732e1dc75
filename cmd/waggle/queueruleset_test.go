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
		"waggle: this replaced the rule * that stood: 1s apart, 1 at a time, blocked at most 1d, PAUSED by eve, now (emergency)\n",
		"waggle: * stays paused, as the rule * was set by eve, now (emergency); --lift ends that\n",
	} {
		if !strings.Contains(got.err, part) {
			t.Errorf("stderr lacks %q:\n%s", part, got.err)
		}
	}
	wantRules(`{"pattern":"*","min_delay":"2s","paused":true,"reason":"emergency"}` + "\n")
	if got := set("*", "--min-delay", "2s", "--lift"); strings.Contains(got.err, "stays") {
		t.Errorf("lifted: %s", got.err)
	}
	set("*.ads.example", "--deny", "--by", "eve")
	if got := set("x.ads.example"); !strings.Contains(got.err, "waggle: x.ads.example stays denied, as the rule *.ads.example was set by eve, now; --lift ends that\n") {
		t.Errorf("an exception: %s", got.err)
	}
	set("y.ads.example", "--lift")
	set("*.ads.example", "--deny=false", "--paused")
	set("a.example", "--queue", "a", "--paused", "--by", "eve")
	if got := set("b.example", "--queue", "a"); !strings.Contains(got.err, "waggle: b.example stays paused, as the rule a.example was set by eve, now; --lift ends that\n") {
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
