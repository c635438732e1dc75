//go:build linux

package root_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// fixed is a dispatcher that always lists the same, with the long texts that real ones have.
type fixed struct {
	pb.UnimplementedSourceServiceServer
	pb.UnimplementedTaskServiceServer
	pb.UnimplementedQueueServiceServer
	pb.UnimplementedAdminServiceServer
}

func (fixed) ListSources(context.Context, *pb.ListSourcesRequest) (*pb.ListSourcesResponse, error) {
	gate := &pb.Gate{Kind: pb.GateKind_GATE_KIND_NO_COLLECTOR, Reason: `no active collector takes tasks of pool "browser"`}
	every := &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(10 * time.Minute)}}
	return &pb.ListSourcesResponse{Sources: []*pb.Source{
		{Id: "feeds.example", Spec: &pb.SourceSpec{Pool: "default", Schedule: every}, Status: &pb.SourceStatus{
			Health: pb.SourceHealth_SOURCE_HEALTH_OK, Tasks: &pb.TaskCounts{Scheduled: 12, Ready: 3, Done: 123456},
			NextDueTime: timestamppb.New(time.Now().Add(2 * time.Hour)), LastSuccessTime: timestamppb.New(time.Now().Add(-3 * time.Hour)),
			Filtered: []*pb.FilteredLinks{{Reason: pb.FilterReason_FILTER_REASON_HOST, Count: 17}},
		}},
		{Id: "news.a-title-that-is-longer-than-most.example", Spec: &pb.SourceSpec{Pool: "browser", Schedule: every}, Status: &pb.SourceStatus{
			Health: pb.SourceHealth_SOURCE_HEALTH_FAILING, ConsecutiveFailures: 7, Tasks: &pb.TaskCounts{Ready: 1, Dead: 2}, Gates: []*pb.Gate{gate},
		}},
	}}, nil
}

func (fixed) ListTasks(context.Context, *pb.ListTasksRequest) (*pb.ListTasksResponse, error) {
	return &pb.ListTasksResponse{Tasks: []*pb.Task{
		{
			Id: clitest.HeldTask, State: pb.TaskState_TASK_STATE_LEASED, SourceId: "feeds.example", Url: "https://news.example/a/b/c/today.html?page=17", Depth: 1,
			DueTime: timestamppb.New(time.Now().Add(-3 * time.Hour)), Holder: &pb.LeaseHolder{CollectorId: "paris-1"},
		},
		{Id: clitest.NoTask, State: pb.TaskState_TASK_STATE_DEAD, SourceId: "feeds.example", Url: "https://news.example/2", LastError: &pb.TaskError{
			Reason: pb.FailureReason_FAILURE_REASON_NOT_FOUND, HttpStatus: 404, Message: "nothing here, and nothing behind it",
		}},
	}}, nil
}

func (fixed) ListQueues(context.Context, *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	settings := &pb.QueueSettings{MaxInFlight: 1, MinDelay: durationpb.New(time.Second)}
	return &pb.ListQueuesResponse{Queues: []*pb.Queue{
		{Name: "news.example", Waiting: 1234567, Leased: 1, Settings: settings, NextGrantDelay: durationpb.New(400 * time.Millisecond)},
		{
			Name: "a-host-with-a-long-name.shops.example", Waiting: 4, Settings: settings, RulePattern: "*.shops.example",
			Gates: []*pb.Gate{{Kind: pb.GateKind_GATE_KIND_HOST_BLOCKED}, {Kind: pb.GateKind_GATE_KIND_MAX_IN_FLIGHT}},
		},
	}}, nil
}

func (fixed) ListCollectors(context.Context, *pb.ListCollectorsRequest) (*pb.ListCollectorsResponse, error) {
	return &pb.ListCollectorsResponse{Collectors: []*pb.Collector{
		{
			State: pb.CollectorState_COLLECTOR_STATE_ACTIVE, Leases: 8, HeartbeatAge: durationpb.New(4 * time.Second), StartTime: timestamppb.New(time.Now().Add(-3 * time.Hour)),
			Info: &pb.CollectorInfo{
				Id: "paris-1", Slots: 8, Pools: []string{"default", "browser"}, Hostname: "paris-1.eu.example", Version: "v1.2.3",
				Labels: map[string]string{"region": "eu", "disk": "ssd"},
			},
		},
		{
			State: pb.CollectorState_COLLECTOR_STATE_GONE, HeartbeatAge: durationpb.New(2 * time.Hour), StartTime: timestamppb.New(time.Now().Add(-5 * time.Hour)),
			Info: &pb.CollectorInfo{Id: "london-2", Slots: 8, Pools: []string{"default"}, Hostname: "london-2.uk.example", Version: "v1.2.3"},
		},
	}}, nil
}

