package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// write writes a file for the test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// spec is what a source is kept as.
func spec(t *testing.T, env map[string]string, id string) *pb.SourceSpec {
	t.Helper()
	reply, err := pb.NewSourceServiceClient(connect(t, env)).GetSource(t.Context(), &pb.GetSourceRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetSource().GetSpec()
}

func TestSourceImport(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	taken(t, env, "eu")
	file := write(t, "feeds.csv", "url,name,labels,pool\nhttps://a.example/rss.xml,A,team=x,\nhttps://b.example/rss.xml,B,,eu\n")
	args := []string{"source", "import", file, "--every", "1h", "--prefix", "feeds.", "--label", "team=y,from=csv", "--pool", "default", "--kind", "feed", "--max-depth", "1"}
	wantOutput(t, command(t, env, append(args, "--dry-run")...), `
2 sources: would be 2 created, 0 updated, 0 unchanged, 0 duplicates, 0 refused
`)
	if got := command(t, env, "source", "list"); !strings.Contains(got.out, "no sources") {
		t.Errorf("a dry run made sources: %s", got.out)
	}
	wantOutput(t, command(t, env, args...), `
2 sources: 2 created, 0 updated, 0 unchanged, 0 duplicates, 0 refused
`)
	a, b := spec(t, env, "feeds.a.example_rss.xml"), spec(t, env, "feeds.b.example_rss.xml")
	if a.GetLabels()["team"] != "x" || a.GetLabels()["from"] != "csv" || a.GetPool() != "default" || a.GetDisplayName() != "A" ||
		a.GetSeeds()[0].GetKind() != "feed" || a.GetFollow().GetMaxDepth() != 1 || a.GetFirstCrawl() != pb.FirstCrawl_FIRST_CRAWL_SPREAD ||
		a.GetSchedule().GetEvery().AsDuration() != time.Hour {
		t.Errorf("a is %v", a)
	}
	if b.GetLabels()["team"] != "y" || b.GetPool() != "eu" {
		t.Errorf("b is %v", b)
	}
	wantOutput(t, command(t, env, append(args, "--now", "--replace", "-o", "json")...), `
{
  "created": 0,
  "updated": 2,
  "unchanged": 0,
  "duplicates": 0,
  "refused": 0,
  "changed_fields": {
    "first_crawl": 2
  },
  "unscheduled": 0,
  "seedless": 0
}
`)
	if a = spec(t, env, "feeds.a.example_rss.xml"); a.GetFirstCrawl() != pb.FirstCrawl_FIRST_CRAWL_NOW {
		t.Errorf("with --now a is %v", a)
	}
}

// What is wrong with an entry is told with its line, and stops no other.
func TestSourceImport_report(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	file := write(t, "x.csv", "id,url,every\na,https://a.example/,1h\nBad Id,https://b.example/,1h\n,,1h\n"+
		"a,https://a.example/,1h\na,https://other.example/,1h\nc,no url,\nd,https://d.example/,\ne,https://e.example/,soon\nf,,1h\n,https://g.example/\n")
	for _, name := range []string{"report.csv", "report.jsonl"} {
		report := filepath.Join(t.TempDir(), name)
		got := command(t, env, "source", "import", file, "--dry-run", "--report", report)
		wantFailure(t, got, waggle.ExitFailed, "line 3: Bad Id: spec.id", "line 4: there is neither a url nor an id",
			"line 6: a: line 2 has the same id, and says something else", `line 7: c: spec.seeds[0].url`, "1 source has no schedule", "line 9: e: every", "1 source has no url")
		if want := "10 sources: would be 3 created, 0 updated, 0 unchanged, 1 duplicate, 6 refused\n"; got.out != want {
			t.Errorf("printed %q, want %q", got.out, want)
		}
		lines := strings.Split(strings.TrimSpace(readText(t, report)), "\n")
		if name == "report.csv" {
			if len(lines) != 11 || lines[0] != "line,id,result,error,changed,lost" || lines[1] != "2,a,CREATED,,," ||
				lines[4] != "5,a,DUPLICATE,the same as line 2,," || lines[10] != `11,g.example,INVALID,"has 2 fields, the header 3",,` {
				t.Errorf("%s:\n%s", name, strings.Join(lines, "\n"))
			}
			continue
		}
		var first, second struct {
			Line              int
			ID, Result, Error string
		}
		if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first.Line != 2 || first.ID != "a" || first.Result != "CREATED" || len(lines) != 10 {
			t.Errorf("%v: %s", err, lines[0])
		}
		if err := json.Unmarshal([]byte(lines[1]), &second); err != nil || second.Result != "INVALID" || !strings.Contains(second.Error, "Bad Id") {
			t.Errorf("%v: %s", err, lines[1])
		}
	}
}

func TestSourceImport_formats(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	for _, c := range []struct{ in, id, kind, category string }{
		{`<opml><body><outline text="News"><outline text="F" xmlUrl="https://f.example/"/></outline></body></opml>`, "f.example", "feed", "News"},
		{`<sitemapindex><sitemap><loc>https://m.example/1.xml</loc></sitemap></sitemapindex>`, "m.example_1.xml", "sitemap", ""},
		{"# pages\nhttps://u.example/a\n", "u.example_a", "", ""},
		{`{"id": "j", "seeds": [{"url": "https://j.example/"}]}`, "j", "", ""},
	} {
		got := commandWith(t, env, c.in, "source", "import", "-", "--every", "1d")
		if got.code != waggle.ExitOK || !strings.HasPrefix(got.out, "1 source: 1 created") {
			t.Errorf("%s: %d, %s%s", c.in, got.code, got.out, got.err)
			continue
		}
		if s := spec(t, env, c.id); s.GetSeeds()[0].GetKind() != c.kind || s.GetLabels()["category"] != c.category {
			t.Errorf("%s is %v", c.id, s)
		}
	}
	got := commandWith(t, env, "<opml><body><outline xmlUrl='https://g.example/'/><outline", "source", "import", "-")
	wantFailure(t, got, waggle.ExitFailed, "-: the rest cannot be read: line 1: XML syntax error", "stopped after 1 source")
	if s := spec(t, env, "g.example"); len(s.GetSeeds()) != 1 {
		t.Errorf("what came before the fault is %v", s)
	}
}

func TestSourceImport_usage(t *testing.T) {
	t.Parallel()
	env := map[string]string{"WAGGLE_SERVER": "127.0.0.1:1"}
	for args, want := range map[string]string{
		"x --format yaml":            "--format \"yaml\": say csv",
		"x --every 1h --cron @daily": "--every and --cron",
		"x --time-zone UTC":          "--time-zone is the zone of --cron",
		"- --resume s":               "standard input cannot be read twice",
		"x --resume s --dry-run":     "--resume and --dry-run",
		"x --parallel 0":             "--parallel 0: say 1 to 16",
	} {
		wantFailure(t, command(t, env, append([]string{"source", "import"}, strings.Fields(args)...)...), waggle.ExitUsage, want)
	}
	wantFailure(t, command(t, env, "source", "import", filepath.Join(t.TempDir(), "none")), waggle.ExitFailed, "no such file")
}

// stalling is a dispatcher that passes two calls of ApplySources on, and answers
// no other.
type stalling struct {
	pb.SourceServiceClient

	calls   int
	away    bool          // at the first call
	stalled chan struct{} // closed at the third call
}

func (s *stalling) serve(t *testing.T) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterSourceServiceServer(server, stallingServer{s: s})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

type stallingServer struct {
	pb.UnimplementedSourceServiceServer
	s *stalling
}

// ApplySources is called by one goroutine at a time.
func (s stallingServer) ApplySources(ctx context.Context, req *pb.ApplySourcesRequest) (*pb.ApplySourcesResponse, error) {
	s.s.calls++
	if s.s.away && s.s.calls == 1 {
		return nil, status.Error(codes.Unavailable, "gone for a moment")
	}
	if s.s.calls == 3 {
		close(s.s.stalled)
	}
	if s.s.calls > 2 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.s.SourceServiceClient.ApplySources(ctx, req)
}

// An import writes neither over what it reads nor two things into one file.
func TestSourceImport_sameFile(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	const text = "url\nhttps://a.example/\n"
	file := write(t, "feeds.csv", text)
	link := filepath.Join(t.TempDir(), "link.csv")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(t.TempDir(), "both")
	for _, args := range [][]string{
		{"--report", file, "--dry-run"}, {"--report", link}, {"--resume", file}, {"--report", both, "--resume", both},
	} {
		wantFailure(t, command(t, env, append([]string{"source", "import", file, "--every", "1h"}, args...)...), waggle.ExitUsage, "are the same file")
	}
	if got := readText(t, file); got != text {
		t.Errorf("the input became %q", got)
	}
}

// An import that was interrupted goes on from where its state says, with its
// report, and ends as one that was not. An interruption is a kill: here, the
// state and the report as they were at an earlier moment.
func TestSourceImport_resume(t *testing.T) {
	t.Parallel()
	env, d := served(t)
	dir := t.TempDir()
	state, report := filepath.Join(dir, "state"), filepath.Join(dir, "report.jsonl")
	const n = 3000
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "https://h%d.example/\n", i)
		if i == 10 {
			text.WriteString("no url\n")
		}
	}
	file := write(t, "urls.txt", text.String())
	args := []string{"source", "import", file, "--every", "1h", "--resume", state, "--report", report, "--parallel", "1"}

	// A dispatcher that takes two calls and then answers no more.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	errs := newStream()
	slow := &stalling{SourceServiceClient: pb.NewSourceServiceClient(connect(t, env)), stalled: make(chan struct{})}
	stalled := with(env, "WAGGLE_SERVER", slow.serve(t))
	go func() { ended <- waggle.Run(ctx, args, strings.NewReader(""), newStream(), errs, stalled) }()
	select {
	case <-slow.stalled:
	case <-time.After(waitLimit):
		t.Fatal("no third call was made")
	}
	stop()
	got := answer{code: <-ended, err: errs.text()}
	wantFailure(t, got, waggle.ExitFailed, "line 12: ", "stopped after 1,000 sources; the same command again goes on from there", "waggle: interrupted")
	var kept struct {
		Done   int
		Report int64
	}
	if err := json.Unmarshal([]byte(readText(t, state)), &kept); err != nil || kept.Done != 1000 {
		t.Fatalf("state %+v, %v", kept, err)
	}
	// What a kill leaves beyond the state.
	extra, err := os.OpenFile(report, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := extra.WriteString(`{"line": 99, "half": `); err != nil {
		t.Fatal(err)
	}
	if err := extra.Close(); err != nil {
		t.Fatal(err)
	}

	wantFailure(t, command(t, env, append(args, "--now")...), waggle.ExitFailed, "is of another import", "remove it to begin anew")
	other := filepath.Join(dir, "other.jsonl")
	wantFailure(t, command(t, env, append(args, "--report", other)...), waggle.ExitUsage, "is not the report of the import that --resume goes on with")
	got = command(t, env, args...)
	wantFailure(t, got, waggle.ExitFailed)
	var counts [5]int
	if _, err := fmt.Sscanf(strings.ReplaceAll(got.out, ",", ""), "3001 sources: %d created %d updated %d unchanged %d duplicates %d refused",
		&counts[0], &counts[1], &counts[2], &counts[3], &counts[4]); err != nil || counts[0]+counts[2] != n || counts[1] != 0 || counts[4] != 1 {
		t.Errorf("%v, %v: %s", counts, err, got.out)
	}
	lines := strings.Split(strings.TrimSpace(readText(t, report)), "\n")
	seen := map[int]bool{}
	for _, line := range lines {
		var entry struct{ Line int }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || seen[entry.Line] {
			t.Fatalf("report: %v: %s", err, line)
		}
		seen[entry.Line] = true
	}
	if len(lines) != n+1 {
		t.Errorf("the report has %d lines, want %d", len(lines), n+1)
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the state is still there: %v", err)
	}
	d.end()
}

