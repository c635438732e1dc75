package sourceimport_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// An import from a terminal, or a pipe that gives nothing, ends when it is told to.
func TestSourceImport_quietInput(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for _, text := range []string{"", "https://a.example/\n"} {
		in, out := io.Pipe()
		ctx, stop := context.WithCancel(t.Context())
		ended, errs := make(chan int, 1), clitest.NewStream()
		go func() {
			ended <- clitest.Run(ctx, []string{"source", "import", "-", "--format", "urls", "--every", "1h"}, in, clitest.NewStream(), errs, env)
		}()
		if _, err := io.WriteString(out, text); err != nil {
			t.Fatal(err)
		}
		stop()
		clitest.WantFailure(t, clitest.Answer{Code: <-ended, Err: errs.Text()}, cli.ExitFailed, "waggle: interrupted")
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A file without entries is likely another one than was meant.
func TestSourceImport_nothing(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for name, text := range map[string]string{"a.csv": "id\n", "a.jsonl": "", "a.opml": "<opml><body></body></opml>", "a.txt": "# none yet\n"} {
		file := clitest.WriteFile(t, name, text)
		for _, args := range [][]string{{file}, {file, "--dry-run", "-o", "json"}} {
			got := clitest.Command(t, env, append([]string{"source", "import"}, args...)...)
			clitest.WantFailure(t, got, cli.ExitFailed, "waggle: nothing in "+file+"\n")
			if got.Out != "" {
				t.Errorf("%s: printed %s", name, got.Out)
			}
		}
	}
	clitest.WantFailure(t, clitest.CommandWith(t, env, "", "source", "import", "-", "--format", "urls"), cli.ExitFailed, "waggle: nothing in standard input\n")
}

// A file of bytes is no list of URLs.
func TestSourceImport_binary(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	file := clitest.WriteFile(t, "picture", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "import", file), cli.ExitFailed, "it is a binary file")
	broken := clitest.WriteFile(t, "feeds.opml", `<opml><body><outline xmlUrl="https://a.example/"/><outline`)
	clitest.WantFailure(t, clitest.Command(t, env, "source", "import", broken, "--every", "1h"), cli.ExitFailed, "the rest cannot be read", "stopped after 1 source; the same command again finishes it")
}

// An import says that its dispatcher is away, and that it goes on.
func TestSourceImport_away(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	away := &faulty{away: true, to: pb.NewSourceServiceClient(clitest.Connect(t, env))}
	got := clitest.Command(t, clitest.With(env, "WAGGLE_SERVER", away.serve(t)), "source", "import", clitest.WriteFile(t, "a.urls", "https://a.example/\n"), "--every", "1h")
	if got.Code != cli.ExitOK || !strings.Contains(got.Err, "waggle: no call is taken now (gone for a moment); waiting up to 1m") ||
		!strings.Contains(got.Err, "waggle: calls are taken again, after ") {
		t.Errorf("exit code %d:\n%s", got.Code, got.Err)
	}
}

// An import that was interrupted is made again, and ends as one that was not.
func TestSourceImport_again(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	const n = 1200
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "https://h%d.example/\n", i)
	}
	args := []string{"source", "import", clitest.WriteFile(t, "urls.txt", text.String()), "--every", "1h"}
	slow := &faulty{to: pb.NewSourceServiceClient(clitest.Connect(t, env)), fault: 3, stalled: make(chan struct{})}
	importing := clitest.Start(t, clitest.With(env, "WAGGLE_SERVER", slow.serve(t)), args...)
	<-slow.stalled
	clitest.WantFailure(t, clitest.Answer{Code: importing.End(), Err: importing.Err.Text()}, cli.ExitFailed, "the same command again finishes it", "waggle: interrupted")
	if got := clitest.Command(t, env, args...); got.Code != cli.ExitOK || !strings.Contains(got.Out, " 0 updated") || !strings.HasSuffix(got.Out, " 0 duplicates, 0 refused\n") {
		t.Errorf("%d: %s%s", got.Code, got.Out, got.Err)
	}
	clitest.WantOutput(t, clitest.Command(t, env, args...), "1,200 sources: 0 created, 0 updated, 1,200 unchanged, 0 duplicates, 0 refused\n")
}

// That a source has nothing to crawl is told once: with a schedule by the dispatcher's
// warning, without one by the import.
func TestSourceImport_seedless(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	file := clitest.WriteFile(t, "a.csv", "id,url,every\nscheduled,,1h\nsubmitted,,\n")
	got := clitest.Command(t, env, "source", "import", file)
	for _, told := range []string{
		"waggle: 1 source: it has a schedule and no seeds: only tasks that are submitted are crawled\n",
		"waggle: 1 source has no url: only what is submitted to such a source is crawled\n",
	} {
		if strings.Count(got.Err, told) != 1 {
			t.Errorf("want once %q in\n%s", told, got.Err)
		}
	}
}