func (fixed) ListLeases(context.Context, *pb.ListLeasesRequest) (*pb.ListLeasesResponse, error) {
	return &pb.ListLeasesResponse{Leases: []*pb.HeldLease{{
		TaskId: clitest.HeldTask, SourceId: "feeds.example", Queue: "news.example", Url: "https://news.example/a/b/c/today.html?page=17",
		Holder: &pb.LeaseHolder{CollectorId: "paris-1", Age: durationpb.New(12 * time.Second), Remaining: durationpb.New(18 * time.Second), Fence: 1764000000000000},
	}}}, nil
}

// fixedServer is an environment with that dispatcher.
func fixedServer(t *testing.T) map[string]string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, ended := grpc.NewServer(), make(chan error, 1)
	pb.RegisterSourceServiceServer(server, fixed{})
	pb.RegisterTaskServiceServer(server, fixed{})
	pb.RegisterQueueServiceServer(server, fixed{})
	pb.RegisterAdminServiceServer(server, fixed{})
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return map[string]string{"WAGGLE_SERVER": listener.Addr().String()}
}

// Lists fit a terminal that does not report its width, which is then 80, and lose no column: ids are cut in the middle.
func TestTerminal_lists(t *testing.T) {
	t.Parallel()
	env := clitest.With(fixedServer(t), "NO_COLOR", "1")
	for args, want := range map[string]string{
		"source list": `
SOURCE                    HEALTH   READY  LEASED  DEAD  WHY
feeds.example             OK           3       0     0  -
  POOL default  SCHEDULE every 10m  SCHEDULED 12  DONE 123,456  CANCELED 0
  FILTERED 17 HOST  NEXT DUE in 2h  LAST SUCCESS 3h ago
news.a-title…ost.example  FAILING      1       0     2  7 failures in a row, NO…
  POOL browser  SCHEDULE every 10m  SCHEDULED 0  DONE 0  CANCELED 0
`,
		"task list --queue news.example": `
TASK          STATE   SOURCE        DUE     DEPTH  URL
2239-4…p2jza  LEASED  feeds.…ample  3h ago      1  https://news.e….html?page=17
  HELD BY paris-1
17-aaa…aaaaa  DEAD    feeds.…ample  -           0  https://news.example/2
  LAST ERROR NOT_FOUND (HTTP 404): nothing here, and nothing behind it
`,
		"queue list": `
QUEUE               WAITING  LEASED  AT MOST  DELAY      NEXT  HELD BY
news.example      1,234,567       1        1     1s  in 400ms  -
  RULE default
a-host-w…example          4       0        1     1s      held  HOST_BLOCKED MA…
  RULE *.shops.example
`,
		"collector list": `
COLLECTOR  STATE   LEASES  SLOTS  POOLS         LAST BEAT  STARTED  LABELS
paris-1    ACTIVE       8      8  default bro…     4s ago  3h ago   disk=ssd re…
  HOST paris-1.eu.example  VERSION v1.2.3
london-2   GONE         0      8  default          2h ago  5h ago   -
  HOST london-2.uk.example  VERSION v1.2.3
`,
		"lease list": `
TASK         SOURCE       QUEUE        HOLDER   HELD FOR  ENDS    URL
2239-…p2jza  feeds…ample  news.…ample  paris-1       12s  in 18s  https:/…age=17
  FENCE 1764000000000000
`,
	} {
		got := clitest.OnTerminal(t, 0, env, strings.Fields(args)...)
		if got != want[1:] {
			t.Errorf("%s:\n%s", args, got)
		}
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: a line has %d columns: %s", args, n, line)
			}
		}
	}
}

// A wide terminal has room for more, and in a pipe everything is whole.
func TestTerminal_width(t *testing.T) {
	t.Parallel()
	env := fixedServer(t)
	const id, why = "news.a-title-that-is-longer-than-most.example", `no active collector takes tasks of pool "browser"`
	pipe := clitest.Command(t, env, "source", "list").Out
	wide := clitest.OnTerminal(t, 300, clitest.With(env, "NO_COLOR", "1"), "source", "list")
	if wide != pipe || !strings.Contains(pipe, id) || !strings.Contains(pipe, why) || !strings.Contains(pipe, "FILTERED") {
		t.Errorf("a pipe gets\n%s\na wide terminal\n%s", pipe, wide)
	}
	narrow := clitest.OnTerminal(t, 0, clitest.With(env, "COLUMNS", "60"), "source", "list")
	middle := clitest.OnTerminal(t, 240, clitest.With(env, "COLUMNS", "60"), "source", "list") // it knows its own width
	for text, want := range map[string]bool{narrow: false, middle: true} {
		if strings.Contains(text, id) != want || strings.Count(text, "LAST SUCCESS") != 1 {
			t.Errorf("the id is whole: want %v in\n%s", want, text)
		}
	}
}

