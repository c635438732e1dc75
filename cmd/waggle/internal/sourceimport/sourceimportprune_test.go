package sourceimport_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// sourceIDs are the ids of all sources, with spaces between.
func sourceIDs(t *testing.T, env map[string]string) string {
	t.Helper()
	reply, err := pb.NewSourceServiceClient(clitest.Connect(t, env)).ListSources(t.Context(), &pb.ListSourcesRequest{PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, s := range reply.GetSources() {
		ids = append(ids, s.GetId())
	}
	return strings.Join(ids, " ")
}

// What a file lost goes with --prune, and nothing beside its prefix.
func TestSourceImport_prune(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "import", clitest.WriteFile(t, "all.csv", "id\nnews\nnews.a\nnews.b\nnews.c\nnews.d\nnewspaper.x\nshop.a\n"))
	fewer := clitest.WriteFile(t, "news.csv", "id,name\nnews.b,B\nnews.e,\nshop.b,\n")
	report := filepath.Join(t.TempDir(), "report.csv")
	args := []string{"source", "import", fewer, "--prune", "news."}
	clitest.WantFailure(t, clitest.Command(t, env, args...), cli.ExitUsage, "look with --dry-run, then say --yes")
	looked := clitest.Command(t, env, append(args, "--dry-run", "--report", report)...)
	looked.Err = ""
	clitest.WantOutput(t, looked, `
3 sources: would be 2 created, 1 updated, 0 unchanged, 0 duplicates, 0 refused, 3 deleted
  update news.b: display_name
  create news.e
  create shop.b
would be deleted, as the file does not have them:
  news.a
  news.c
  news.d
updated: display_name of 1
`)
	if text := clitest.ReadFile(t, report); !strings.HasSuffix(text, "\n0,news.a,DELETED,,,\n0,news.c,DELETED,,,\n0,news.d,DELETED,,,\n") {
		t.Errorf("report:\n%s", text)
	}
	if got := sourceIDs(t, env); got != "news news.a news.b news.c news.d newspaper.x shop.a" {
		t.Errorf("after a dry run there are %s", got)
	}
	if got := clitest.Command(t, env, append(args, "--yes")...); got.Code != cli.ExitOK ||
		!strings.HasPrefix(got.Out, "3 sources: 2 created, 1 updated, 0 unchanged, 0 duplicates, 0 refused, 3 deleted\n") {
		t.Errorf("%d: %s%s", got.Code, got.Out, got.Err)
	}
	if got := sourceIDs(t, env); got != "news news.b news.e newspaper.x shop.a shop.b" {
		t.Errorf("there are %s", got)
	}
	clitest.WantOutput(t, clitest.Command(t, env, append(args, "--yes")...), `
3 sources: 0 created, 0 updated, 3 unchanged, 0 duplicates, 0 refused, 0 deleted
`)
}

// A file that was not taken as a whole, or is another one, deletes nothing.
func TestSourceImport_pruneNothing(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "import", clitest.WriteFile(t, "all.csv", "id\nnews.a\nnews.b\n"))
	for _, c := range []struct{ name, text, want string }{
		{"refused.csv", "id,every\nnews.a,\nnews.b,soon\n", "waggle: --prune deletes nothing, as not every entry was taken\n"},
		{"other.csv", "id\nnewspaper\n", "waggle: --prune deletes nothing, as no id of the file begins with news.: is it the right one?\n"},
		{"empty.jsonl", "", "as no id of the file begins with news."},
		{"broken.opml", `<opml><body><outline xmlUrl="https://a.example/"/><outline`, "the rest cannot be read"},
	} {
		for _, mode := range []string{"--dry-run", "--yes"} {
			got := clitest.Command(t, env, "source", "import", clitest.WriteFile(t, c.name, c.text), "--prefix", "news.", "--prune", "news.", mode)
			clitest.WantFailure(t, got, cli.ExitFailed, c.want)
			if ids := sourceIDs(t, env) + " "; !strings.Contains(ids, "news.a ") || !strings.Contains(ids, "news.b ") {
				t.Errorf("%s %s: there are %s", c.name, mode, ids)
			}
		}
	}
	for _, prefix := range []string{"", ".", "n", "news"} {
		got := clitest.Command(t, env, "source", "import", "x.csv", "--prune", prefix, "--yes")
		clitest.WantFailure(t, got, cli.ExitUsage, fmt.Sprintf("--prune %q: say how the ids begin", prefix))
	}
}

