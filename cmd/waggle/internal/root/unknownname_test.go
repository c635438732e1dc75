package root_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// A queue by a rule's name, or with tasks that are not worked on any more, is known.
func TestUnknownName_knownQueues(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "b.example", "--queue", "shops")
	clitest.Command(t, env, "queue", "rule", "set", "*.c.example", "--min-delay", "2s")
	clitest.Command(t, env, "source", "create", "s", "--seed", "https://a.example/")
	clitest.Command(t, env, "task", "cancel", "--source", "s", "--yes")
	clitest.Command(t, env, "hold", "set", "--queue", "*.idle.example")
	for queue, known := range map[string]bool{"shops": true, "b.example": true, "a.example": true, "x.c.example": false, "x.idle.example": true} {
		got := clitest.Command(t, env, "queue", "get", queue)
		if noted := strings.Contains(got.Err, "nothing is known of a queue "+queue); noted == known {
			t.Errorf("%s, known %v: noted %q", queue, known, got.Err)
		}
		if got := clitest.Command(t, env, "explain", "queue", queue); strings.Contains(got.Out, "nothing is known") == known {
			t.Errorf("%s, known %v: explained\n%s", queue, known, got.Out)
		}
	}
}

// A filter by a name that nothing is known by matches nothing, and that is said.
func TestUnknownName_filtered(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	clitest.Command(t, env, "queue", "rule", "set", "b.example", "--queue", "shops")
	const noSource = "no source matches --prefix, --pool and --label"
	for flags, note := range map[string]string{
		"task cancel --yes --pool browsr":                     noSource,
		"task cancel --yes --prefix nws.":                     noSource,
		"task cancel --yes --label team=a --pool default":     noSource,
		"task cancel --yes --queue a.example":                 clitest.UnknownA,
		"task cancel --yes --queue b.example":                 "new tasks of this host go to the queue shops, by a rule",
		"task retry --yes --pool browsr --state dead":         noSource,
		"task list --queue a.example":                         clitest.UnknownA,
		"task retry --yes --pool default --state dead":        "",
		"task retry --yes --suffix news.example --state dead": "",
		"task list --queue news.example --state dead":         "",
	} {
		want := ""
		if note != "" {
			want = "waggle: " + note + "\n"
		}
		got := clitest.Command(t, env, strings.Fields(flags)...)
		if got.Code != 0 || got.Err != want || !strings.HasPrefix(got.Out, "no tasks") {
			t.Errorf("%s: %d, noted %q, want %q; printed %q", flags, got.Code, got.Err, want, got.Out)
		}
	}
	for flags, want := range map[string]string{
		"source trigger --yes --pool browsr": "no sources match\n",
		"source list --pool browsr":          "no such sources\n",
		"queue list --suffix a.example":      "no queue a.example, nor one below it, holds a task or is held\n",
	} {
		clitest.WantOutput(t, clitest.Command(t, env, strings.Fields(flags)...), want)
	}
}

// Of a queue that is not there it is told what would hold it, and where its host goes.
func TestExplain_queueNotThere(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "b.example", "--queue", "shops")
	clitest.Command(t, env, "hold", "set", "--queue", "*.c.example", "--reason", "they move")
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "queue", "https://a.example/"), clitest.UnknownA+"\nnothing would hold it\n")
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "queue", "b.example"), `
new tasks of this host go to the queue shops, by a rule: `+"`"+`waggle explain queue shops`+"`"+` is for them
nothing would hold it
`)
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "queue", "x.c.example"), `
queue x.c.example: QUEUE_HELD (queue *.c.example) by ada, now: they move
    opened by: `+"`waggle hold lift --queue '*.c.example'`"+`
`)
	clitest.Command(t, env, "hold", "set", "--queue", "b.example")
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "queue", "b.example"), `
new tasks of this host go to the queue shops, by a rule: `+"`"+`waggle explain queue shops`+"`"+` is for them
queue b.example: QUEUE_HELD (queue b.example) by ada, now
    opened by: `+"`"+`waggle hold lift --queue b.example`+"`"+`
`)
}
