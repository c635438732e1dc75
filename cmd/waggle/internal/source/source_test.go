package source_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestSource_Tables(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "eu")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "list"), `
no sources; `+"`waggle source create`"+` makes one
`)
	clitest.WantOutput(t, clitest.Command(t, env, "source", "create", "news.example", "--seed", "https://example.com/news", "--every", "10m",
		"--follow", "--max-depth", "1", "--label", "team=a", "--lease", "1m"), `
created source news.example: 1 seed, every 10m, follow hosts of the seeds, to depth 1
`)
	got := clitest.Command(t, env, "source", "create", "api", "--cron", "0 6 * * *", "--time-zone", "Europe/Berlin", "--pool", "eu")
	if want := "waggle: it has a schedule and no seeds: only tasks that are submitted are crawled\n"; got.Err != want {
		t.Errorf("stderr %q, want %q", got.Err, want)
	}
	got.Err = ""
	clitest.WantOutput(t, got, `
created source api: 0 seeds, cron 0 6 * * * Europe/Berlin, follow items of feeds, no links
`)
	clitest.WantOutput(t, anyHealth(clitest.Command(t, env, "source", "list")), `
SOURCE        NAME  POOL     SCHEDULE                      HEALTH  SCHEDULED  READY  LEASED  DONE  DEAD  CANCELED  FILTERED  NEXT DUE  LAST SUCCESS  LAST NEW  NEW BY DAY  WHY
api           -     eu       cron 0 6 * * * Europe/Berlin  OK              0      0       0     0     0         0  -         -         -             -         -           -
news.example  -     default  every 10m                     OK              0      1       0     0     0         0  -         AGO       -             -         -           NO_COLLECTOR no active collector takes tasks of pool "default"
`)
	clitest.WantOutput(t, clitest.Command(t, env, "source", "list", "--pool", "default", "--label", "team=b"), "no such sources\n")
	clitest.WantOutput(t, anyHealth(withoutLag(clitest.Command(t, env, "source", "get", "news.example"))), `
Source        news.example (uid UUID)
Labels        team=a
Pool          default
Priority      5
Schedule      every 10m
Follow        hosts of the seeds, to depth 1
Leases        1m, held at most 30m
Retry         4 attempts, 5 expirations, 20 throttled, backoff 10s to 1h
Remember      30d
Seeds         https://example.com/news
Health        OK
Tasks         0 scheduled, 1 ready, 0 leased; 0 done, 0 dead, 0 canceled
Unfinished    1 task
Next due      AGO (TIME)
Waits for     NO_COLLECTOR no active collector takes tasks of pool "default"
Last success  -
Last new      -
Created       AGO (TIME)
Version       1, etag "1-TAG"
`)
}

// withoutLag leaves out the line of how long a task has waited: whether there is one depends on the millisecond.
func withoutLag(a clitest.Answer) clitest.Answer {
	var kept []string
	for line := range strings.Lines(a.Out) {
		if !strings.HasPrefix(line, "Lag ") {
			kept = append(kept, line)
		}
	}
	a.Out = strings.Join(kept, "")
	return a
}

// anyHealth takes a source for OK that is STUCK, as it is once its seed has waited for a collector for a second.
func anyHealth(a clitest.Answer) clitest.Answer {
	a.Out = strings.Replace(strings.Replace(a.Out, "STUCK\n", "OK\n", 1), "STUCK ", "OK    ", 1)
	return a
}

