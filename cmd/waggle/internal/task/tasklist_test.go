package task_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// listedKeys are the keys that `task list` shows, in order of their names, and what it says besides.
func listedKeys(t *testing.T, env map[string]string, args ...string) (keys, noted string) {
	t.Helper()
	got := clitest.Command(t, env, append([]string{"task", "list", "-o", "json"}, args...)...)
	var all struct{ Tasks []struct{ Key string } }
	if err := json.Unmarshal([]byte(got.Out), &all); err != nil || got.Code != cli.ExitOK {
		t.Fatalf("%v: %v, exit code %d: %s", args, err, got.Code, got.Err)
	}
	var list []string
	for _, task := range all.Tasks {
		list = append(list, task.Key)
	}
	slices.Sort(list)
	return strings.Join(list, " "), got.Err
}

// Tasks are listed of several sources and queues, page after page of each.
func TestTask_listOfMany(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "news.a", "--pool", "eu", "--label", "kind=feed")
	clitest.Command(t, env, "source", "create", "news.b")
	clitest.Command(t, env, "source", "create", "shop.c", "--pool", "eu")
	clitest.Command(t, env, "source", "create", "news.none")
	for _, task := range []struct{ source, queue, key string }{
		{"news.a", "example.com", "a1"}, {"news.a", "www.example.com", "a2"}, {"news.b", "other.example", "b1"}, {"shop.c", "example.com", "c1"},
	} {
		clitest.Command(t, env, "task", "submit", "--source", task.source, "--queue", task.queue, "--key", task.key)
	}
	clitest.Command(t, env, "task", "cancel", "--source", "news.b", "--key", "b1", "--queue", "other.example")
	for _, test := range []struct{ args, keys, noted string }{
		{"--all", "a1 a2 b1 c1", ""},
		{"--all --limit 0", "a1 a2 b1 c1", ""},
		{"--all --limit 2", "a1 a2", "more follow after these 2; --limit 0 lists all\n"},
		{"--all --limit 4", "a1 a2 b1 c1", ""},
		{"--all --state canceled", "b1", ""},
		{"--all --state scheduled", "", ""},
		{"--prefix news.", "a1 a2 b1", ""},
		{"--prefix news. --state ready,leased", "a1 a2", ""},
		{"--prefix news. --queue example.com", "a1", ""},
		{"--pool eu", "a1 a2 c1", ""},
		{"--label kind=feed", "a1 a2", ""},
		{"--prefix nwes.", "", "waggle: no source matches --prefix, --pool and --label\n"},
	} {
		if keys, noted := listedKeys(t, env, strings.Fields(test.args)...); keys != test.keys || noted != test.noted {
			t.Errorf("%s: %q, stderr %q; want %q, %q", test.args, keys, noted, test.keys, test.noted)
		}
	}
	for _, test := range []struct{ args, problem string }{
		{"", "tasks of what? say --source, --queue, --prefix, --pool, --label or --all"},
		{"--state dead", "tasks of what?"},
		{"--source news.a --prefix news.", "--source names one source"},
		{"--source news.a --all", "--source names one source"},
	} {
		clitest.WantFailure(t, clitest.Command(t, env, append([]string{"task", "list"}, strings.Fields(test.args)...)...), cli.ExitUsage, test.problem)
	}
}

