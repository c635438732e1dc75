package main_test

import (
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

func TestPool(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	wantOutput(t, command(t, env, "pool", "list"), "no pools: nothing waits, and none is paused\n")
	wantFailure(t, command(t, env, "pool", "pause", "Bad"), waggle.ExitUsage, "name")
	command(t, env, "source", "create", "s", "--scope", "s", "--pool", "browser")
	command(t, env, "task", "submit", "--source", "s", "https://a.example/1")
	wantOutput(t, command(t, env, "pool", "pause", "browser", "--until", "2h", "--reason", "new image"), `
POOL     READY QUEUES  WAITING QUEUES  PAUSED
browser             1               0  by ada, now, resumes in 2h: new image
`)
	wantOutput(t, command(t, env, "explain", "task", "--source", "s", "--url", "https://a.example/1"), `
pool browser: POOL_PAUSED by ada, now, resumes in 2h: new image
    opened by: `+"`"+`waggle pool resume`+"`"+`
pool browser: NO_COLLECTOR no active collector takes tasks of pool "browser"
    opened by: a collector that fetches them from the pool, or another pool of the source by `+"`"+`waggle source update`+"`"+`
`)
	wantOutput(t, command(t, env, "pool", "resume", "browser"), `
POOL     READY QUEUES  WAITING QUEUES  PAUSED
browser             1               0  -
`)
	wantOutput(t, command(t, env, "pool", "resume", "browser"), "\nbrowser was not paused; nothing changed\n")
	wantOutput(t, command(t, env, "pool", "list"), `
POOL     READY QUEUES  WAITING QUEUES  PAUSED
browser             1               0  -
`)
}