func TestSource_JSON(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	env = clitest.With(env, "WAGGLE_OUTPUT", "json")
	created := clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/", "--follow-host", "*.example,b.test", "--priority", "0")
	var source struct {
		ID, Etag string
		Version  int64
		Spec     struct {
			Priority int
			Follow   struct {
				AllowHosts []string `json:"allow_hosts"`
			}
		}
		Status struct {
			Health string
			Tasks  map[string]int64
		}
	}
	if err := json.Unmarshal([]byte(created.Out), &source); err != nil || created.Code != cli.ExitOK {
		t.Fatalf("%v: %s%s", err, created.Out, created.Err)
	}
	if source.ID != "a" || source.Version != 1 || source.Spec.Priority != 0 || len(source.Spec.Follow.AllowHosts) != 2 ||
		!slices.Contains([]string{"SOURCE_HEALTH_OK", "SOURCE_HEALTH_STUCK"}, source.Status.Health) || // no collector takes its seed
		source.Status.Tasks["ready"] != 1 || source.Status.Tasks["dead"] != 0 {
		t.Errorf("created %s", created.Out)
	}
	clitest.WantOutput(t, clitest.Command(t, env, "source", "delete", "a", "--dry-run"), `
{
  "matched": 1,
  "changed": 1,
  "next_page_token": "",
  "missing_ids": [],
  "sample_ids": [
    "a"
  ]
}
`)
	list := clitest.Command(t, env, "source", "list")
	var all struct{ Sources []struct{ ID string } }
	if err := json.Unmarshal([]byte(list.Out), &all); err != nil || len(all.Sources) != 1 || all.Sources[0].ID != "a" {
		t.Errorf("%v: %s", err, list.Out)
	}
}

func TestSource_Update(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "eu")
	clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/", "--every", "1h", "--revisit-after", "30d", "--follow", "--exclude", "x")
	update := []string{"source", "update", "a", "--cron", "@daily", "--max-depth", "3", "--unset", "revisit_after"}
	clitest.WantOutput(t, clitest.Command(t, env, append(update, "--dry-run")...), "1 source would be updated\n  a\n")
	clitest.WantOutput(t, clitest.Command(t, env, update...), "1 source updated\n")
	clitest.WantOutput(t, clitest.Command(t, env, update...), "0 sources updated; 1 unchanged\n")
	got := clitest.Command(t, env, "source", "get", "a")
	for _, line := range []string{"Schedule      cron @daily\n", "Follow        hosts of the seeds, to depth 3, not x\n"} {
		if !strings.Contains(got.Out, line) {
			t.Errorf("lacks %q:\n%s", line, got.Out)
		}
	}
	if strings.Contains(got.Out, "Revisit") {
		t.Errorf("revisit_after is still there:\n%s", got.Out)
	}
}

// Seeds that redirect for good get their new addresses, as far as that is for good; what leads to one address becomes one seed.
func TestSource_FollowMoves(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "9")
	clitest.Command(t, env, "source", "create", "s", "--scope", "s", "--every", "1h",
		"--seed", "http://a.example/", "--seed", "http://b.example/", "--seed", "http://c.example/", "--seed", "http://d.example/")
	dispatcher := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	moves := map[string]struct {
		status int32
		to     string
	}{
		"http://a.example/": {301, "https://a.example/"}, "https://a.example/": {308, "https://www.a.example/"}, "https://www.a.example/": {302, "https://www.a.example/en"},
		"http://b.example/": {302, "https://b.example/"}, "https://b.example/": {301, "https://www.b.example/"},
		"http://c.example/": {301, "https://www.a.example/"},
	}
	for left := 9; left > 0; {
		fetched, err := dispatcher.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", MaxTasks: 9})
		if err != nil {
			t.Fatal(err)
		}
		for _, leased := range fetched.GetLeasedTasks() {
			done := &pb.Succeeded{HttpStatus: 200}
			if move, ok := moves[leased.GetTask().GetUrl()]; ok {
				done.HttpStatus, done.Discovered = move.status, []*pb.DiscoveredItem{{Url: move.to, Relation: pb.Relation_RELATION_REDIRECT}}
			}
			if _, err := dispatcher.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
				TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: done}},
			}}}); err != nil {
				t.Fatal(err)
			}
			left--
		}
	}
	if got := clitest.Command(t, env, "source", "get", "s").Out; !strings.Contains(got, "http://b.example/ to https://www.b.example/\n") ||
		!strings.Contains(got, "http://a.example/ to https://www.a.example/en, for good: ") {
		t.Errorf("%s", got)
	}
	if got := clitest.Command(t, env, "status", "--check"); got.Code != cli.ExitFailed || !strings.Contains(got.Out, "waggle source update s --follow-moves") {
		t.Errorf("exit code %d: %s", got.Code, got.Out)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "source", "update", "s", "--follow-moves", "--seed", "http://e.example/"), cli.ExitUsage, "--follow-moves and --seed")
	for i, want := range []string{"1 source would be updated", "1 source updated", "0 sources updated"} {
		args := []string{"source", "update", "--all", "--yes", "--follow-moves"}
		if i == 0 {
			args = append(args, "--dry-run")
		}
		if got := clitest.Command(t, env, args...); !strings.Contains(got.Out, want) {
			t.Errorf("%d: %s%s", i, got.Out, got.Err)
		}
	}
	var seeds []string
	for _, seed := range clitest.SourceSpec(t, env, "s").GetSeeds() {
		seeds = append(seeds, seed.GetUrl())
	}
	if want := []string{"https://www.a.example/", "http://b.example/", "http://d.example/"}; !slices.Equal(seeds, want) {
		t.Errorf("seeds %q, want %q", seeds, want)
	}
}