// For programs a list is whole, with seeds, or ends with the token of the rest, from which the next one goes on.
func TestList_pages(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	var want []string
	for i := range 205 {
		want = append(want, fmt.Sprintf("s%03d", i))
	}
	const specs = `{"id": "%s", "canonical_rules": 1, "seeds": [{"url": "https://%[1]s.example/"}]}` + "\n"
	var file strings.Builder
	for _, id := range want {
		fmt.Fprintf(&file, specs, id)
	}
	if got := clitest.Command(t, env, "source", "import", clitest.WriteFile(t, "a.jsonl", file.String()), "--every", "1d", "--now"); got.Code != cli.ExitOK {
		t.Fatal(got.Err)
	}
	type page struct {
		Sources []struct {
			ID   string
			Spec struct{ Seeds []struct{ URL string } }
		}
		Tasks []struct {
			SourceID string `json:"source_id"`
		}
		Next string `json:"next_page_token"`
	}
	read := func(args ...string) (found page) {
		t.Helper()
		got := clitest.Command(t, env, append(args, "-o", "json")...)
		if err := json.Unmarshal([]byte(got.Out), &found); err != nil || got.Code != cli.ExitOK || (found.Next == "") != (got.Err == "") {
			t.Fatalf("%v: %v, exit code %d: %q", args, err, got.Code, got.Err)
		}
		return found
	}
	for limit, pages := range map[int]int{0: 1, 100: 3, 205: 1} {
		var sources, tasks []string
		for _, list := range []string{"source list", "task list --all"} {
			token, n := "", 1
			for ; ; n++ {
				args := strings.Fields(list)
				if limit > 0 {
					args = append(args, "--limit", fmt.Sprint(limit), "--page-token", token)
				}
				found := read(args...)
				for _, s := range found.Sources {
					if sources = append(sources, s.ID); len(s.Spec.Seeds) != 1 {
						t.Errorf("%s has seeds %v", s.ID, s.Spec.Seeds)
					}
				}
				for _, task := range found.Tasks {
					tasks = append(tasks, task.SourceID)
				}
				if token = found.Next; token == "" {
					break
				}
			}
			if n != pages {
				t.Errorf("%s --limit %d: %d pages, want %d", list, limit, n, pages)
			}
		}
		if !slices.Equal(sources, want) || !slices.Equal(tasks, want) {
			t.Errorf("--limit %d: sources %q, tasks of %q", limit, sources, tasks)
		}
	}
	if got := clitest.Command(t, env, "source", "list"); strings.Count(got.Out, "\n") != 201 || got.Err != "more follow after these 200; --limit 0 lists all\n" {
		t.Errorf("a table has %d lines; %s", strings.Count(got.Out, "\n"), got.Err)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "source", "list", "--page-token", "x"), cli.ExitUsage, "page_token")
}

// oneOfEach has a source for each state, with one task in it, and notes which sources are
// asked for their tasks.
type oneOfEach struct {
	pb.UnimplementedSourceServiceServer
	pb.UnimplementedTaskServiceServer
	asked []string // one call at a time
}

func (o *oneOfEach) ListSources(context.Context, *pb.ListSourcesRequest) (*pb.ListSourcesResponse, error) {
	reply := &pb.ListSourcesResponse{}
	for id, tasks := range map[string]*pb.TaskCounts{
		"scheduled": {Scheduled: 1}, "ready": {Ready: 1}, "leased": {Leased: 1}, "dead": {Dead: 1}, "canceled": {Canceled: 1}, "done": {Done: 1},
	} {
		reply.Sources = append(reply.Sources, &pb.Source{Id: id, Status: &pb.SourceStatus{Tasks: tasks}})
	}
	return reply, nil
}

func (o *oneOfEach) ListTasks(_ context.Context, req *pb.ListTasksRequest) (*pb.ListTasksResponse, error) {
	o.asked = append(o.asked, req.GetFilter().GetSourceId())
	return &pb.ListTasksResponse{}, nil
}

// Of many sources those are asked whose counts say that they may have such tasks.
func TestTaskList_asksFew(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, sources := grpc.NewServer(), &oneOfEach{}
	pb.RegisterSourceServiceServer(server, sources)
	pb.RegisterTaskServiceServer(server, sources)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	env := map[string]string{"WAGGLE_SERVER": listener.Addr().String()}
	for states, want := range map[string]string{
		"scheduled": "scheduled", "ready": "ready scheduled", "leased": "leased", "dead": "dead", "canceled": "canceled",
		"leased,dead": "dead leased", "": "canceled dead leased ready scheduled",
	} {
		args := []string{"task", "list", "--all"}
		if states != "" {
			args = append(args, "--state", states)
		}
		sources.asked = nil
		got := clitest.Command(t, env, args...)
		slices.Sort(sources.asked)
		if asked := strings.Join(sources.asked, " "); got.Code != cli.ExitOK || asked != want {
			t.Errorf("--state %s asked %q, want %q; %s", states, asked, want, got.Err)
		}
	}
}

// In 80 columns a task that failed is listed with its whole address and with why, and no line is spent on the usual depth.
func TestTask_listFits(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "n.feed")
	clitest.Command(t, env, "task", "submit", "--source", "n.feed", "http://127.0.0.1:8199/0.html")
	clitest.FailTask(t, env, &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_FORBIDDEN, HttpStatus: 403, Message: "answered 403"})
	got := clitest.OnTerminal(t, 0, env, "task", "list", "--source", "n.feed")
	for _, want := range []string{"  http://127.0.0.1:8199/0.html", "\n  LAST ERROR FORBIDDEN (HTTP 403): answered 403\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the list has no %q:\n%s", want, got)
		}
	}
}
