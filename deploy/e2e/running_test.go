//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRunning runs the commands of the runbook's page about amounts, ends and ways out as printed, with a PostgreSQL.
func TestRunning(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	checkDocument(t, "../running.md", nil, documentRun{
		dir: "../..", env: append(busyProxy(t), "DATA="+data, "PGHOST="+startPostgres(t), "PGUSER=postgres"),
	})
}

// startPostgres starts a PostgreSQL without a password on a Unix socket, and returns the directory of that.
func startPostgres(t *testing.T) (dir string) {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_ctl")
	if err != nil || len(found) == 0 {
		t.Fatalf("no PostgreSQL: %v, %v", found, err)
	}
	dir, err = os.MkdirTemp("", "pg") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) error {
		if os.Geteuid() == 0 { // which PostgreSQL refuses
			args = append([]string{"runuser", "-u", "postgres", "--"}, args...)
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = "/"
		return cmd.Run()
	}
	if os.Geteuid() == 0 {
		if err := exec.CommandContext(t.Context(), "chown", "postgres", dir).Run(); err != nil {
			t.Fatal(err)
		}
	}
	pgctl, data := found[len(found)-1], filepath.Join(dir, "data")
	t.Cleanup(func() {
		if err := run(pgctl, "-D", data, "-m", "immediate", "stop"); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := run(filepath.Join(filepath.Dir(pgctl), "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"); err != nil {
		t.Fatalf("initdb: %v", err)
	}
	if err := run(pgctl, "-D", data, "-w", "-l", filepath.Join(dir, "log"), "-o", "-k "+dir+" -c listen_addresses= -c fsync=off", "start"); err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	return dir
}
