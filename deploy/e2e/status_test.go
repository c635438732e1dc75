//go:build e2e

package e2e_test

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// statusLimit is within what a look at what stands still answers.
const statusLimit = 3 * time.Second

// wantStatus looks until waggle status names what stands still in a line with all of the parts, and the next command.
func wantStatus(t *testing.T, server string, code int, next string, parts ...string) {
	t.Helper()
	var shown string
	until(t, time.Minute, "waggle status names "+strings.Join(parts, ""), func() bool {
		began := time.Now()
		out, err := exec.CommandContext(t.Context(), programs.path("waggle"), "status", "--server", server).Output()
		took := time.Since(began)
		got := 0
		if exit := (&exec.ExitError{}); errors.As(err, &exit) {
			got = exit.ExitCode()
		}
		shown = string(out)
		lines := strings.Split(strings.TrimSuffix(shown, "\n"), "\n")
		for _, line := range lines {
			if utf8.RuneCountInString(line) > 80 || len(lines) > 24 {
				t.Fatalf("it does not fit a screen:\n%s", shown)
			}
			all := true
			for _, part := range parts {
				all = all && strings.Contains(line, part)
			}
			if all && got == code && strings.Contains(shown, next) {
				if took > statusLimit {
					t.Errorf("it took %v", took)
				}
				return true
			}
		}
		return false
	})
	t.Logf("status:\n%s", shown)
}

// TestStatus_HungCollector stops a collector's process: it is named with the age of its last beat while its leases stand.
func TestStatus_HungCollector(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c := dial(t, d.addr)
	c.createSource(t, &pb.SourceSpec{Id: "hung", LeaseDuration: durationpb.New(60 * time.Second)})
	item := page("hung", 1)
	item.Metadata = map[string]string{"work": "2m"}
	c.submit(t, item)
	p, log := logCollector(t, "paris-1", t.TempDir(), 1, []string{d.addr})
	started(t, log)
	p.signal(syscall.SIGSTOP)
	wantStatus(t, d.addr, 0, "waggle lease list --collector paris-1", "HUNG", "collector paris-1: last beat ", " ago, holds 1 lease")
	p.kill()
}

// TestStatus_RedisStopped looks while Redis is away, and while it hangs.
func TestStatus_RedisStopped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF(redistest.FsyncAlways))
	d := serve(t, "dispatcher", server.URL(), "waggle")
	dial(t, d.addr).createSource(t, &pb.SourceSpec{Id: "a"})
	server.Pause()
	wantStatus(t, d.addr, 1, "waggle status --watch", "STORE", "the store does not answer")
	server.Resume()
	wantStatus(t, d.addr, 0, "", "1 of 1 source OK")
	server.Kill()
	wantStatus(t, d.addr, 1, "waggle status --watch", "STORE", "the store does not answer")
	server.Restart()
	wantStatus(t, d.addr, 0, "", "1 of 1 source OK")
}

// TestStatus_RedisFull looks while Redis has no more memory.
func TestStatus_RedisFull(t *testing.T) {
	server := redistest.Start(t)
	d := serve(t, "dispatcher", server.URL(), "waggle")
	dial(t, d.addr).createSource(t, &pb.SourceSpec{Id: "a"})
	redisCLI(t, server, "CONFIG", "SET", "maxmemory", "1mb")
	wantStatus(t, d.addr, 0, "waggle stats", "STORE", "full: submits are refused")
	redisCLI(t, server, "CONFIG", "SET", "maxmemory", "0")
	wantStatus(t, d.addr, 0, "", "1 of 1 source OK")
}