// Many sources are updated by how their ids begin or by their labels, and a dry run shows which ones.
func TestSource_UpdateMany(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "eu")
	for _, id := range []string{"news.a", "news.b", "shop.c"} {
		clitest.Command(t, env, "source", "create", id, "--label", "team="+id[:4])
	}
	clitest.Command(t, env, "source", "update", "news.b", "--pool", "eu")
	for _, step := range []struct{ args, want string }{
		{"--prefix news. --pool eu --dry-run", "1 source would be updated; 1 would stay as now\n  news.a\n"},
		{"--prefix news. --pool eu --yes", "1 source updated; 1 unchanged\n"},
		{"--label team=shop --set-label team=web,kind=shop --yes", "1 source updated\n"},
		{"--label team=web --priority 0 --unset pool --yes", "1 source updated\n"},
		{"--label team=shop --priority 0 --yes", "no sources match\n"},
		{"--all --priority 0 --yes", "2 sources updated; 1 unchanged\n"},
	} {
		clitest.WantOutput(t, clitest.Command(t, env, append([]string{"source", "update"}, strings.Fields(step.args)...)...), step.want)
	}
	if got := clitest.Command(t, env, "source", "get", "shop.c"); !strings.Contains(got.Out, "Labels        kind=shop team=web\n") || !strings.Contains(got.Out, "Priority      0\n") {
		t.Errorf("after the updates:\n%s", got.Out)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "source", "update", "news.a", "none", "--priority", "1"), cli.ExitFailed, "source not found: none")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "update", "--prefix", "news.", "--priority", "1"), cli.ExitUsage, "look with --dry-run, then say --yes")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "update", "--all", "--yes", "--priority", "11"), cli.ExitUsage, "spec.priority")
}

func TestSource_Bulk(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for _, id := range []string{"news.a", "news.b", "shop.a"} {
		clitest.Command(t, env, "source", "create", id, "--seed", "https://"+id+".example/")
	}
	clitest.Command(t, env, "hold", "set", "--source-prefix", "news.", "--yes", "--reason", "site moves")
	got := clitest.Command(t, env, "source", "get", "news.b")
	if !strings.Contains(clitest.Settle(got.Out), "Held  by ada, AGO: site moves: `") {
		t.Errorf("does not show who holds it and why:\n%s", got.Out)
	}
	clitest.Taken(t, env, "default")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "trigger", "news.a", "--revisit"), cli.ExitOK,
		"news.a is held by SOURCE_HELD (source news.a) by ada, ", ": site moves; `waggle explain source news.a` shows what opens it\n")
	missing := clitest.Command(t, env, "source", "trigger", "nope", "shop.a", "--revisit")
	clitest.WantFailure(t, missing, cli.ExitFailed, "source not found: nope")
	if missing.Out != "1 source triggered\n" {
		t.Errorf("printed %q", missing.Out)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "source", "delete", "--prefix", "news."), cli.ExitUsage, "--dry-run", "--yes")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "delete", "--prefix", "news.", "--dry-run"), "2 sources would be deleted\n  news.a\n  news.b\n")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "delete", "--prefix", "news.", "--yes"), "2 sources deleted\n")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "delete", "shop.a"), "1 source deleted\n")
}

