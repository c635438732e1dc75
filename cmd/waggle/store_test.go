//go:build linux

package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// A store whose index was deleted is checked and repaired while a dispatcher works on it.
func TestStoreCheck(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	storeEnv := map[string]string{"WAGGLE_STORE": server.URL()}
	wantFailure(t, command(t, storeEnv, "store", "check"), waggle.ExitFailed, `there is no store in redis under "waggle"`, "--store and --prefix")
	d := start(t, storeEnv, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json")
	env := map[string]string{"WAGGLE_SERVER": address(t, d)}
	command(t, env, "source", "create", "a", "--seed", "https://a.example/")
	command(t, env, "task", "submit", "--source", "a", "https://b.example/1", "https://b.example/2")
	wantOutput(t, command(t, storeEnv, "store", "check"), "no disagreements\nchecked 3 tasks and 2 queues\n")

	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	if n := client.Del(t.Context(), "waggle:{0}:q:b.example", "waggle:{0}:sources").Val(); n != 2 {
		t.Fatalf("deleted %d keys", n)
	}
	got := command(t, storeEnv, "store", "check")
	wantFailure(t, got, waggle.ExitFailed, "disagreements are left", "`waggle store check --repair` repairs them")
	if !strings.Contains(got.out, "task       2         0  ") || !strings.Contains(got.out, "it waits, and stands nowhere\n") {
		t.Errorf("printed\n%s", got.out)
	}
	got = command(t, storeEnv, "store", "check", "-o", "json")
	var report struct {
		Kinds []struct {
			Kind            string
			Found, Repaired int
		}
	}
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || got.code != waggle.ExitFailed || len(report.Kinds) < 2 {
		t.Errorf("exit code %d, %v, printed\n%s%s", got.code, err, got.out, got.err)
	}
	shown := onTerminal(t, 80, storeEnv, "store", "check", "--repair")
	if !strings.Contains(shown, "task       2         2  ") {
		t.Errorf("printed\n%s", shown)
	}
	for line := range strings.Lines(shown) {
		if len([]rune(line)) > 81 {
			t.Errorf("on a terminal of 80 columns: %s", line)
		}
	}
	wantOutput(t, command(t, storeEnv, "store", "check"), "no disagreements\nchecked 3 tasks and 2 queues\n")
	if got := command(t, env, "queue", "get", "b.example", "-o", "json"); !strings.Contains(got.out, `"waiting": 2`) {
		t.Errorf("the dispatcher shows of the queue\n%s%s", got.out, got.err)
	}
}

func TestStoreCheck_memory(t *testing.T) {
	t.Parallel()
	wantFailure(t, command(t, nil, "store", "check", "--store", "memory"), waggle.ExitUsage, "--store memory", "no indexes to check", "use --store redis://")
}

// TestStore_directory keeps what a dispatcher was given over a restart, a backup and a restore.
func TestStore_directory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	args := []string{"serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--store", "file:" + dir}
	wantFailure(t, command(t, nil, "store", "check", dir), waggle.ExitFailed, "no such file or directory")
	d := start(t, nil, args...)
	env := map[string]string{"WAGGLE_SERVER": address(t, d)}
	d.err.line(t, `it begins empty","dir":"`+dir+`"`)
	if got := command(t, env, "source", "create", "a", "--seed", "https://a.example/"); got.code != 0 {
		t.Fatal(got.err)
	}
	command(t, env, "task", "submit", "--source", "a", "https://b.example/1", "https://b.example/2")
	if got := command(t, env, "stats"); !strings.Contains(got.out, "file, 1 shard") {
		t.Errorf("stats printed\n%s", got.out)
	}
	wantFailure(t, command(t, nil, args...), waggle.ExitFailed, dir, "in use by process", "several share one Redis")
	tasks := "0 scheduled, 3 ready, 0 leased; 0 done, 0 dead, 0 canceled"
	if got := command(t, nil, "store", "check", dir); got.code != 0 || !strings.Contains(got.out, tasks) {
		t.Errorf("exit code %d, printed\n%s%s", got.code, got.out, got.err)
	}
	file := filepath.Join(t.TempDir(), "waggle.backup")
	if got := command(t, nil, "store", "backup", dir, file); got.code != 0 || !strings.Contains(got.out, tasks) {
		t.Errorf("exit code %d, printed\n%s%s", got.code, got.out, got.err)
	}
	if code := d.end(); code != 0 {
		t.Errorf("serve ended with %d:\n%s", code, d.err.text())
	}
	wantFailure(t, command(t, nil, "store", "restore", file, dir), waggle.ExitFailed, "has a store already")
	restored := filepath.Join(t.TempDir(), "restored")
	if got := command(t, nil, "store", "restore", file, restored, "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"snapshots": 1`) {
		t.Errorf("exit code %d, printed\n%s%s", got.code, got.out, got.err)
	}
	for _, of := range []string{dir, restored} {
		again := start(t, map[string]string{"WAGGLE_STORE": "file:" + of}, args[:len(args)-2]...)
		env["WAGGLE_SERVER"] = address(t, again)
		if got := command(t, env, "task", "list", "--source", "a"); strings.Count(got.out, "READY") != 3 {
			t.Errorf("after a restart with %s the tasks are\n%s%s", of, got.out, got.err)
		}
		if strings.Contains(again.err.text(), "begins empty") {
			t.Errorf("%s has a store:\n%s", of, again.err.text())
		}
	}
}

