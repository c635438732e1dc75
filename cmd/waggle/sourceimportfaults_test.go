package main_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// An import from a terminal, or a pipe that gives nothing, ends when it is told to.
func TestSourceImport_quietInput(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	for _, text := range []string{"", "https://a.example/\n"} {
		in, out := io.Pipe()
		ctx, stop := context.WithCancel(t.Context())
		ended, errs := make(chan int, 1), newStream()
		go func() {
			ended <- waggle.Run(ctx, []string{"source", "import", "-", "--format", "urls", "--every", "1h"}, in, newStream(), errs, env)
		}()
		if _, err := io.WriteString(out, text); err != nil {
			t.Fatal(err)
		}
		stop()
		wantFailure(t, answer{code: <-ended, err: errs.text()}, waggle.ExitFailed, "waggle: interrupted")
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A file without entries is likely another one than was meant.
func TestSourceImport_nothing(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	for name, text := range map[string]string{"a.csv": "id\n", "a.jsonl": "", "a.opml": "<opml><body></body></opml>", "a.txt": "# none yet\n"} {
		file := write(t, name, text)
		for _, args := range [][]string{{file}, {file, "--dry-run", "-o", "json"}} {
			got := command(t, env, append([]string{"source", "import"}, args...)...)
			wantFailure(t, got, waggle.ExitFailed, "waggle: nothing in "+file+"\n")
			if got.out != "" {
				t.Errorf("%s: printed %s", name, got.out)
			}
		}
	}
	wantFailure(t, commandWith(t, env, "", "source", "import", "-", "--format", "urls"), waggle.ExitFailed, "waggle: nothing in standard input\n")
}

// A file of bytes is no list of URLs.
func TestSourceImport_binary(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	file := write(t, "picture", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
	wantFailure(t, command(t, env, "source", "import", file), waggle.ExitFailed, "it is a binary file")
	broken := write(t, "feeds.opml", `<opml><body><outline xmlUrl="https://a.example/"/><outline`)
	wantFailure(t, command(t, env, "source", "import", broken, "--every", "1h"), waggle.ExitFailed, "the rest cannot be read", "stopped after 1 source; the same command again finishes it")
}

// An import says that its dispatcher is away, and that it goes on.
func TestSourceImport_away(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	away := &faulty{away: true, to: pb.NewSourceServiceClient(connect(t, env))}
	got := command(t, with(env, "WAGGLE_SERVER", away.serve(t)), "source", "import", write(t, "a.urls", "https://a.example/\n"), "--every", "1h")
	if got.code != waggle.ExitOK || !strings.Contains(got.err, "waggle: no call is taken now (gone for a moment); waiting up to 1m") ||
		!strings.Contains(got.err, "waggle: calls are taken again, after ") {
		t.Errorf("exit code %d:\n%s", got.code, got.err)
	}
}

// An import that was interrupted is made again, and ends as one that was not.
func TestSourceImport_again(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	const n = 1200
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "https://h%d.example/\n", i)
	}
	args := []string{"source", "import", write(t, "urls.txt", text.String()), "--every", "1h"}
	slow := &faulty{to: pb.NewSourceServiceClient(connect(t, env)), fault: 3, stalled: make(chan struct{})}
	importing := start(t, with(env, "WAGGLE_SERVER", slow.serve(t)), args...)
	<-slow.stalled
	wantFailure(t, answer{code: importing.end(), err: importing.err.text()}, waggle.ExitFailed, "the same command again finishes it", "waggle: interrupted")
	if got := command(t, env, args...); got.code != waggle.ExitOK || !strings.Contains(got.out, " 0 updated") || !strings.HasSuffix(got.out, " 0 duplicates, 0 refused\n") {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
	wantOutput(t, command(t, env, args...), "1,200 sources: 0 created, 0 updated, 1,200 unchanged, 0 duplicates, 0 refused\n")
}

// That a source has nothing to crawl is told once: with a schedule by the dispatcher's
// warning, without one by the import.
func TestSourceImport_seedless(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	file := write(t, "a.csv", "id,url,every\nscheduled,,1h\nsubmitted,,\n")
	got := command(t, env, "source", "import", file)
	for _, told := range []string{
		"waggle: 1 source: it has a schedule and no seeds: only tasks that are submitted are crawled\n",
		"waggle: 1 source has no url: only what is submitted to such a source is crawled\n",
	} {
		if strings.Count(got.err, told) != 1 {
			t.Errorf("want once %q in\n%s", told, got.err)
		}
	}
}