// What export writes, import reads, and then nothing has changed.
func TestSourceExport_roundTrip(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "full", "--seed", "https://a.example/", "--seed", "https://b.example/?x=1&y=2", "--cron", "0 6 * * *",
		"--time-zone", "Europe/Berlin", "--revisit", "--follow-host", "*.example,b.test", "--max-depth", "3", "--include", "/a b/", "--exclude", "x$",
		"--pool", "eu", "--priority", "0", "--display-name", `The "full", one & only`, "--label", "category=a/b,team=x", "--scope", "shared",
		"--lease", "1m", "--max-hold", "2h", "--max-attempts", "2", "--min-backoff", "1s", "--remember", "36h", "--revisit-after", "2d",
		"--max-outstanding", "7", "--metadata", "lang=en")
	command(t, env, "source", "create", "plain", "--seed", "https://p.example/", "--every", "90m", "--first-crawl", "spread")
	command(t, env, "source", "create", "none")
	for _, format := range []string{"jsonl", "csv", "opml"} {
		exported := command(t, env, "source", "export", "--format", format)
		if exported.code != waggle.ExitOK || exported.err != "" {
			t.Fatalf("%s: %d, %s", format, exported.code, exported.err)
		}
		for _, name := range []string{"import", "apply"} {
			got := commandWith(t, env, exported.out, "source", name, "-")
			if want := "3 sources: 0 created, 0 updated, 3 unchanged, 0 duplicates, 0 refused\n"; got.out != want {
				t.Errorf("%s: %s%s\n%s", format, got.out, got.err, exported.out)
			}
		}
	}
	urls := command(t, env, "source", "export", "--format", "urls")
	wantFailure(t, urls, waggle.ExitOK, "urls cannot hold all of id, of 2 sources", "cannot hold all of schedule, of 2 sources", "1 source left out")
	if urls.out != "https://a.example/\nhttps://b.example/?x=1&y=2\nhttps://p.example/\n" {
		t.Errorf("printed %q", urls.out)
	}
	some := command(t, env, "source", "export", "--pool", "eu")
	if strings.Count(some.out, "\n") != 1 || !strings.HasPrefix(some.out, `{"id":"full"`) {
		t.Errorf("filtered: %s", some.out)
	}
	wantFailure(t, command(t, env, "source", "export", "--format", "sitemap"), waggle.ExitUsage, "say csv, jsonl, opml or urls")
}