// Findings fit a terminal of 80 columns and 24 rows; in a pipe all of them are whole.
func TestTerminal_status(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	const reason = "the people of this host asked for a week without requests, and they were right"
	for i := range 30 {
		clitest.Command(t, env, "hold", "set", "--everything", "--name", fmt.Sprint("stop-", i), "--reason", reason)
	}
	lines := strings.Split(strings.TrimSuffix(clitest.OnTerminal(t, 80, clitest.With(env, "NO_COLOR", "1"), "status"), "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	if got := clitest.Command(t, env, "status"); strings.Contains(got.Out, "…") || strings.Count(got.Out, reason) != 30 {
		t.Errorf("a pipe gets\n%s", got.Out)
	}
}

// Commands that can take long show on a terminal how far they are, and erase that at their end.
func TestTerminal_progress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, file, restored := filepath.Join(dir, "data"), filepath.Join(dir, "backup"), filepath.Join(dir, "restored")
	d := clitest.Start(t, map[string]string{"WAGGLE_STORE": "file:" + data}, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json")
	env := map[string]string{"WAGGLE_SERVER": clitest.Address(t, d)}
	urls := clitest.WriteFile(t, "urls.txt", "https://a.example/1\nhttps://a.example/2\n")
	for _, step := range []struct{ args, shows string }{
		{"source import " + urls + " --every 1h", `^2 sources, [\d,]+ sources/s, 100%\n`},
		{"task submit --source a.example_1 --file " + urls, `^2 tasks, [\d,]+ tasks/s, 100%\n`},
		{"store backup " + data + " " + file, `^[\d.]+ [KM]?i?B, [\d.]+ [KMG]?i?B/s, \d+%\n`},
		{"store check " + data, `^[\d.]+ [KM]?i?B, [\d.]+ [KMG]?i?B/s, \d+%\n`},
		{"store restore " + file + " " + restored, `^[\d.]+ [KM]?i?B, [\d.]+ [KMG]?i?B/s, \d+%\n`},
		{"store copy file:" + restored + " file:" + filepath.Join(dir, "copy"), `^copying, [\d,]+ parts?, \d+%\n(.*\n)*.*comparing, [\d,]+ parts?`},
	} {
		term := clitest.OpenTerminal(t, 100)
		code := clitest.Run(t.Context(), strings.Fields(step.args), strings.NewReader(""), io.Discard, term.TTY, env)
		got := strings.ReplaceAll(term.All(t), "\r\x1b", "\x1b")
		if code != cli.ExitOK || !regexp.MustCompile(step.shows).MatchString(got) || !strings.HasSuffix(got, "\x1b[J") {
			t.Errorf("%s: exit code %d, the terminal shows\n%q", step.args, code, got)
		}
	}
}

// The words of states have colors on a terminal, unless that is turned off.
func TestTerminal_colors(t *testing.T) {
	t.Parallel()
	env := fixedServer(t)
	const red = "\x1b[31mFAILING\x1b[0m"
	for _, test := range []struct {
		name, value string
		want        bool
	}{{"TERM", "xterm", true}, {"NO_COLOR", "", true}, {"NO_COLOR", "0", false}, {"TERM", "dumb", false}} {
		if got := clitest.OnTerminal(t, 0, clitest.With(env, test.name, test.value), "source", "list"); strings.Contains(got, red) != test.want || !strings.Contains(got, "FAILING") {
			t.Errorf("%s=%q: want colors: %v, got %q", test.name, test.value, test.want, got)
		}
	}
	if got := clitest.Command(t, env, "source", "list"); strings.Contains(got.Out, "\x1b") {
		t.Errorf("a pipe gets %q", got.Out)
	}
}

// On a terminal each look takes the place of the one before, and Ctrl-C ends them.
func TestTerminal_watch(t *testing.T) {
	t.Parallel()
	env := fixedServer(t)
	term := clitest.OpenTerminal(t, 100)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan int, 1)
	go func() {
		ended <- clitest.Run(ctx, []string{"queue", "list", "--watch=10ms"}, strings.NewReader(""), term.TTY, io.Discard, env)
	}()
	var shown []byte
	for looks := 0; looks < 3; looks = bytes.Count(shown, []byte("\x1b[Hwaggle queue list, every 10ms, at ")) {
		part := make([]byte, 1000)
		n, err := term.Shows.Read(part)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, part[:n]...)
	}
	interrupt()
	if code := <-ended; code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if term.All(t); !bytes.Contains(shown, []byte("\x1b[K\r\n\x1b[J\x1b[H")) {
		t.Errorf("what stood below is not erased: %q", shown)
	}
}
