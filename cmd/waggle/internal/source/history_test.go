package source_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestSource_History asks why there is nothing new from a feed: it answers, and has no items any more.
func TestSource_History(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s")
	clitest.Command(t, env, "source", "create", "news", "--seed", "http://a.example/feed", "--every", "1h")
	if got := clitest.Command(t, env, "source", "history", "news"); !strings.HasSuffix(got.Out, "\nno cycle of its seeds has ended yet\n") {
		t.Errorf("the history of nothing is %s%s", got.Out, got.Err)
	}
	dispatcher := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	settle := func(outcome *pb.Outcome) {
		clitest.Command(t, env, "source", "trigger", "news")
		for range 100 { // until it is the seed
			fetched, err := dispatcher.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", MaxTasks: 1, Wait: durationpb.New(5e9)})
			if err != nil {
				t.Fatal(err)
			}
			for _, leased := range fetched.GetLeasedTasks() {
				seed := strings.HasSuffix(leased.GetTask().GetUrl(), "/feed")
				as := outcome
				if !seed {
					as = &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{HttpStatus: 200, Bytes: 2000}}}
				}
				if _, err := dispatcher.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
					TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken(), Outcome: as,
				}}}); err != nil {
					t.Fatal(err)
				}
				if seed {
					return
				}
			}
		}
	}
	full := &pb.Succeeded{HttpStatus: 200, Bytes: 20_000, FetchDuration: durationpb.New(1.23e9), Document: pb.DocumentKind_DOCUMENT_KIND_FEED, BrokenOff: true}
	for i := range 3 {
		full.Discovered = append(full.Discovered, &pb.DiscoveredItem{Url: fmt.Sprint("http://a.example/", i), Relation: pb.Relation_RELATION_FEED_ITEM})
	}
	full.Discovered = append(full.Discovered, &pb.DiscoveredItem{Url: "http://a.example/link"}) // there is no rule for it
	settle(&pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: full}})
	settle(&pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_NOT_FOUND, HttpStatus: 404, Permanent: true}}})
	empty := &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{HttpStatus: 200, Bytes: 300, Document: pb.DocumentKind_DOCUMENT_KIND_FEED}}}
	settle(empty)
	settle(empty)

	got := clitest.Command(t, env, "source", "history", "news")
	for _, want := range []string{
		`Health  EMPTY: no entries in its last 2 cycles\n`, `Last new  AGO \(TIME\)\n`, `Empty  the last 2 cycles had no entries\n`,
		`new  \.{44}█  3\n`, `failed  \.{44}█  1\n`,
		`AGO  200  FEED  -  300 B  0  0  -\nAGO  200  FEED  -  300 B  0  0  -\nAGO  404, NOT_FOUND  -.*\nAGO  200, broken off  FEED  1\.23s  19\.5 KiB  4  3  1 NO_RULE\n`,
	} {
		if !regexp.MustCompile(want).MatchString(clitest.Settle(got.Out)) {
			t.Errorf("the history has no %s:\n%s", want, clitest.Settle(got.Out))
		}
	}
	for line := range strings.Lines(got.Out) {
		if n := len([]rune(strings.TrimSpace(line))); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	for _, want := range []string{"EMPTY", "no entries in its last 2 cycles", "█"} {
		if got := clitest.Command(t, env, "source", "list", "--health", "empty"); !strings.Contains(got.Out, want) {
			t.Errorf("the list has no %s: %s%s", want, got.Out, got.Err)
		}
	}
	if got := clitest.Command(t, env, "status"); !strings.Contains(got.Out, "waggle source history news") {
		t.Errorf("the status does not name the next step: %s", got.Out)
	}
	const explained = "EMPTY: no entries in its last 2 cycles; `waggle source history news` shows its cycles\n"
	if got := clitest.Command(t, env, "explain", "source", "news"); !strings.HasPrefix(got.Out, explained) {
		t.Errorf("it is explained by %s%s", got.Out, got.Err)
	}
	if got := clitest.Command(t, env, "source", "list", "--health", "quiet"); got.Out != "no such sources\n" {
		t.Errorf("quiet are %s", got.Out)
	}
	var history struct {
		Cycles []struct {
			Document string
			New      int
		}
		Days []struct{ Pages int }
	}
	reply := clitest.Command(t, clitest.With(env, "WAGGLE_OUTPUT", "json"), "source", "history", "news")
	if err := json.Unmarshal([]byte(reply.Out), &history); err != nil || len(history.Cycles) != 4 || history.Cycles[0].Document != "DOCUMENT_KIND_FEED" || len(history.Days) != 1 {
		t.Errorf("JSON: %v, %s%s", err, reply.Out, reply.Err)
	}
}

// TestSource_PagesFail asks what is wrong with a feed that is read, and whose articles are all refused.
func TestSource_PagesFail(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "20")
	clitest.Command(t, env, "source", "create", "news", "--seed", "http://a.example/feed", "--every", "1h")
	dispatcher := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	feed := &pb.Succeeded{HttpStatus: 200, Document: pb.DocumentKind_DOCUMENT_KIND_FEED}
	for i := range 10 {
		feed.Discovered = append(feed.Discovered, &pb.DiscoveredItem{Url: fmt.Sprint("http://a.example/", i), Relation: pb.Relation_RELATION_FEED_ITEM})
	}
	for ended := 0; ended < 11; {
		fetched, err := dispatcher.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", MaxTasks: 20, Wait: durationpb.New(5e9)})
		if err != nil || len(fetched.GetLeasedTasks()) == 0 {
			t.Fatalf("fetch: %v, %v", fetched, err)
		}
		for _, leased := range fetched.GetLeasedTasks() {
			ended++
			outcome := &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_FORBIDDEN, HttpStatus: 403}}}
			if strings.HasSuffix(leased.GetTask().GetUrl(), "/feed") {
				outcome = &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: feed}}
			}
			if _, err := dispatcher.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
				TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken(), Outcome: outcome,
			}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const why = "10 of its last 10 pages failed"
	for args, wants := range map[string][]string{
		"source list --health pages-fail": {"PAGES_FAIL", why},
		"source get news":                 {"PAGES_FAIL", why + ": FORBIDDEN"},
		"source history news":             {"PAGES_FAIL: " + why + ": FORBIDDEN"},
		"explain source news":             {"PAGES_FAIL: " + why + ": FORBIDDEN; `waggle source history news` shows its cycles\n"},
		"status":                          {"PAGES_FAIL", "source news: " + why + ": FORBIDDEN", "waggle task list --source news"},
		"task list --source news":         {"FORBIDDEN"},
	} {
		got := clitest.Command(t, env, strings.Fields(args)...)
		for _, want := range wants {
			if !strings.Contains(got.Out, want) {
				t.Errorf("%s has no %q:\n%s%s", args, want, got.Out, got.Err)
			}
		}
	}
}

// The health of a source that fails names its error once, and why no cycle is listed.
func TestSource_history_failing(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "news", "--seed", "http://a.example/feed", "--every", "1h")
	const message = "http://a.example/feed answered 500"
	clitest.FailTask(t, env, &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_SERVER_ERROR, HttpStatus: 500, Message: message})
	got := clitest.Command(t, env, "source", "history", "news").Out
	if strings.Count(got, message) != 1 || !strings.Contains(got, "no cycle of its seeds has ended yet: the first goes on after 1 failure\n") {
		t.Errorf("the history is\n%s", got)
	}
}
