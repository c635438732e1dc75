package hold_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Every target can be held; what is held is listed, and lifted by the flags that set it.
func TestHold_targets(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.WantOutput(t, clitest.Command(t, env, "hold", "list"), "no holds: no operator stops anything\n")
	clitest.Command(t, env, "source", "create", "news.a", "--seed", "https://news.example/", "--label", "team=a")
	for target, listed := range map[string]string{
		"--everything": "everything", "--pool browser": "pool browser", "--source news.a": "source news.a", "--queue https://News.example/": "queue news.example",
		"--queue *.shops.example": "queue *.shops.example", "--collector paris-1": "collector paris-1",
		"--collector-label region=eu --collector-label disk=ssd": "collectors disk=ssd,region=eu",
	} {
		flags := strings.Fields(target)
		got := clitest.Command(t, env, append([]string{"hold", "set", "--reason", "they asked", "--for", "2h"}, flags...)...)
		if got.Code != cli.ExitOK || !strings.HasPrefix(got.Out, "1 hold set\n") || !strings.Contains(got.Out, "\n"+listed+" ") {
			t.Errorf("set %s: %d, %s%s", target, got.Code, got.Out, got.Err)
		}
		got = clitest.Command(t, env, "hold", "list")
		line := ""
		for l := range strings.Lines(got.Out) {
			if strings.HasPrefix(l, listed+" ") {
				line = clitest.Settle(l)
			}
		}
		if want := listed + "  default  STOP_GRANTS  ada  AGO  in 2h  they asked\n"; line != want {
			t.Errorf("%s: listed %q, want %q in\n%s", target, line, want, got.Out)
		}
		got = clitest.Command(t, env, append([]string{"hold", "lift"}, flags...)...)
		if want := "1 hold lifted\n  " + listed + ", set by ada, AGO: they asked\n"; got.Code != cli.ExitOK || clitest.Settle(got.Out) != want {
			t.Errorf("lift %s: %d, %s%s, want %s", target, got.Code, got.Out, got.Err, want)
		}
		if got := clitest.Command(t, env, append([]string{"hold", "lift"}, flags...)...); got.Code != cli.ExitOK || !strings.HasPrefix(got.Out, "nothing changed; 1 target without a hold named default\n") {
			t.Errorf("lift %s again: %d, %s%s", target, got.Code, got.Out, got.Err)
		}
	}
	clitest.WantOutput(t, clitest.Command(t, env, "hold", "list", "-o", "json"), "{\n  \"holds\": [],\n  \"next_page_token\": \"\"\n}\n")
}

// A hold takes no other's place unless that is asked for, and what was replaced is reported.
func TestHold_replace(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "browser")
	set := []string{"hold", "set", "--pool", "browser"}
	clitest.Command(t, env, append(set, "--reason", "for good")...)
	clitest.WantFailure(t, clitest.Command(t, env, append(set, "--for", "2h", "--by", "bob")...), cli.ExitFailed, "ada", "another --name sets one beside it, --replace takes its place")
	if got := clitest.Command(t, env, append(set, "--reason", "for good")...); got.Code != cli.ExitOK || !strings.HasPrefix(got.Out, "nothing changed; 1 target held in these words before\n") {
		t.Errorf("the same again: %d, %s%s", got.Code, got.Out, got.Err)
	}
	for _, step := range []struct{ flag, note string }{
		{"--dry-run", "waggle: this would replace the hold on pool browser that stands: by ada, now: for good, without an end\n"},
		{"--effect=stop-grants", "waggle: this replaced the hold on pool browser that stood: by ada, now: for good, without an end\n"},
	} {
		got := clitest.Command(t, env, append(set, "--for", "2h", "--by", "bob", "--replace", step.flag)...)
		if got.Code != cli.ExitOK || got.Err != step.note {
			t.Errorf("%s: %d, noted %q, want %q", step.flag, got.Code, got.Err, step.note)
		}
	}
	if got := clitest.Command(t, env, append(set, "--name", "deploy")...); got.Code != cli.ExitOK {
		t.Errorf("another name: %s", got.Err)
	}
	if got := clitest.Command(t, env, "hold", "list"); !strings.HasSuffix(got.Out, "  no end  -\n") {
		t.Errorf("listed\n%s%s", got.Out, got.Err)
	}
	got := clitest.Command(t, env, "hold", "lift", "--pool", "browser")
	if want := "still stopped by pool browser deploy by ada, now; `waggle hold lift --pool browser --name deploy` ends that\n"; !strings.Contains(got.Out, want) {
		t.Errorf("lifting lacks %q:\n%s%s", want, got.Out, got.Err)
	}
}

