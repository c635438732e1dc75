//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// repository is the top of the repository, seen from this package.
const repository = "../.."

// grpcPython is a Python that has what the package in collector/python needs.
func grpcPython(t *testing.T) string {
	t.Helper()
	return pythonWith(t, "WAGGLE_E2E_PYTHON", "import grpc.aio, google.rpc.status_pb2", "grpcio", "protobuf<8", "googleapis-common-protos")
}

// pythonCollector starts the example crawl.py on some dispatchers. Its pages go to the folder that is returned.
func pythonCollector(t *testing.T, id string, servers ...string) (p *process, out string) {
	t.Helper()
	return pythonCollectorWith(t, nil, id, servers...)
}

// pythonCollectorWith is pythonCollector with variables of its environment.
func pythonCollectorWith(t *testing.T, variables []string, id string, servers ...string) (p *process, out string) {
	t.Helper()
	python, out := grpcPython(t), t.TempDir()
	folder, err := filepath.Abs(filepath.Join(repository, "collector", "python"))
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"PYTHONPATH=" + filepath.Join(folder, "src")}, variables...)
	args = append(args, python, filepath.Join(folder, "examples", "crawl.py"), "--id", id, "--slots", "4", "--out", out)
	for _, server := range servers {
		args = append(args, "--server", server)
	}
	return launch(t, id, "env", args...), out
}

// smallSite is a site with a few links, a page that takes as long as the test wants, and a redirect to another host.
type smallSite struct {
	url  string
	slow chan struct{} // closed: /slow ends

	mu    sync.Mutex     // guards what follows
	asked map[string]int // by host and path
	cut   int            // how often /slow was given up by the client
	again int            // requests for / with its ETag
}

