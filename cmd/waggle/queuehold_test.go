package main_test

import (
	"regexp"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// What the clock holds is told as what opens by itself.
func TestQueue_heldByTheClock(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "*", "--min-delay", "50s", "--max-in-flight", "2")
	command(t, env, "source", "create", "s", "--seed", "https://a.example/")
	fetched, err := pb.NewDispatchServiceClient(connect(t, env)).FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: "t"})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", fetched, err)
	}
	got := command(t, env, "queue", "unblock", "a.example")
	if want := regexp.MustCompile(`nothing changed\nit is held by MIN_DELAY, opens in \d+s\n`); got.code != waggle.ExitOK || !want.MatchString(got.out) {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
}