// A lift that changes nothing names the hold that still stops the target.
func TestHold_liftBelowPattern(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "hold", "set", "--queue", "*.co.uk")
	got := clitest.Command(t, env, "hold", "lift", "--queue", "bbci.co.uk")
	const want = "nothing changed; 1 target without a hold named default\nstill stopped by queue *.co.uk by ada, AGO; `waggle hold lift --queue '*.co.uk'` ends that\n"
	if got.Code != cli.ExitOK || clitest.Settle(got.Out) != want {
		t.Errorf("%d, %s%s, want %s", got.Code, got.Out, got.Err, want)
	}
}

// What nothing is known of is held all the same, and noted: it may be misspelled.
func TestHold_unknown(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	for target, known := range map[string]bool{
		"--pool browsr": false, "--queue a.example": false, "--collector london-1": false, "--source tuor": false,
		"--queue news.example": true, "--collector paris-1": true, "--source tour": true,
	} {
		got := clitest.Command(t, env, append([]string{"hold", "set"}, strings.Fields(target)...)...)
		if noted := strings.Contains(got.Err, "nothing is known of "); got.Code != cli.ExitOK || noted == known {
			t.Errorf("%s: %d, noted %q", target, got.Code, got.Err)
		}
	}
}

// A filter holds the sources that match, with --yes only, and END_LEASES ends work in hand.
func TestHold_sources(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	clitest.Command(t, env, "source", "create", "tour.b")
	clitest.Command(t, env, "source", "create", "other")
	set := []string{"hold", "set", "--source-prefix", "tour"}
	clitest.WantFailure(t, clitest.Command(t, env, set...), cli.ExitUsage, "--dry-run", "--yes")
	clitest.WantFailure(t, clitest.Command(t, env, append(set, "--everything")...), cli.ExitUsage, "choose sources")
	clitest.WantFailure(t, clitest.Command(t, env, "hold", "set"), cli.ExitUsage, "of what?")
	if got := clitest.Command(t, env, append(set, "--dry-run")...); !strings.HasPrefix(got.Out, "2 holds would be set\n") {
		t.Errorf("dry run: %s%s", got.Out, got.Err)
	}
	got := clitest.Command(t, env, append(set, "--yes", "--effect", "end-leases")...)
	if !strings.HasPrefix(got.Out, "2 holds set\n") || !strings.Contains(got.Out, "END_LEASES") || !strings.Contains(got.Out, "1 lease: their holders are told to stop\n") {
		t.Errorf("set: %s%s", got.Out, got.Err)
	}
	if got := clitest.Command(t, env, "source", "list", "--health", "held"); strings.Count(got.Out, "HELD") != 2 || !strings.Contains(got.Out, "held by ada") {
		t.Errorf("sources: %s%s", got.Out, got.Err)
	}
	if got := clitest.Command(t, env, "source", "get", "tour"); !strings.Contains(got.Out, ": `waggle hold lift --source tour` ends it\n") {
		t.Errorf("source: %s%s", got.Out, got.Err)
	}
	if got := clitest.Command(t, env, "hold", "list", "--source", "tour.b", "-o", "json"); strings.Count(got.Out, `"source_id": "tour.b"`) != 1 || strings.Contains(got.Out, `"tour"`) {
		t.Errorf("listed: %s%s", got.Out, got.Err)
	}
	if got := clitest.Command(t, env, "hold", "lift", "--source-prefix", "tour", "--yes"); !strings.HasPrefix(got.Out, "2 holds lifted\n") {
		t.Errorf("lift: %s%s", got.Out, got.Err)
	}
}

