package main_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// holdOne lets a collector hold a task of source tour, and fail another one. What is
// left of the lease is shown by the minute, however long the test takes.
func holdOne(t *testing.T, env map[string]string) {
	t.Helper()
	conn := connect(t, env)
	command(t, env, "source", "create", "tour", "--scope", "tour", "--seed", "https://news.example/")
	command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "9")
	command(t, env, "task", "submit", "--source", "tour", "https://news.example/today")
	collectors := pb.NewDispatchServiceClient(conn)
	fetch := func() *pb.LeasedTask {
		t.Helper()
		reply, err := collectors.FetchTask(t.Context(), &pb.FetchTaskRequest{
			CollectorId: "paris-1", Session: "s1", LeaseDuration: durationpb.New(20 * time.Minute),
		})
		if err != nil || len(reply.GetLeasedTasks()) != 1 {
			t.Fatalf("fetched %v: %v", reply, err)
		}
		return reply.GetLeasedTasks()[0]
	}
	first := fetch()
	if _, err := collectors.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "paris-1", Session: "s1", Reports: []*pb.TaskReport{{
		TaskId: first.GetTask().GetId(), LeaseToken: first.GetLease().GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{
			Reason: pb.FailureReason_FAILURE_REASON_NOT_FOUND, HttpStatus: 404, Message: "nothing here",
		}}},
	}}}); err != nil {
		t.Fatal(err)
	}
	held := fetch()
	if _, err := collectors.RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{
			Id: "paris-1", Session: "s1", Hostname: "paris", Version: "v1", Pools: []string{"default"}, Slots: 4,
			Labels: map[string]string{"region": "eu", "tier": "1"},
		},
		Leases: []*pb.LeaseBeat{{TaskId: held.GetTask().GetId(), LeaseToken: held.GetLease().GetLeaseToken()}},
	}); err != nil {
		t.Fatal(err)
	}
}

func TestAdmin_Tables(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	wantOutput(t, command(t, env, "collector", "list"), "no collectors; `waggle collect` starts one\n")
	wantOutput(t, command(t, env, "lease", "list"), "no leases\n")
	holdOne(t, env)
	leases := command(t, env, "lease", "list")
	leases.out = regexp.MustCompile(`(paris-1 +)\S+`).ReplaceAllString(leases.out, "${1}SOON")
	wantOutput(t, leases, `
TASK                             SOURCE  QUEUE         HOLDER   HELD FOR  ENDS    FENCE  URL
2239-4bltnyzhotfdv53si3p3mp2jza  tour    news.example  paris-1  SOON      in 20m  FENCE  https://news.example/today
`)
	for args, held := range map[string]bool{
		"--source tour": true, "--queue NEWS.example --collector paris-1": true, "--collector paris-1 --limit 1": true,
		"--queue example": false, "--source tour --collector paris": false,
	} {
		got := command(t, env, append([]string{"lease", "list"}, strings.Fields(args)...)...)
		if got.code != waggle.ExitOK || strings.Contains(got.out, "2239-4bltnyzhotfdv53si3p3mp2jza") != held || (got.out == "no leases\n") == held {
			t.Errorf("lease list %s: %d, %s%s", args, got.code, got.out, got.err)
		}
	}
	wantOutput(t, command(t, env, "collector", "list"), `
COLLECTOR  STATE   LEASES  SLOTS  STUCK  POOLS    ONLY  LAST BEAT  STARTED  HOST   VERSION  LABELS            HELD
paris-1    ACTIVE       1      4      0  default  -       AGO  AGO      paris  v1       region=eu tier=1  -
`)
	got := command(t, env, "task", "get", "--source", "tour", "--url", "https://news.example/")
	for _, part := range []string{
		"State       SCHEDULED\n", "Last error  NOT_FOUND (HTTP 404): nothing here, ", "seed, priority 5",
		"CYCLE  COLLECTOR", "FAILED  NOT_FOUND, HTTP 404, nothing here\n",
	} {
		if !strings.Contains(got.out, part) {
			t.Errorf("lacks %q:\n%s", part, got.out)
		}
	}
	got = command(t, env, "task", "get", "--source", "tour", "--url", "https://news.example/today")
	if !strings.Contains(got.out, "State    LEASED by paris-1 for ") || !strings.Contains(got.out, ", 20m left (fence ") {
		t.Errorf("does not say who holds it:\n%s", got.out)
	}
	got = command(t, env, "stats")
	for _, line := range []string{
		"Tasks       1 scheduled, 0 ready, 1 leased; 0 done, 0 dead, 0 canceled\n", "Leases      1\n", "Collectors  1\n",
		"Ever        2 granted, 1 settled, 0 expired\n", "Store       memory, 1 shard\n",
	} {
		if !strings.Contains(got.out, line) {
			t.Errorf("lacks %q:\n%s", line, got.out)
		}
	}
}

func TestAdmin_JSON(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	holdOne(t, env)
	for _, args := range [][]string{
		{"stats"},
		{"lease", "list"},
		{"collector", "list"},
		{"queue", "list"},
		{"queue", "rule", "list"},
		{"queue", "get", "news.example"},
		{"task", "list", "--source", "tour"},
		{"task", "get", "--source", "tour", "--url", "https://news.example/"},
	} {
		got := command(t, env, append(args, "--output", "json")...)
		var whole map[string]any
		if err := json.Unmarshal([]byte(got.out), &whole); err != nil || got.code != waggle.ExitOK || len(whole) == 0 {
			t.Errorf("%s: exit code %d, %v:\n%s%s", strings.Join(args, " "), got.code, err, got.out, got.err)
		}
		if again := command(t, env, append(args, "--output", "json")...); args[0] == "queue" && again.out != got.out {
			t.Errorf("%s prints the same in two ways:\n%s%s", strings.Join(args, " "), got.out, again.out)
		}
	}
}

// Collectors and leases are found by what they have, and a hold on a collector is its state.
func TestAdmin_filters(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	holdOne(t, env)
	command(t, env, "hold", "set", "--collector-label", "region=eu", "--reason", "new image")
	for args, listed := range map[string]bool{
		"collector list --state held": true, "collector list --state active": false, "collector list --label tier=1,region=eu": true,
		"collector list --label tier=1,region=us": false, "collector list --pool default": true, "collector list --pool browser": false,
		"collector list --collector paris-1": true, "collector list --collector paris": false, "lease list --prefix to": true, "lease list --prefix a": false,
		"lease list --pool default": true, "lease list --pool browser": false, "lease list --suffix example": true,
		"hold list --collector paris-1": true, "hold list --collector paris-2": false,
	} {
		got := command(t, env, strings.Fields(args)...)
		if has := strings.Contains(got.out, "paris-1") || strings.Contains(got.out, "region=eu"); got.code != waggle.ExitOK || has != listed {
			t.Errorf("%s: %d, %s%s", args, got.code, got.out, got.err)
		}
	}
	if got := command(t, env, "collector", "list"); !strings.Contains(settle(got.out), "collectors region=eu by ada, AGO: new image\n") {
		t.Errorf("what holds it:\n%s", got.out)
	}
	if got := command(t, env, "stats"); !strings.Contains(got.out, "Holds       1, beside those on sources\n") {
		t.Errorf("stats:\n%s", got.out)
	}
}