// A file that was cut short deletes nothing, in a dry run as without; a number or a
// percentage that is large enough lets it, and a small one refuses less.
func TestSourceImport_pruneMax(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	list := func(prefix string, from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, `{"id":"%s%03d"}`+"\n", prefix, i)
		}
		return b.String()
	}
	clitest.Command(t, env, "source", "import", clitest.WriteFile(t, "all.jsonl", list("news.", 0, 200)+list("shop.", 0, 50)))
	before := sourceIDs(t, env)
	half := clitest.WriteFile(t, "half.jsonl", list("news.", 0, 100))
	const told = "waggle: --prune would delete 100 of 200 sources (news.100, news.101, news.102, ...), more than %s: is the file whole? " +
		"If it is, --prune-max 100 lets them go\n"
	for _, c := range []struct {
		bound string
		args  []string
	}{
		{"20", nil}, {"99", []string{"--prune-max", "99"}}, {"0", []string{"--prune-max", "0"}},
	} {
		for _, mode := range []string{"--dry-run", "--yes"} {
			got := clitest.Command(t, env, append([]string{"source", "import", half, "--prune", "news.", mode}, c.args...)...)
			clitest.WantFailure(t, got, cli.ExitFailed, fmt.Sprintf(told, c.bound))
			if !strings.Contains(got.Out, ", 0 deleted\n") || sourceIDs(t, env) != before {
				t.Errorf("%s %v: %s; there are %s", mode, c.args, got.Out, sourceIDs(t, env))
			}
		}
	}
	// What the file brings makes no room for what goes, and a dry run says the same.
	other := clitest.WriteFile(t, "other.jsonl", list("news.", 21, 321))
	for _, mode := range []string{"--dry-run", "--yes"} {
		got := clitest.Command(t, env, "source", "import", other, "--prune", "news.", mode)
		clitest.WantFailure(t, got, cli.ExitFailed, "--prune would delete 21 of 200 sources (news.000, news.001, news.002, ...), more than 20:")
	}
	for _, c := range []struct {
		prefix   string
		from, to int
		args     []string
		deleted  string
	}{
		{"news.", 20, 321, nil, "20"},
		{"shop.", 10, 50, nil, "10"},
		{"news.", 20, 120, []string{"--prune-max", "201"}, "201"},
		{"news.", 20, 21, []string{"--prune-max", "99"}, "99"},
	} {
		file := clitest.WriteFile(t, "some.jsonl", list(c.prefix, c.from, c.to))
		got := clitest.Command(t, env, append([]string{"source", "import", file, "--prune", c.prefix, "--yes"}, c.args...)...)
		if got.Code != cli.ExitOK || !strings.HasSuffix(got.Out, ", "+c.deleted+" deleted\n") {
			t.Errorf("%+v: %d: %s%s", c, got.Code, got.Out, got.Err)
		}
	}
	for _, bad := range []string{"", "25%", "half"} {
		clitest.WantFailure(t, clitest.Command(t, env, "source", "import", half, "--prune", "news.", "--prune-max", bad), cli.ExitUsage, "want a number")
	}
	for _, name := range []string{"source import", "apply -f"} {
		got := clitest.Command(t, env, append(strings.Fields(name), half, "--prune-max", "5")...)
		clitest.WantFailure(t, got, cli.ExitUsage, "--prune-max is the bound of --prune, which is missing")
	}
}

// faulty is a dispatcher that passes on what an import calls, but for one call.
type faulty struct {
	pb.UnimplementedSourceServiceServer

	to       pb.SourceServiceClient
	away     bool         // at the first call of ApplySources
	applies  atomic.Int64 // calls of ApplySources
	calls    int          // of DeleteSources, one at a time
	fault    int          // the call that is not answered; 0: none
	deleting bool         // it is one of DeleteSources, else of ApplySources
	lost     bool
	gone     string        // a source that somebody else deletes just before
	stalled  chan struct{} // closed at that call
}

