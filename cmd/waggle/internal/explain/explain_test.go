package explain_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.WantFailure(t, clitest.Command(t, env, "explain", "source", "s"), cli.ExitFailed, "source not found")
	clitest.Command(t, env, "source", "create", "s", "--scope", "s")
	clitest.Command(t, env, "task", "submit", "--source", "s", "https://a.example/1")
	clitest.Command(t, env, "hold", "set", "--source", "s", "--reason", "they move")
	clitest.Command(t, env, "hold", "set", "--queue", "a.example", "--for", "2h", "--reason", "we mend it")
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "task", "--source", "s", "--url", "https://a.example/1"), `
source s: SOURCE_HELD (source s) by ada, now: they move
    opened by: `+"`waggle hold lift --source s`"+`
pool default: NO_COLLECTOR no active collector takes tasks of pool "default"
    opened by: a collector that fetches them from the pool, or another pool of the source by `+"`"+`waggle source update`+"`"+`
queue a.example: QUEUE_HELD (queue a.example) by ada, now, opens in 2h: we mend it
    opened by: `+"`waggle hold lift --queue a.example`"+`
`)
	clitest.HoldOne(t, env)
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "pool", "default"), "nothing holds it: it is handed out in its turn\n")
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "queue", "a.example"), `
source s: SOURCE_HELD (source s) by ada, now: they move
    opened by: `+"`waggle hold lift --source s`"+`
queue a.example: QUEUE_HELD (queue a.example) by ada, now, opens in 2h: we mend it
    opened by: `+"`waggle hold lift --queue a.example`"+`
`)
	clitest.Command(t, env, "hold", "lift", "--source", "s")
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "source", "s"), `
queue a.example: QUEUE_HELD (queue a.example) by ada, now, opens in 2h: we mend it
    opened by: `+"`waggle hold lift --queue a.example`"+`
it is handed out again in 2h, if nothing else holds it by then
queue a.example: 1 task due, held by QUEUE_HELD
`)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "1")
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "queue", "news.example"), `
queue news.example: MAX_IN_FLIGHT 1 in flight of at most 1
    opened by: the end of a lease of the queue, or a larger max_in_flight by `+"`"+`waggle queue rule set`+"`"+`
`)
}

// A seed that is done waits for its next cycle.
func TestExplain_notDue(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "s", "--seed", "https://a.example/", "--every", "1d", "--first-crawl", "now")
	conn := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	fetched, err := conn.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: "t"})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", fetched, err)
	}
	lease := fetched.GetLeasedTasks()[0].GetLease()
	if _, err := conn.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
		TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{HttpStatus: 200}}},
	}}}); err != nil {
		t.Fatal(err)
	}
	if got := clitest.Command(t, env, "explain", "source", "s"); !strings.Contains(got.Out, ": not due for 24h: its next cycle has not come\n") {
		t.Errorf("explained\n%s%s", got.Out, got.Err)
	}
}

// What collectors narrow their fetches to is listed, and holds the others.
func TestExplain_narrowed(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	if _, err := pb.NewDispatchServiceClient(clitest.Connect(t, env)).RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: "c1", Session: "s", Pools: []string{"default"}, Sources: []string{"other"}, Queues: []string{"b.example", "c.example"}},
	}); err != nil {
		t.Fatal(err)
	}
	clitest.WantOutput(t, clitest.Command(t, env, "collector", "list"), `
COLLECTOR  STATE   LEASES  SLOTS  STUCK  POOLS    ONLY                                     LAST BEAT  STARTED  HOST  VERSION  CLIENT  LABELS  HELD  FAILS
c1         ACTIVE       0      0      0  default  source other, queue b.example c.example    AGO  AGO      -     -        -       -       -     -
`)
	clitest.Command(t, env, "source", "create", "s", "--seed", "https://a.example/")
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "source", "s"), `
source s: NO_COLLECTOR no active collector takes tasks of source "s" in queue "a.example" of pool "default": "c1" takes only tasks of 1 source in 2 queues
    opened by: a collector that fetches them from the pool, or another pool of the source by `+"`"+`waggle source update`+"`"+`
`)
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "pool", "default"), `
nothing holds all of it, but a part of it may wait; `+"`waggle explain source` and `waggle explain queue`"+` show which
not all tasks of pool "default" are taken: "c1" takes only tasks of 1 source in 2 queues
`)
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "pool", "nosuch"), `
nothing is known of a pool nosuch: none of its tasks waits, no collector takes them, and no hold is on it
pool nosuch: NO_COLLECTOR no active collector takes tasks of pool "nosuch"
    opened by: a collector that fetches them from the pool, or another pool of the source by `+"`"+`waggle source update`+"`"+`
`)
}

// Each hold on collectors is explained with the command that lifts it.
func TestExplain_heldCollectors(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for id, labels := range map[string]map[string]string{"c1": nil, "c2": {"region": "eu west"}} {
		if _, err := pb.NewDispatchServiceClient(clitest.Connect(t, env)).RenewLease(t.Context(), &pb.RenewLeaseRequest{
			Collector: &pb.CollectorInfo{Id: id, Session: "s", Pools: []string{"default"}, Labels: labels},
		}); err != nil {
			t.Fatal(err)
		}
	}
	clitest.Command(t, env, "hold", "set", "--collector", "c1", "--reason", "new image")
	clitest.Command(t, env, "hold", "set", "--collector-label", "region=eu west", "--for", "2h", "--reason", "we move")
	clitest.WantOutput(t, clitest.Command(t, env, "explain", "pool", "default"), `
pool default: COLLECTOR_HELD (collectors region=eu west) by ada, now, opens in 2h: we move
    opened by: `+"`waggle hold lift --collector-label 'region=eu west'`"+`, or another collector that fetches them from the pool
pool default: COLLECTOR_HELD (collector c1) by ada, now: new image
    opened by: `+"`waggle hold lift --collector c1`"+`, or another collector that fetches them from the pool
it is handed out again in 2h, if nothing else holds it by then
`)
}