func TestSource_Refused(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "create", "a"), cli.ExitFailed, `source exists: source_id "a"`, "`waggle source update`")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "create", "b", "--seed", "foo://x", "--every", "1ms", "--priority", "12"), cli.ExitUsage,
		"spec.seeds[0].url", "spec.schedule.every", "spec.priority is \"12\"; it must be 0 to 9")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "create", "b", "--seed", "https://b.example", "--jitter", "1h"), cli.ExitUsage, "spec.schedule.jitter", "must be absent without")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "create", "b", "--seed", "https://b.example", "--adaptive", "100ms..1h"), cli.ExitUsage, "spec.schedule.adaptive.min_interval")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "create", "b", "--seed", "https://b.example", "--cron", "bogus"), cli.ExitUsage, `spec.schedule.cron is "bogus"`)
	clitest.WantFailure(t, clitest.Command(t, env, "source", "get", "nope"), cli.ExitFailed, "source not found", "`waggle source list`")
}

func TestSource_Adaptive(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/", "--adaptive", "10m..7d", "--jitter", "5m")
	got := clitest.Command(t, env, "source", "get", "a")
	for _, line := range []string{"Schedule      adaptive 10m..7d, jitter 5m\n", "Interval      now 5h17m29s\n"} {
		if !strings.Contains(got.Out, line) {
			t.Errorf("lacks %q:\n%s", line, got.Out)
		}
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--adaptive=10m"}, cli.ExitUsage, `"10m" is no range; say 10m..7d`},
		{[]string{"--adaptive=10m..x"}, cli.ExitUsage, `"x" is no duration`},
		{[]string{"--adaptive=1h..7d", "--every=1h"}, cli.ExitUsage, "--every and --adaptive: say one of them"},
		{[]string{"--adaptive=7d..10m"}, cli.ExitUsage, "max_interval"},
		{[]string{"--every=1h", "--jitter=2h"}, cli.ExitUsage, "less than the shortest interval, 1h"},
	} {
		bad := clitest.Command(t, env, append([]string{"source", "update", "a"}, test.args...)...)
		clitest.WantFailure(t, bad, test.code, test.want)
	}
}

// TestSource_WritersAreLogged finds in the dispatcher's log who wrote sources, and why.
func TestSource_WritersAreLogged(t *testing.T) {
	t.Parallel()
	env, d := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a", "--reason", "a new one")
	clitest.Command(t, env, "source", "update", "a", "--priority", "7", "--by", "bob", "--reason", "it matters")
	clitest.CommandWith(t, env, "https://b.example/\n", "source", "import", "-", "--every", "1h", "--reason", "a list")
	d.Err.Line(t, `.*"grpc.method":"CreateSource".*"by":"ada","reason":"a new one","request":"spec:{id:\\"a\\".*`)
	d.Err.Line(t, `.*"grpc.method":"UpdateSource".*"by":"bob","reason":"it matters".*`)
	d.Err.Line(t, `.*"grpc.method":"ApplySources".*"matched":1,"changed":1,"by":"ada","reason":"a list","request":"specs:{id:\\"b.example\\".*`)
	// A question is no change.
	clitest.CommandWith(t, env, "https://c.example/\n", "source", "import", "-", "--every", "1h", "--dry-run")
	if strings.Contains(d.Err.Text(), "c.example") {
		t.Error("a dry run is in the log")
	}
}

// TestSource_CanceledSeeds says of a source that nothing else ails why it is not crawled.
func TestSource_CanceledSeeds(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/", "--seed", "https://b.example/", "--every", "1h")
	clitest.Command(t, env, "task", "cancel", "--source", "a", "--url", "https://a.example/")
	clitest.Taken(t, env, "default")
	const line = "Canceled      1 of 2 seeds: not crawled until `waggle task retry`\n"
	if got := clitest.Command(t, env, "source", "get", "a"); !strings.Contains(got.Out, line) {
		t.Errorf("lacks %q:\n%s", line, got.Out)
	}
	const why = "1 seed canceled"
	if got := clitest.Command(t, env, "source", "list"); !strings.Contains(got.Out, why) {
		t.Errorf("lacks %q:\n%s", why, got.Out)
	}
	const leftOut = "1 canceled seed left out: not crawled until `waggle task retry`"
	clitest.WantNoted(t, clitest.Command(t, env, "source", "trigger", "a"), leftOut, "0 sources triggered; 1 unchanged\n")
	clitest.WantNoted(t, clitest.Command(t, env, "source", "trigger", "a", "--revisit"), leftOut, "1 source triggered\n")
	clitest.Command(t, env, "task", "retry", "--source", "a", "--state", "canceled", "--yes")
	if got := clitest.Command(t, env, "source", "get", "a"); strings.Contains(got.Out, "Canceled") {
		t.Errorf("still canceled:\n%s", got.Out)
	}
}