func newSmallSite(t *testing.T) *smallSite {
	t.Helper()
	s := &smallSite{slow: make(chan struct{}), asked: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *smallSite) count(n *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *n
}

func (s *smallSite) requests(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

func (s *smallSite) body(path string) string {
	switch path {
	case "/":
		return `<a href="a#top">A</a> <a href='/b'>B</a> <a href="/a">A again</a> <a href="/moved">moved</a> <a href="/slow">slow</a> <a href="http://other.example/">other</a>`
	case "/slow":
		return "slow"
	}
	return "<p>" + path + "</p>"
}

// ServeHTTP implements http.Handler.
func (s *smallSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	if r.URL.Path == "/" && r.Header.Get("If-None-Match") == `"v1"` {
		s.again++
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, port, _ := net.SplitHostPort(r.Host)
	switch r.URL.Path {
	case "/":
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(s.body("/")))
	case "/moved":
		http.Redirect(w, r, "http://localhost:"+port+"/there", http.StatusFound)
	case "/slow":
		s.trickle(w, r)
	default:
		fmt.Fprint(w, s.body(r.URL.Path))
	}
}

// trickle sends white space until the page may end or the client has gone.
func (s *smallSite) trickle(w http.ResponseWriter, r *http.Request) {
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-s.slow:
			fmt.Fprint(w, s.body("/slow"))
			return
		case <-r.Context().Done():
			s.mu.Lock()
			s.cut++
			s.mu.Unlock()
			return
		case <-tick.C:
			fmt.Fprint(w, " ")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// storedPages are the bodies that the Python collector has stored, by URL.
func storedPages(t *testing.T, out string) map[string]string {
	t.Helper()
	file, err := os.Open(filepath.Join(out, "pages.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	pages := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct{ URL, File string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		body, err := os.ReadFile(filepath.Join(out, line.File))
		if err != nil {
			t.Fatal(err)
		}
		pages[line.URL] = strings.TrimLeft(string(body), " ")
	}
	return pages
}

// TestPythonCollector crawls a small site with the example crawl.py at two dispatchers: every page is stored once,
// a lease is kept for as long as the page takes, a hold that ends leases stops it, and the crawl goes on when the hold is
// lifted, and when a dispatcher goes away.
func TestPythonCollector(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	leaving, staying := serve(t, "leaving", server.URL(), prefix), serve(t, "staying", server.URL(), prefix)
	c := dial(t, staying.addr)
	c.setRule(t, "*", 0, 4)
	site := newSmallSite(t)
	local := strings.TrimPrefix(site.url, "http://")
	other := strings.Replace(local, "127.0.0.1", "localhost", 1)
	c.createSource(t, &pb.SourceSpec{
		Id: "python", Seeds: []*pb.Seed{{Url: site.url + "/"}}, LeaseDuration: durationpb.New(time.Second),
		Follow: &pb.Follow{AllowHosts: []string{local, other}},
	})
	collector, out := pythonCollector(t, "py-1", leaving.addr, staying.addr)

	slow := func() *pb.Task {
		reply, err := c.tasks.GetTask(t.Context(), &pb.GetTaskRequest{SourceId: "python", Url: site.url + "/slow"})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetTask()
	}
	until(t, startLimit, "the slow page is asked for", func() bool { return site.requests("/slow") == 1 })
	until(t, 10*time.Second, "its lease is three times as old as it would be without heartbeats", func() bool {
		task := slow()
		if task.GetExpirations() > 0 {
			t.Fatalf("the lease has expired: %v", task)
		}
		return task.GetHolder().GetAge().AsDuration() > 3*time.Second
	})

	hold := &pb.HoldTarget{CollectorId: "py-1"}
	reply, err := c.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{hold}, Effect: pb.HoldEffect_HOLD_EFFECT_END_LEASES, By: "e2e"})
	if err != nil || reply.GetEndedLeases() != 1 {
		t.Fatalf("hold the collector: %v, %v", reply, err)
	}
	until(t, 5*time.Second, "the collector has given the slow page up", func() bool {
		return site.count(&site.cut) == 1 && slow().GetState() != pb.TaskState_TASK_STATE_LEASED
	})
	if task := slow(); task.GetFailures()+task.GetExpirations() > 0 || task.GetState() != pb.TaskState_TASK_STATE_READY {
		t.Errorf("the slow page after the hold: %v", task)
	}
	c.lift(t, hold)
	until(t, 10*time.Second, "the slow page is asked for again", func() bool { return site.requests("/slow") == 2 })
	leaving.stop(20 * time.Second)
	close(site.slow)

	want := map[string]string{site.url + "/": site.body("/"), "http://" + other + "/there": site.body("/there")}
	for _, path := range []string{"/a", "/b", "/slow"} {
		want[site.url+path] = site.body(path)
	}
	until(t, 10*time.Second, "all pages are stored", func() bool { return len(storedPages(t, out)) >= len(want) })
	if got := storedPages(t, out); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("stored are %v, want %v", got, want)
	}
	if _, err := c.sources.TriggerSources(t.Context(), &pb.TriggerSourcesRequest{Ids: []string{"python"}}); err != nil {
		t.Fatal(err)
	}
	until(t, 10*time.Second, "the seed is asked for with its ETag", func() bool { return site.count(&site.again) == 1 })
	until(t, 10*time.Second, "nothing is left", func() bool {
		s := c.stats(t).GetTasks()
		return s.GetReady()+s.GetLeased()+s.GetScheduled() <= 1 // the seed has no schedule, or waits for a trigger
	})
	for _, path := range []string{"/a", "/b", "/moved", "/there"} {
		if n := site.requests(path); n != 1 {
			t.Errorf("%s was asked for %d times", path, n)
		}
	}
	collector.stop(10 * time.Second)
	collectors, err := c.admin.ListCollectors(t.Context(), &pb.ListCollectorsRequest{})
	if err != nil || len(collectors.GetCollectors()) != 1 || collectors.GetCollectors()[0].GetState() != pb.CollectorState_COLLECTOR_STATE_ENDED {
		t.Errorf("the collectors after the end: %v, %v", collectors, err)
	}
}

// TestPythonCollector_DispatcherFreezes stops the dispatcher that has the collector's heartbeat stream with SIGSTOP: the
// collector opens a stream at the other one before its lease expires.
func TestPythonCollector_DispatcherFreezes(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	frozen, other := serve(t, "one", server.URL(), prefix), serve(t, "two", server.URL(), prefix)
	c := dial(t, other.addr)
	site := newSmallSite(t)
	c.createSource(t, &pb.SourceSpec{Id: "python", LeaseDuration: durationpb.New(30 * time.Second)})
	id := c.submit(t, &pb.SubmitItem{SourceId: "python", Url: site.url + "/slow"})[0]
	collector, _ := pythonCollector(t, "py-1", frozen.addr, other.addr)
	until(t, startLimit, "the slow page is asked for", func() bool { return site.requests("/slow") == 1 })
	streams := func(c *client) bool { return c.stats(t).GetDispatcher().GetHeartbeatStreams() == 1 }
	if streams(c) {
		frozen, other = other, frozen
		c = dial(t, other.addr)
	}
	frozen.signal(syscall.SIGSTOP)
	until(t, 30*time.Second, "the stream is at the other dispatcher", func() bool { return streams(c) })
	close(site.slow)
	until(t, 30*time.Second, "the task is done", func() bool { return c.task(t, id).GetState() == pb.TaskState_TASK_STATE_DONE })
	if task := c.task(t, id); task.GetExpirations() != 0 || site.requests("/slow") != 1 {
		t.Errorf("the task, asked for %d times: %v", site.requests("/slow"), task)
	}
	collector.stop(20 * time.Second)
}

// forgetful passes the calls of collectors on to a dispatcher, and loses the first reply of each kind of call.
type forgetful struct {
	pb.UnimplementedDispatchServiceServer
	to pb.DispatchServiceClient

	mu      sync.Mutex      // guards what follows
	fetches []string        // client tokens, in the order of the calls
	reports []pb.ReportCode // the first result of each call, as the dispatcher answered
	beats   []time.Time
	waiting int // beats without an answer
	ahead   int // the most of them
}

var errLost = status.Error(codes.Unavailable, "the reply is lost")

// FetchTask loses the first reply that hands something out.
func (f *forgetful) FetchTask(ctx context.Context, r *pb.FetchTaskRequest) (*pb.FetchTaskResponse, error) {
	reply, err := f.to.FetchTask(ctx, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(reply.GetLeasedTasks()) > 0 {
		if f.fetches = append(f.fetches, r.GetClientToken()); len(f.fetches) == 1 {
			return nil, errLost
		}
	}
	return reply, err
}

// RenewLease passes beats on that come while there is no stream.
func (f *forgetful) RenewLease(ctx context.Context, r *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	return f.to.RenewLease(ctx, r)
}

// ReportTask loses the first reply.
func (f *forgetful) ReportTask(ctx context.Context, r *pb.ReportTaskRequest) (*pb.ReportTaskResponse, error) {
	reply, err := f.to.ReportTask(ctx, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reports = append(f.reports, reply.GetResults()[0].GetCode()); len(f.reports) == 1 {
		return nil, errLost
	}
	return reply, err
}

// Work passes requests and answers on. A stream whose answer is to be lost ends.
func (f *forgetful) Work(s grpc.BidiStreamingServer[pb.WorkRequest, pb.WorkResponse]) error {
	up, err := f.to.Work(s.Context())
	if err != nil {
		return err
	}
	var tokens sync.Map // of fetches, by the id of the request
	go func() {
		for {
			request, err := s.Recv()
			if err != nil {
				_ = up.CloseSend()
				return
			}
			if request.GetHeartbeat() != nil {
				f.beat(1)
			}
			tokens.Store(request.GetId(), request.GetFetch().GetClientToken())
			if up.Send(request) != nil {
				return
			}
		}
	}()
	for {
		answer, err := up.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if answer.GetHeartbeat().GetStatus().GetNextHeartbeat() != nil {
			f.beat(-1)
		}
		token, _ := tokens.Load(answer.GetId())
		if f.loses(answer, fmt.Sprint(token)) {
			return errLost
		}
		if err := s.Send(answer); err != nil {
			return err
		}
	}
}

// loses notes an answer, and reports whether it is to be lost.
func (f *forgetful) loses(answer *pb.WorkResponse, token string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(answer.GetFetch().GetLeasedTasks()) > 0 {
		f.fetches = append(f.fetches, token)
		return len(f.fetches) == 1
	}
	if results := answer.GetReport().GetResults(); len(results) > 0 {
		f.reports = append(f.reports, results[0].GetCode())
		return len(f.reports) == 1
	}
	return false
}

// beat notes a beat, or with -1 an answer.
func (f *forgetful) beat(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting = max(f.waiting+n, 0); n > 0 {
		f.beats, f.ahead = append(f.beats, time.Now()), max(f.ahead, f.waiting)
	}
}

// serveBetween serves it to collectors.
func serveBetween(t *testing.T, f *forgetful, options ...grpc.ServerOption) (address string) {
	t.Helper()
	between := grpc.NewServer(options...)
	pb.RegisterDispatchServiceServer(between, f)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- between.Serve(listener) }()
	t.Cleanup(func() {
		between.Stop()
		if err := <-served; err != nil {
			t.Logf("the server between ended: %v", err)
		}
	})
	return listener.Addr().String()
}

// TestPythonCollector_LostReplies loses the reply to a fetch and to a report: the collector repeats the fetch with its client
// token and gets the same lease, and repeats the report, which counts once.
func TestPythonCollector_LostReplies(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	c := dial(t, serve(t, "dispatcher", server.URL(), prefix).addr)
	c.setRule(t, "*", 0, 4)
	site := newSmallSite(t)
	c.createSource(t, &pb.SourceSpec{Id: "python", LeaseDuration: durationpb.New(time.Minute)})
	id := c.submit(t, &pb.SubmitItem{SourceId: "python", Url: site.url + "/a"})[0]

	f := &forgetful{to: c.dispatch}
	collector, _ := pythonCollector(t, "py-1", serveBetween(t, f))
	until(t, startLimit, "the report is repeated", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.reports) == 2
	})
	collector.stop(10 * time.Second)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.fetches) != 2 || f.fetches[0] != f.fetches[1] || f.fetches[0] == "" {
		t.Errorf("the client tokens of the fetches are %q, want one, twice", f.fetches)
	}
	if want := []pb.ReportCode{pb.ReportCode_REPORT_CODE_OK, pb.ReportCode_REPORT_CODE_ALREADY_REPORTED}; !slices.Equal(f.reports, want) {
		t.Errorf("the reports are answered %v, want %v", f.reports, want)
	}
	if task := c.task(t, id); task.GetState() != pb.TaskState_TASK_STATE_DONE || task.GetExpirations() != 0 || site.requests("/a") != 1 {
		t.Errorf("the task, asked for %d times: %v", site.requests("/a"), task)
	}
}