// The block that Waggle makes after failures of a host is listed when asked for, and lifted by its name.
func TestHold_blocks(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "s", "--seed", "https://a.example/")
	clitest.FailTask(t, env, &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_THROTTLED, HttpStatus: 429})
	if got := clitest.Command(t, env, "hold", "list"); !strings.HasPrefix(got.Out, "no holds") {
		t.Errorf("listed\n%s", got.Out)
	}
	if got := clitest.Command(t, env, "hold", "list", "--blocks"); !strings.Contains(clitest.Settle(got.Out), "queue a.example  waggle  STOP_GRANTS  waggle  AGO  in ") {
		t.Errorf("listed\n%s%s", got.Out, got.Err)
	}
	if got := clitest.Command(t, env, "explain", "queue", "a.example"); !strings.Contains(got.Out, "\n    opened by: time, or `waggle hold lift --queue a.example --name waggle`\n") {
		t.Errorf("explained\n%s%s", got.Out, got.Err)
	}
	if got := clitest.Command(t, env, "hold", "lift", "--queue", "a.example", "--name", "waggle"); !strings.HasPrefix(got.Out, "1 hold lifted\n") {
		t.Errorf("lifted: %s%s", got.Out, got.Err)
	}
	if got := clitest.Command(t, env, "hold", "list", "--blocks"); !strings.HasPrefix(got.Out, "no holds") {
		t.Errorf("listed\n%s", got.Out)
	}
}

// In a terminal of 80 columns no column is lost: long targets and names are cut in the middle.
func TestHold_listFits(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "hold", "set", "--queue", "a-host-with-a-long-name.shops.example", "--name", "maintenance-of-shops", "--by", "ada.lovelace@desk-17", "--for", "7d",
		"--reason", "they asked for a week without requests", "--effect", "end-leases")
	const long = `TARGET                        NAME       BY         UNTIL  REASON
queue a-host-w…shops.example  main…hops  ada.…k-17  in 7d  they asked for a we…
  EFFECT END_LEASES  SINCE now
`
	if got := clitest.OnTerminal(t, 0, env, "hold", "list"); got != long {
		t.Errorf("shown\n%s", got)
	}

	// What is as usual gives its room to the target and the reason.
	env, _ = clitest.Served(t)
	clitest.Command(t, env, "hold", "set", "--queue", "*.bbci.co.uk", "--by", "ada@desk", "--for", "2h", "--reason", "they asked us to wait")
	const usual = `TARGET              BY        SINCE  UNTIL  REASON
queue *.bbci.co.uk  ada@desk  now    in 2h  they asked us to wait
`
	if got := clitest.OnTerminal(t, 0, env, "hold", "list"); got != usual {
		t.Errorf("shown\n%s", got)
	}
}

// What a hold stops, and what lifts it, is explained.
func TestHold_explained(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "s", "--scope", "s", "--pool", "browser")
	clitest.Taken(t, env, "browser")
	clitest.Command(t, env, "task", "submit", "--source", "s", "https://a.b.example/1")
	for target, kind := range map[string]string{
		"--everything": "EVERYTHING_HELD (everything stop)", "--pool browser": "POOL_HELD (pool browser stop)", "--source s": "SOURCE_HELD (source s stop)",
		"--queue *.b.example": "QUEUE_HELD (queue *.b.example stop)", "--collector of-browser": "COLLECTOR_HELD (collector of-browser stop)",
	} {
		flags := append(strings.Fields(target), "--name", "stop")
		clitest.Command(t, env, append([]string{"hold", "set", "--reason", "they move"}, flags...)...)
		got := clitest.Command(t, env, "explain", "task", "--source", "s", "--url", "https://a.b.example/1")
		clitest.Command(t, env, append([]string{"hold", "lift"}, flags...)...)
		lift := "`waggle hold lift " + strings.Replace(target, "*.b.example", "'*.b.example'", 1) + " --name stop`"
		if strings.Contains(got.Out, "with the name") {
			t.Errorf("%s: the name stands twice: %s", target, got.Out)
		}
		if text := clitest.Settle(got.Out); !strings.Contains(text, kind+" by ada, AGO: they move\n") || !strings.Contains(text, lift) {
			t.Errorf("%s: lacks %q or %q\n%s%s", target, kind, lift, got.Out, got.Err)
		}
	}
	var reply struct{ Gates []any }
	if got := clitest.Command(t, env, "explain", "pool", "browser", "-o", "json"); json.Unmarshal([]byte(got.Out), &reply) != nil || len(reply.Gates) != 0 {
		t.Errorf("explained %s%s", got.Out, got.Err)
	}
}
