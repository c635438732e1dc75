package main_test

import (
	"encoding/json"
	"testing"
)

func TestHold_list(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	wantOutput(t, command(t, env, "hold", "list"), "nothing is held by an operator\n")
	wantOutput(t, command(t, env, "hold", "list", "-o", "json"), "{\n  \"holds\": []\n}\n")
	command(t, env, "queue", "block", "held.example", "--reason", "they asked")
	command(t, env, "pool", "pause", "browser", "--until", "2d", "--by", "eve")
	command(t, env, "collector", "drain", "--label", "region=eu", "--label", "disk=ssd")
	command(t, env, "queue", "rule", "set", "ruled.example", "--paused")
	wantOutput(t, command(t, env, "hold", "list"), `
KIND               OF                  UNTIL   BY   SINCE  REASON
POOL_PAUSED        browser             in 2d   eve  now    -
COLLECTOR_DRAINED  disk=ssd region=eu  lifted  ada  now    -
BLOCKED            held.example        lifted  ada  now    they asked
`)
	var list struct{ Holds []map[string]any }
	if got := command(t, env, "hold", "list", "-o", "json"); json.Unmarshal([]byte(got.out), &list) != nil || len(list.Holds) != 3 ||
		list.Holds[2]["name"] != "held.example" || list.Holds[2]["since"] == nil || list.Holds[2]["reason"] != "they asked" {
		t.Errorf("listed %s%s", got.out, got.err)
	}
}
