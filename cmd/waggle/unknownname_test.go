package main_test

import (
	"strings"
	"testing"
)

// What is held by a name that nothing is known by is held, and it is said that nothing
// is: it may be misspelled.
func TestUnknownName_held(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	holdOne(t, env)
	for _, test := range []struct{ held, known, note string }{
		{"queue pause a.example", "queue pause news.example", unknownA + "; the pause is kept for tasks that come"},
		{"queue block a.example", "queue block news.example", unknownA + "; the block is kept for tasks that come"},
		{"pool pause browsr", "pool pause default", "nothing is known of a pool browsr: none of its tasks waits, and no collector takes them; the pause is kept for tasks that come"},
		{"collector drain london-1", "collector drain paris-1", "no collector london-1 has been heard of in the last 24 h; the drain is kept for those that come"},
		{"collector drain --label tier=2", "collector drain --label tier=1", "no collector with tier=2 has been heard of in the last 24 h; the drain is kept for those that come"},
	} {
		if got := command(t, env, strings.Fields(test.held)...); got.code != 0 || got.err != "waggle: "+test.note+"\n" {
			t.Errorf("%s: %d, noted %q, want %q", test.held, got.code, got.err, test.note)
		}
		if got := command(t, env, strings.Fields(test.known)...); got.code != 0 || got.err != "" {
			t.Errorf("%s: %d, noted %q of what is known", test.known, got.code, got.err)
		}
	}
	if got := command(t, env, "queue", "pause", "other.example", "--output", "json"); !strings.Contains(got.out, `"unknown": true`) {
		t.Errorf("programs do not hear of it: %s", got.out)
	}
}

// A queue by a rule's name, or with tasks that are not worked on any more, is known.
func TestUnknownName_knownQueues(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "b.example", "--queue", "shops")
	command(t, env, "queue", "rule", "set", "*.c.example", "--paused")
	command(t, env, "source", "create", "s", "--seed", "https://a.example/")
	command(t, env, "task", "cancel", "--source", "s", "--yes")
	for queue, known := range map[string]bool{"shops": true, "b.example": true, "a.example": true, "x.c.example": false} {
		got := command(t, env, "queue", "get", queue)
		if noted := strings.Contains(got.err, "nothing is known of a queue "+queue); noted == known {
			t.Errorf("%s, known %v: noted %q", queue, known, got.err)
		}
	}
}

// A filter by a name that nothing is known by matches nothing, and that is said.
func TestUnknownName_filtered(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	holdOne(t, env)
	command(t, env, "queue", "rule", "set", "b.example", "--queue", "shops")
	const noSource = "no source matches --prefix, --pool and --label"
	for flags, note := range map[string]string{
		"task cancel --yes --pool browsr":                     noSource,
		"task cancel --yes --prefix nws.":                     noSource,
		"task cancel --yes --label team=a --pool default":     noSource,
		"task cancel --yes --queue a.example":                 unknownA,
		"task cancel --yes --queue b.example":                 "new tasks of this host go to the queue shops, by a rule",
		"task retry --yes --pool browsr --state dead":         noSource,
		"task list --queue a.example":                         unknownA,
		"task retry --yes --pool default --state dead":        "",
		"task retry --yes --suffix news.example --state dead": "",
		"task list --queue news.example --state dead":         "",
	} {
		want := ""
		if note != "" {
			want = "waggle: " + note + "\n"
		}
		got := command(t, env, strings.Fields(flags)...)
		if got.code != 0 || got.err != want || !strings.HasPrefix(got.out, "no tasks") {
			t.Errorf("%s: %d, noted %q, want %q; printed %q", flags, got.code, got.err, want, got.out)
		}
	}
	for flags, want := range map[string]string{
		"source pause --yes --pool browsr": "no sources match\n",
		"source list --pool browsr":        "no such sources\n",
		"queue list --suffix a.example":    "no queue a.example, nor one below it, holds a task or is held\n",
	} {
		wantOutput(t, command(t, env, strings.Fields(flags)...), want)
	}
}

// Of a queue that is not there it is told what would hold it, and where its host goes.
func TestExplain_queueNotThere(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "b.example", "--queue", "shops")
	command(t, env, "queue", "rule", "set", "*.c.example", "--paused", "--reason", "they move")
	wantOutput(t, command(t, env, "explain", "queue", "https://a.example/"), unknownA+"\nnothing would hold it\n")
	wantOutput(t, command(t, env, "explain", "queue", "b.example"), `
new tasks of this host go to the queue shops, by a rule: `+"`"+`waggle explain queue shops`+"`"+` is for them
`)
	wantOutput(t, command(t, env, "explain", "queue", "x.c.example"), `
nothing is known of a queue x.c.example: no task is in it, and no rule names it
queue x.c.example: QUEUE_PAUSED by the rule *.c.example, by ada, now: they move
    opened by: `+"`waggle queue rule set '*.c.example' --lift`"+`
`)
	command(t, env, "queue", "block", "b.example")
	wantOutput(t, command(t, env, "explain", "queue", "b.example"), `
new tasks of this host go to the queue shops, by a rule: `+"`"+`waggle explain queue shops`+"`"+` is for them
of the queue b.example itself:
queue b.example: BLOCKED by ada, now
    opened by: `+"`"+`waggle queue unblock`+"`"+`
`)
}