// TestStoreCopy moves what a dispatcher was given from a directory to Redis and back.
func TestStoreCopy(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).URL()
	begin, end := "file:"+filepath.Join(t.TempDir(), "data"), "file:"+filepath.Join(t.TempDir(), "back")
	serve := func(store string) (*background, map[string]string) {
		d := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--store", store)
		return d, map[string]string{"WAGGLE_SERVER": address(t, d)}
	}
	wantFailure(t, command(t, nil, "store", "copy", begin, redis), waggle.ExitFailed, "no such file or directory")
	d, env := serve(begin)
	if got := command(t, env, "source", "create", "a", "--seed", "https://a.example/"); got.code != 0 {
		t.Fatal(got.err)
	}
	command(t, env, "task", "submit", "--source", "a", "https://b.example/1", "https://b.example/2")
	wantFailure(t, command(t, nil, "store", "copy", begin, redis), waggle.ExitFailed, "in use by process")
	if code := d.end(); code != 0 {
		t.Fatalf("serve ended with %d:\n%s", code, d.err.text())
	}
	for _, move := range [][2]string{{begin, redis}, {redis, end}} {
		if got := command(t, nil, "store", "copy", move[0], move[1]); got.code != 0 || !strings.Contains(got.out, "both are equal") {
			t.Fatalf("exit code %d, printed\n%s%s", got.code, got.out, got.err)
		}
		wantFailure(t, command(t, nil, "store", "copy", move[0], move[1]), waggle.ExitFailed, "already")
	}
	wantOutput(t, command(t, nil, "store", "check", "--store", redis), "no disagreements\nchecked 3 tasks and 2 queues\n")
	for _, store := range []string{redis, end} {
		d, env := serve(store)
		if got := command(t, env, "task", "list", "--source", "a"); strings.Count(got.out, "READY") != 3 {
			t.Errorf("in %s the tasks are\n%s%s", store, got.out, got.err)
		}
		if store == redis {
			other := "file:" + filepath.Join(t.TempDir(), "other")
			wantFailure(t, command(t, nil, "store", "copy", redis, other), waggle.ExitFailed, "uses the store", "stop all dispatchers")
		}
		d.end()
	}
	dir := strings.TrimPrefix(end, "file:")
	identity, err := os.ReadFile(filepath.Join(dir, "store.json"))
	if err != nil {
		t.Fatal(err)
	}
	identity = []byte(strings.Replace(string(identity), "{", `{"unfinished_copy_of":"elsewhere",`, 1))
	if err := os.WriteFile(filepath.Join(dir, "store.json"), identity, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"serve", "--listen", "127.0.0.1:0", "--http", "off", "--store", end}, {"store", "copy", begin, end}, {"store", "backup", dir, dir + ".backup"},
	} {
		wantFailure(t, command(t, nil, args...), waggle.ExitFailed, "unfinished copy of elsewhere")
	}
}

// TestStore_notOurs refuses directories that are no store, or cannot be read.
func TestStore_notOurs(t *testing.T) {
	t.Parallel()
	stranger, newer := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		filepath.Join(stranger, "thesis.txt"): "x",
		filepath.Join(newer, "store.json"):    `{"waggle_store_format":99,"id":"00112233445566778899aabbccddeeff","shards":1}`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string][]string{
		stranger:                 {"the directory is no store", "thesis.txt"},
		newer:                    {"has format 99", "a newer one"},
		"/proc/waggle":           {"/proc/waggle"},
		stranger + "/thesis.txt": {"thesis.txt"},
	} {
		wantFailure(t, command(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--store", "file:"+dir), waggle.ExitFailed, want...)
	}
	wantFailure(t, command(t, nil, "serve", "--store", "file:"), waggle.ExitUsage, "names no directory")
	wantFailure(t, command(t, nil, "serve", "--store", "file:"+newer, "--fsync", "1ms"), waggle.ExitUsage, "--fsync", "10ms to 10s")
	wantFailure(t, command(t, nil, "serve", "--store", "memory", "--fsync", "never"), waggle.ExitUsage, "--fsync never is for --store file:DIR")
}
