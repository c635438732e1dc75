package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// stalling is a dispatcher that passes two calls of ApplySources on, and answers
// no other.
type stalling struct {
	pb.SourceServiceClient

	calls   int
	away    bool          // at the first call
	lost    bool          // is the answer of the first call
	busy    bool          // to take the first call
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
	if s.s.busy && s.s.calls == 1 {
		st, err := status.New(codes.ResourceExhausted, "too many calls").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
		return nil, errors.Join(err, st.Err())
	}
	if s.s.lost && s.s.calls == 1 {
		if _, err := s.s.SourceServiceClient.ApplySources(ctx, req); err != nil {
			return nil, err
		}
		return nil, status.Error(codes.DeadlineExceeded, "too slow")
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
	wantFailure(t, got, waggle.ExitFailed, "line 12: ", "stopped after at least 1,000 sources; the same command again goes on from there", "waggle: interrupted")
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
