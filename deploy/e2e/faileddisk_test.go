//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestServe_ReadOnlyDirectory makes the directory of a dispatcher read-only while tasks are submitted. The dispatcher cannot
// make another segment of its log: it ends with an error, and does not start. Once the directory is writable it serves again,
// with all that it acknowledged.
func TestServe_ReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var user *syscall.Credential
	if os.Getuid() == 0 { // which may write everywhere
		user = &syscall.Credential{Uid: 65534, Gid: 65534}
		for _, path := range []string{programs.dir, filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir)} {
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(dir, int(user.Uid), int(user.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	start := func(name string) *process {
		cmd := exec.Command(programs.path("waggle"), "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", "file:"+dir, "--log-format", "json")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
		return launchCommand(t, name, cmd)
	}
	d := awaitServing(t, start("dispatcher"))
	c := dial(t, d.addr)
	c.createSource(t, &pb.SourceSpec{Id: "big"})
	c.submit(t, page("big", 0))
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Error(err)
		}
	})
	// As much as a segment of the log holds; the next one was made before.
	acknowledged, payload := 1, []byte(strings.Repeat("x", 64<<10))
	var err error
	for n := 0; err == nil && n < 40; n++ {
		items := make([]*pb.SubmitItem, 60)
		for i := range items {
			items[i] = page("big", 1+n*len(items)+i)
			items[i].Payload = payload
		}
		if _, err = c.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: items}); err == nil {
			acknowledged += len(items)
		}
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a submit to a directory that is read-only: %v", err)
	}
	if code := d.exit(10 * time.Second); code != 1 {
		t.Errorf("the dispatcher ended with code %d", code)
	}
	d.line("permission denied", time.Second)
	again := start("again")
	if code := again.exit(startLimit); code != 1 {
		t.Errorf("on a read-only directory it ended with code %d", code)
	}
	again.line("permission denied", time.Second)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d = awaitServing(t, start("writable"))
	if n := dial(t, d.addr).stats(t).GetTasks().GetReady(); n < int64(acknowledged) {
		t.Errorf("%d tasks are there, %d were acknowledged", n, acknowledged)
	}
	t.Log(fmt.Sprint(acknowledged, " tasks were acknowledged"))
	d.stop(startLimit)
}