// TestPythonCollector_ManyTasks works on tasks that come faster than beats may: no more than ten beats are sent a second, one
// after the other, and each lease is kept. It runs alone: beside other tests the tasks do not come fast enough.
func TestPythonCollector_ManyTasks(t *testing.T) {
	server, prefix := shared.Server(t)
	c := dial(t, serve(t, "dispatcher", server.URL(), prefix).addr)
	c.setRule(t, "*", 0, 4)
	site := newSmallSite(t)
	c.createSource(t, &pb.SourceSpec{Id: "python", LeaseDuration: durationpb.New(time.Second)})
	var items []*pb.SubmitItem
	for i := range 300 {
		items = append(items, &pb.SubmitItem{SourceId: "python", Url: fmt.Sprintf("%s/page/%d", site.url, i)})
	}
	c.submit(t, items...)
	f := &forgetful{to: c.dispatch}
	collector, _ := pythonCollector(t, "py-1", serveBetween(t, f))
	until(t, startLimit, "all tasks are done", func() bool { return c.stats(t).GetTasks().GetDone() == int64(len(items)) })
	collector.stop(10 * time.Second)
	f.mu.Lock()
	defer f.mu.Unlock()
	span := f.beats[len(f.beats)-1].Sub(f.beats[0])
	if most := 3 + int(span/(100*time.Millisecond)); f.ahead != 1 || len(f.beats) > most {
		t.Errorf("%d beats in %v, want at most %d; %d at once, want 1", len(f.beats), span, most, f.ahead)
	}
	if n := len(f.fetches); n < 3*len(f.beats) {
		t.Errorf("%d fetches and %d beats: the tasks were not faster than the beats", n, len(f.beats))
	}
	for i := range items {
		if n := site.requests(fmt.Sprintf("/page/%d", i)); n != 1 {
			t.Errorf("page %d was asked for %d times", i, n)
		}
	}
}