func (s *faulty) ApplySources(ctx context.Context, req *pb.ApplySourcesRequest) (*pb.ApplySourcesResponse, error) {
	n := s.applies.Add(1)
	if s.away && n == 1 {
		return nil, status.Error(codes.Unavailable, "gone for a moment")
	}
	if !s.deleting && n == int64(s.fault) {
		close(s.stalled)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.to.ApplySources(ctx, req)
}

func (s *faulty) ListSources(ctx context.Context, req *pb.ListSourcesRequest) (*pb.ListSourcesResponse, error) {
	return s.to.ListSources(ctx, req)
}

func (s *faulty) DeleteSources(ctx context.Context, req *pb.DeleteSourcesRequest) (*pb.DeleteSourcesResponse, error) {
	if s.gone != "" {
		if _, err := s.to.DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: []string{s.gone}}); err != nil {
			return nil, err
		}
	}
	if s.calls++; !s.deleting || s.calls != s.fault {
		return s.to.DeleteSources(ctx, req)
	}
	if s.lost {
		if _, err := s.to.DeleteSources(ctx, req); err != nil {
			return nil, err
		}
		return nil, status.Error(codes.Unavailable, "gone for a moment")
	}
	close(s.stalled)
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *faulty) serve(t *testing.T) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterSourceServiceServer(server, s)
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

// What somebody else has deleted meanwhile is not told as deleted.
func TestSourceImport_pruneGone(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "import", clitest.WriteFile(t, "all.csv", "id\nnews.a\nnews.b\nnews.c\n"))
	d := &faulty{to: pb.NewSourceServiceClient(clitest.Connect(t, env)), gone: "news.b"}
	report := filepath.Join(t.TempDir(), "report.csv")
	got := clitest.Command(t, clitest.With(env, "WAGGLE_SERVER", d.serve(t)), "source", "import", clitest.WriteFile(t, "news.csv", "id\nnews.a\n"), "--prune", "news.", "--yes", "--report", report)
	if text := clitest.ReadFile(t, report); !strings.Contains(got.Out, ", 1 deleted\n") || strings.Contains(text, "news.b") || !strings.HasSuffix(text, "\n0,news.c,DELETED,,,\n") {
		t.Errorf("%d: %s%s\nreport:\n%s", got.Code, got.Out, got.Err, text)
	}
}

// A prune whose answers are lost, or that is interrupted and made again, ends as one that was not.
func TestSourceImport_pruneAgain(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	var all strings.Builder
	for i := range 1503 {
		fmt.Fprintf(&all, `{"id":"news.%04d"}`+"\n", i)
	}
	file := clitest.WriteFile(t, "news.jsonl", `{"id":"news.0000"}`)
	args := []string{"source", "import", file, "--prune", "news.", "--yes", "--prune-max", "1502"}
	through := func(d *faulty) map[string]string {
		clitest.CommandWith(t, env, all.String(), "source", "import", "-", "--format", "jsonl")
		d.deleting, d.to = true, pb.NewSourceServiceClient(clitest.Connect(t, env))
		return clitest.With(env, "WAGGLE_SERVER", d.serve(t))
	}
	const done = "1 source: 0 created, 0 updated, 1 unchanged, 0 duplicates, 0 refused, %s deleted\n"

	got := clitest.Command(t, through(&faulty{fault: 1, lost: true}), args...)
	if got.Code != cli.ExitOK || got.Out != fmt.Sprintf(done, "1,502") {
		t.Errorf("an answer was lost: %d: %s%s", got.Code, got.Out, got.Err)
	}
	slow := &faulty{fault: 2, stalled: make(chan struct{})}
	b := clitest.Start(t, through(slow), args...)
	<-slow.stalled
	clitest.WantFailure(t, clitest.Answer{Code: b.End(), Err: b.Err.Text()}, cli.ExitFailed,
		"stopped after 1 source; the same command again finishes it", "waggle: interrupted")
	if got := clitest.Command(t, env, args...); got.Code != cli.ExitOK || got.Out != fmt.Sprintf(done, "502") || sourceIDs(t, env) != "news.0000" {
		t.Errorf("again: %d: %s%s; there are %s", got.Code, got.Out, got.Err, sourceIDs(t, env))
	}
}
