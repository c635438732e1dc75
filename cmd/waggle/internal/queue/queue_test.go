package queue_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestQueue_Rules(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.WantOutput(t, clitest.Command(t, env, "queue", "rule", "list"), "no rules: every queue has the defaults, 1s apart, 1 at a time\n")
	clitest.WantOutput(t, clitest.Command(t, env, "queue", "rule", "set", "*.example.com", "--min-delay", "200ms", "--max-in-flight", "4", "--reason", "agreed"), `
PATTERN        SETTINGS               BY   SET  REASON
*.example.com  200ms apart, 4 at a time, blocked at most 1d  ada  AGO  agreed
`)
	clitest.Command(t, env, "queue", "rule", "set", "shop.test", "--by", "eve", "--max-block", "1h")
	clitest.WantOutput(t, clitest.Command(t, env, "queue", "rule", "list"), `
PATTERN        SETTINGS                                BY   SET  REASON
*.example.com  200ms apart, 4 at a time, blocked at most 1d  ada  AGO  agreed
shop.test      1s apart, 1 at a time, blocked at most 1h  eve  AGO  -
`)
	if got := clitest.Command(t, env, "queue", "rule", "list", "-o", "json"); !regexp.MustCompile(`"etag": +".+[0-9].+"`).MatchString(got.Out) {
		t.Errorf("programs get no etag:\n%s", got.Out)
	}
	clitest.WantOutput(t, clitest.Command(t, env, "queue", "rule", "delete", "SHOP.test"), "deleted the rule shop.test: 1s apart, 1 at a time, blocked at most 1h\n")
	clitest.WantFailure(t, clitest.Command(t, env, "queue", "rule", "delete", "shop.test"), cli.ExitFailed, "queue rule not found", "queue rule list")
	clitest.WantFailure(t, clitest.Command(t, env, "queue", "rule", "set", "Bad Host", "--max-in-flight", "0"), cli.ExitUsage, "rule.pattern", "rule.max_in_flight")
	clitest.WantFailure(t, clitest.Command(t, env, "queue", "rule", "set", "a.example"), cli.ExitUsage, "what is to change")
}

// Setting a rule changes what is given of it, and notes what that was. The rest stays, unless it is to go back to its default.
func TestQueueRule_set(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for _, step := range []struct{ args, text, note string }{
		{"--min-delay 2s --queue a", "2s apart, 1 at a time, blocked at most 1d, queue a", ""},
		{"--max-in-flight 4", "2s apart, 4 at a time, blocked at most 1d, queue a", "waggle: this changed max_in_flight from 1 to 4 of the rule a.example, set by ada, AGO\n"},
		{"--max-in-flight 4 --by eve", "2s apart, 4 at a time, blocked at most 1d, queue a", ""},
		{
			"--delay-factor 2 --replace --by bob", "1s apart, 1 at a time, 2 times the fetch duration, blocked at most 1d",
			"waggle: this changed min_delay from 2s to 1s, max_in_flight from 4 to 1, delay_factor from 0 to 2, queue from a to - of the rule a.example, set by eve, AGO\n",
		},
	} {
		got := clitest.Command(t, env, append([]string{"queue", "rule", "set", "a.example"}, strings.Fields(step.args)...)...)
		if got.Code != cli.ExitOK || !strings.Contains(got.Out, "a.example  "+step.text+"  ") || clitest.Settle(got.Err) != step.note {
			t.Errorf("%s: %d, %s%s", step.args, got.Code, got.Out, got.Err)
		}
	}
}

func TestQueue_Show(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.WantOutput(t, clitest.Command(t, env, "queue", "list"), "no queues: nothing waits, and nothing is blocked\n")
	clitest.WantNoted(t, clitest.Command(t, env, "queue", "get", "a.example"), clitest.UnknownA, `
Queue       a.example (slot 1331)
Tasks       0 waiting, 0 leased
Settings    1s apart, 1 at a time, blocked at most 1d (by default, no rule matches)
Next grant  now
`)
	clitest.Command(t, env, "source", "create", "s")
	clitest.Command(t, env, "task", "submit", "--source", "s", "https://a.example/1", "https://a.example/2", "https://b.test/")
	clitest.WantOutput(t, clitest.Command(t, env, "queue", "list"), `
QUEUE      WAITING  LEASED  AT MOST  DELAY  FETCH  NEXT  HELD BY  RULE
a.example        2       0        1     1s      -   AGO  -        default
b.test           1       0        1     1s      -   AGO  -        default
`)
	clitest.Command(t, env, "hold", "set", "--queue", "a.example", "--for", "2h", "--reason", "they asked")
	clitest.WantOutput(t, clitest.Command(t, env, "queue", "get", "a.example"), `
Queue       a.example (slot 1331)
Tasks       2 waiting, 0 leased
Pools       default
Settings    1s apart, 1 at a time, blocked at most 1d (by default, no rule matches)
Next grant  in 2h
Held by     QUEUE_HELD (queue a.example) by ada, now, opens in 2h: they asked
`)
	clitest.WantOutput(t, clitest.Command(t, env, "queue", "list", "--suffix", "example"), `
QUEUE      WAITING  LEASED  AT MOST  DELAY  FETCH   NEXT  HELD BY                      RULE
a.example        2       0        1     1s      -  in 2h  QUEUE_HELD(queue a.example)  default
`)
	clitest.Command(t, env, "hold", "lift", "--queue", "a.example")
	if got := clitest.Command(t, env, "queue", "get", "a.example"); !strings.Contains(got.Out, "Next grant  now\n") || strings.Contains(got.Out, "Held by") {
		t.Errorf("it is still held:\n%s%s", got.Out, got.Err)
	}
}

