package main_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
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
		file, state := write(t, name, text), filepath.Join(t.TempDir(), "state")
		for _, args := range [][]string{{file}, {file, "--dry-run", "-o", "json"}, {file, "--resume", state}} {
			got := command(t, env, append([]string{"source", "import"}, args...)...)
			wantFailure(t, got, waggle.ExitFailed, "waggle: nothing in "+file+"\n")
			if got.out != "" {
				t.Errorf("%s: printed %s", name, got.out)
			}
		}
		if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a state is left: %v", name, err)
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
	wantFailure(t, command(t, env, "source", "import", broken, "--every", "1h"), waggle.ExitFailed, "mend the file, and the same command again finishes it")
}

// An import says that its dispatcher is away, and that it goes on.
func TestSourceImport_away(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	away := &stalling{away: true, SourceServiceClient: pb.NewSourceServiceClient(connect(t, env))}
	got := command(t, with(env, "WAGGLE_SERVER", away.serve(t)), "source", "import", write(t, "a.urls", "https://a.example/\n"), "--every", "1h")
	if got.code != waggle.ExitOK || !strings.Contains(got.err, "waggle: no call is taken now (gone for a moment); waiting up to 1m") ||
		!strings.Contains(got.err, "waggle: calls are taken again, after ") {
		t.Errorf("exit code %d:\n%s", got.code, got.err)
	}
}

// What a call created whose answer was lost is not told as if it had been there.
func TestSourceImport_answerLost(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	lost := &stalling{lost: true, SourceServiceClient: pb.NewSourceServiceClient(connect(t, env))}
	got := command(t, with(env, "WAGGLE_SERVER", lost.serve(t)), "source", "import", write(t, "a.urls", "https://a.example/\nhttps://b.example/\n"), "--every", "1h")
	if got.code != waggle.ExitOK || !strings.Contains(got.out, "2 unchanged") ||
		!strings.Contains(got.err, "waggle: 2 of the unchanged may have been created or updated by this import: a call was repeated, as it was not answered\n") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
	}
}

// What was there is not told as if a call that was refused might have made it.
func TestSourceImport_refusedCall(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	args := []string{"source", "import", write(t, "a.urls", "https://a.example/\n"), "--every", "1h"}
	command(t, env, args...)
	busy := &stalling{busy: true, SourceServiceClient: pb.NewSourceServiceClient(connect(t, env))}
	got := command(t, with(env, "WAGGLE_SERVER", busy.serve(t)), args...)
	if got.code != waggle.ExitOK || busy.calls != 2 || !strings.Contains(got.out, "1 unchanged") || strings.Contains(got.err, "may have been") {
		t.Errorf("exit code %d after %d calls: %s%s", got.code, busy.calls, got.out, got.err)
	}
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