// A trigger that finds nothing to make due says why.
func TestSource_TriggerSeedless(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "default")
	clitest.Command(t, env, "source", "create", "s.a")
	clitest.Command(t, env, "source", "create", "s.b")
	clitest.Command(t, env, "source", "create", "s.c", "--seed", "https://c.example/", "--every", "1h", "--first-crawl", "spread")
	const why = "s.b has no seeds: only what `waggle task submit` gives is crawled"
	clitest.WantNoted(t, clitest.Command(t, env, "source", "trigger", "s.b"), why, "0 sources triggered; 1 unchanged\n")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "trigger", "--prefix", "s.", "--dry-run"), "1 source would be triggered; 2 would stay as now\n  s.c\n")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "trigger", "s.c"), "1 source triggered\n")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "trigger", "s.c"), "0 sources triggered; 1 unchanged\n")
}

func TestSource_Health(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/", "--every", "1h")
	dispatch := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	got, err := dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: "t"})
	if err != nil || len(got.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	lease := got.GetLeasedTasks()[0].GetLease()
	if _, err := dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
		TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{
			Reason: pb.FailureReason_FAILURE_REASON_THROTTLED, HttpStatus: 503, Message: "down for repairs",
		}}},
	}}}); err != nil {
		t.Fatal(err)
	}
	clitest.Command(t, env, "hold", "set", "--source", "a", "--by", "ada", "--reason", "they mend it")
	sheet := clitest.Settle(clitest.Command(t, env, "source", "get", "a").Out)
	if strings.Contains(sheet, "Collector") {
		t.Errorf("its own failure is told as the collector's:\n%s", sheet)
	}
	for _, line := range []string{
		"Health HELD\n", "Unfinished 1 task\n", "Waits for SOURCE_HELD (source a) by ada, AGO: they mend it\n", "HOST_BLOCKED by waggle, ", ": THROTTLED (HTTP 503): down for repairs, AGO, of task ", "Last success -\n",
		"Last failure AGO (TIME), AGO 1 in a row\n", "Last error THROTTLED (HTTP 503): down for repairs, AGO\n", "it waits for its next attempt",
	} {
		if !strings.Contains(strings.ReplaceAll(sheet, "  ", " "), line) {
			t.Errorf("lacks %q:\n%s", line, sheet)
		}
	}
}

// A list that has not looked at all collectors says so.
func TestSourceList_manyCollectors(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "s", "--seed", "https://a.example/", "--pool", "eu")
	calls := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	for i := range 201 {
		info := &pb.CollectorInfo{Id: fmt.Sprintf("c%d", i), Session: "s", Pools: []string{"other"}}
		if _, err := calls.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: info}); err != nil {
			t.Fatal(err)
		}
	}
	if got := clitest.Command(t, env, "source", "list"); !strings.Contains(got.Out, "  too many collectors to know whether one takes its tasks\n") {
		t.Errorf("printed\n%s", got.Out)
	}
}

// TestSource_SeedsAsWritten holds that the addresses that people and feed readers write are those of the web.
func TestSource_SeedsAsWritten(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for i, test := range []struct{ seed, want string }{
		{"www.example.com/news", "http://www.example.com/news"},
		{"feed://example.com/rss?a=b c", "http://example.com/rss?a=b%20c"},
		{"feeds://example.com/rss", "https://example.com/rss"},
		{"feed:https://example.com/atom", "https://example.com/atom"},
		{"ITPC://example.com/podcast.xml", "http://example.com/podcast.xml"},
	} {
		id := fmt.Sprint("s.", i)
		if got := clitest.Command(t, env, "source", "create", id, "--seed", test.seed); got.Code != cli.ExitOK {
			t.Errorf("%s: %s", test.seed, got.Err)
		}
		if got := clitest.Command(t, env, "source", "get", id); !strings.Contains(got.Out, "Seeds         "+test.want+"\n") {
			t.Errorf("%s is %s", test.seed, got.Out)
		}
	}
	clitest.WantFailure(t, clitest.Command(t, env, "source", "create", "bad", "--seed", "feed://a.example/\nb"), cli.ExitUsage, "control character")
}