// A queue of a held pool is not granted from now.
func TestQueueList_heldPool(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "s", "--seed", "https://a.example/")
	clitest.Command(t, env, "hold", "set", "--pool", "default", "--reason", "upgrade")
	clitest.WantOutput(t, clitest.Command(t, env, "queue", "list"), `
QUEUE      WAITING  LEASED  AT MOST  DELAY  FETCH  NEXT  HELD BY                  RULE
a.example        1       0        1     1s      -  held  POOL_HELD(pool default)  default
`)
	if got := clitest.Command(t, env, "source", "list"); !strings.Contains(got.Out, "  POOL_HELD(pool default) NO_COLLECTOR\n") {
		t.Errorf("printed\n%s", got.Out)
	}
	got := clitest.Command(t, env, "queue", "get", "a.example")
	for _, part := range []string{"Pools       default (held)\n", "Next grant  held\n", "Held by     POOL_HELD (pool default) by ada, now: upgrade\n"} {
		if !strings.Contains(got.Out, part) {
			t.Errorf("lacks %q:\n%s", part, got.Out)
		}
	}
	clitest.WantOutput(t, clitest.Command(t, env, "pool", "list"), `
POOL     READY QUEUES  WAITING QUEUES  HELD
default             1               0  pool default by ada, now: upgrade
`)
	clitest.Command(t, env, "hold", "set", "--pool", "default", "--for", "2h", "--replace")
	if got := clitest.Command(t, env, "queue", "list"); !strings.Contains(got.Out, "  in 2h  POOL_HELD(pool default)  ") {
		t.Errorf("printed\n%s", got.Out)
	}
}

// What hosts did in the last hour is drawn, and the slowest come first. Of a task that is over its answer stays.
func TestQueue_hour(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "s")
	clitest.Command(t, env, "task", "submit", "--source", "s", "https://a.example/1", "https://a.example/2", "https://b.test/", "https://c.test/")
	d := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	fetched, err := d.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: "t", MaxTasks: 3})
	if err != nil || len(fetched.GetLeasedTasks()) != 3 {
		t.Fatalf("%v, %v", fetched, err)
	}
	fetchTimes := map[string]time.Duration{"a.example": 200 * time.Millisecond, "b.test": 3 * time.Second}
	var reports []*pb.TaskReport
	for _, leased := range fetched.GetLeasedTasks() {
		report := &pb.TaskReport{TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken()}
		if took := fetchTimes[leased.GetTask().GetQueue()]; took > 0 {
			report.Outcome = &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{HttpStatus: 200, Bytes: 12_345, FetchDuration: durationpb.New(took)}}}
		} else {
			report.Outcome = &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_DNS}}}
		}
		reports = append(reports, report)
	}
	if _, err := d.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: reports}); err != nil {
		t.Fatal(err)
	}
	got := clitest.Command(t, env, "task", "get", "--source", "s", "--url", "https://b.test/")
	if !strings.Contains(got.Out, "State        DONE\n") || !strings.Contains(got.Out, "Last answer  HTTP 200, 12.1 KiB, fetched in 3s\n") {
		t.Errorf("a task that is over:\n%s", got.Out)
	}
	got = clitest.Command(t, env, "queue", "list", "--sort", "slow", "--limit", "2")
	if !regexp.MustCompile(`(?s)\nb\.test .* 3s .*\na\.example .* 200ms `).MatchString(got.Out) || strings.Contains(got.Out, "c.test") {
		t.Errorf("the slowest first:\n%s%s", got.Out, got.Err)
	}
	got = clitest.Command(t, env, "queue", "get", "b.test")
	if !regexp.MustCompile(`\n\nThe last \dm, a column each 2m:\nGranted +·*█·?  1\nSucceeded +·*█·?  1\nFetch time +·*█·?  3s on average\n`).MatchString(got.Out) {
		t.Errorf("an hour of successes:\n%s", got.Out)
	}
	got = clitest.Command(t, env, "queue", "get", "c.test")
	if !regexp.MustCompile(`\nFailed +·*█·?  1: 1 by the host\n`).MatchString(got.Out) {
		t.Errorf("an hour with a failure:\n%s", got.Out)
	}
}