func TestSourceWait(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "10")
	command(t, env, "source", "create", "idle", "--seed", "https://i.example/", "--every", "1h", "--first-crawl", "spread")
	wantOutput(t, command(t, env, "source", "wait", "idle"), "idle: finished; 0 done, 0 dead, 0 canceled\n")
	command(t, env, "source", "create", "busy", "--seed", "https://b.example/", "--every", "1h", "--follow")
	late := command(t, env, "source", "wait", "busy", "--for", "300ms")
	wantFailure(t, late, waggle.ExitFailed, "not finished within --for: busy: 1 outstanding")
	wantFailure(t, command(t, env, "source", "wait"), waggle.ExitUsage, "which sources?")
	wantFailure(t, command(t, env, "source", "wait", "none"), waggle.ExitFailed, "source not found")

	waiting := start(t, env, "source", "wait", "busy", "idle")
	waiting.out.line(t, "busy: 1 outstanding")
	dispatch := pb.NewDispatchServiceClient(connect(t, env))
	work := func(token string, outcome *pb.Outcome) {
		t.Helper()
		got, err := dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: token, Wait: durationpb.New(5 * time.Second)})
		if err != nil || len(got.GetLeasedTasks()) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		lease := got.GetLeasedTasks()[0].GetLease()
		if _, err := dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
			TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: outcome,
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	work("t1", &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{Discovered: []*pb.DiscoveredItem{
		{Url: "https://b.example/1"}, {Url: "https://b.example/2"},
	}}}})
	waiting.out.line(t, "busy: 2 outstanding")
	work("t2", &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{}}})
	work("t3", &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_GONE, Permanent: true}}})
	if code := waiting.wait(); code != waggle.ExitOK {
		t.Errorf("exit code %d: %s", code, waiting.err.text())
	}
	waiting.out.line(t, "busy: finished; 1 done, 1 dead, 0 canceled")
}

