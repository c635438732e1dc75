package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

func TestCollector_Drain(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	wantOutput(t, command(t, env, "collector", "list", "--drains"), "no drains: every collector may fetch\n")
	wantFailure(t, command(t, env, "collector", "drain", "Bad"), waggle.ExitUsage, "collector_id")
	holdOne(t, env)
	for _, named := range [][]string{{"paris-1"}, {"--label", "region=eu"}} {
		got := command(t, env, append([]string{"collector", "drain", "--dry-run"}, named...)...)
		wantOutput(t, got, "1 collector would be drained\n  paris-1\n")
	}
	wantOutput(t, command(t, env, "collector", "list", "--drains"), "no drains: every collector may fetch\n")
	wantOutput(t, command(t, env, "collector", "drain", "paris-1", "--until", "2h", "--reason", "new image"), `
COLLECTORS  DRAINED
paris-1     by ada, now, resumes in 2h: new image
`)
	wantOutput(t, command(t, env, "collector", "list", "--state", "draining"), `
COLLECTOR  STATE     LEASES  SLOTS  POOLS    ONLY  LAST BEAT  STARTED  HOST   VERSION  LABELS            DRAINED
paris-1    DRAINING       1      4  default  -       AGO  AGO      paris  v1       region=eu tier=1  by ada, now, resumes in 2h: new image
`)
	for labels, listed := range map[string]bool{"tier=1": true, "tier=1,region=eu": true, "tier=1,region=us": false, "disk=ssd": false} {
		got := command(t, env, "collector", "list", "--label", labels)
		if strings.Contains(got.out, "paris-1") != listed || !listed && got.out != "no such collectors\n" {
			t.Errorf("collectors with %s: %s%s", labels, got.out, got.err)
		}
	}
	wantNoted(t, command(t, env, "collector", "drain", "--label", "region=eu", "--label", "disk=ssd"),
		"no collector with disk=ssd region=eu has been heard of in the last 24 h; the drain is kept for those that come", `
COLLECTORS          DRAINED
disk=ssd region=eu  by ada, now
`)
	wantOutput(t, command(t, env, "explain", "pool", "default"), `
pool default: COLLECTOR_DRAINED of paris-1, by ada, now, resumes in 2h: new image
    opened by: `+"`"+`waggle collector resume paris-1`+"`"+`, or another collector that fetches them from the pool
all of that opens by itself in 2h
`)
	wantOutput(t, command(t, env, "collector", "list", "--drains"), `
COLLECTORS          DRAINED
paris-1             by ada, now, resumes in 2h: new image
disk=ssd region=eu  by ada, now
`)
	wantOutput(t, command(t, env, "collector", "resume", "paris-1"), "paris-1: resumed\n")
	wantOutput(t, command(t, env, "collector", "resume", "paris-1"), "paris-1 was not drained; nothing changed\n")
	var reply struct{ Changed bool }
	got := command(t, env, "collector", "resume", "--label", "region=eu,disk=ssd", "--output", "json")
	if err := json.Unmarshal([]byte(got.out), &reply); err != nil || !reply.Changed {
		t.Errorf("resumed: %v\n%s%s", err, got.out, got.err)
	}
	wantOutput(t, command(t, env, "collector", "list", "--drains"), "no drains: every collector may fetch\n")
}