func TestSource_Health(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "a", "--seed", "https://a.example/", "--every", "1h")
	dispatch := pb.NewDispatchServiceClient(connect(t, env))
	got, err := dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: "t"})
	if err != nil || len(got.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	lease := got.GetLeasedTasks()[0].GetLease()
	if _, err := dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
		TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{
			Reason: pb.FailureReason_FAILURE_REASON_SERVER_ERROR, HttpStatus: 503, Message: "down for repairs",
		}}},
	}}}); err != nil {
		t.Fatal(err)
	}
	command(t, env, "source", "pause", "a", "--by", "ada", "--reason", "they mend it")
	sheet := settle(command(t, env, "source", "get", "a").out)
	if strings.Contains(sheet, "Collector") {
		t.Errorf("its own failure is told as the collector's:\n%s", sheet)
	}
	for _, line := range []string{
		"Health PAUSED\n", "Unfinished 1 task\n", "Waits for SOURCE_PAUSED: by ada, AGO: they mend it\n", "HOST_BLOCKED: ", "Last success -\n",
		"Last failure AGO (TIME)\n", "Failures 1 in a row\n", "Reason SERVER_ERROR (HTTP 503): down for repairs\n", "it waits for its next attempt",
	} {
		if !strings.Contains(strings.ReplaceAll(sheet, "  ", " "), line) {
			t.Errorf("lacks %q:\n%s", line, sheet)
		}
	}
}
