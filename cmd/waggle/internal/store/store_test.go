//go:build linux

package store_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStoreCheck_redis checks a store in Redis once no dispatcher owns it.
func TestStoreCheck_redis(t *testing.T) {
	t.Parallel()
	storeEnv := map[string]string{"WAGGLE_STORE": redistest.Start(t).URL()}
	clitest.WantFailure(t, clitest.Command(t, storeEnv, "store", "check"), cli.ExitFailed, `there is no store in redis under "waggle"`, "--store and --prefix")
	d := clitest.Start(t, storeEnv, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json")
	env := map[string]string{"WAGGLE_SERVER": clitest.Address(t, d)}
	d.Err.Line(t, `"opened the store"`)
	clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/")
	clitest.WantFailure(t, clitest.Command(t, storeEnv, "store", "check"), cli.ExitFailed, "uses the store", "stop all its dispatchers")
	if code := d.End(); code != cli.ExitOK {
		t.Fatalf("serve ended with %d:\n%s", code, d.Err.Text())
	}
	clitest.WantOutput(t, clitest.Command(t, storeEnv, "store", "check"), "Tasks  0 scheduled, 1 ready, 0 leased; 0 done, 0 dead, 0 canceled\neverything can be read\n")
}

func TestStoreCheck_memory(t *testing.T) {
	t.Parallel()
	clitest.WantFailure(t, clitest.Command(t, nil, "store", "check", "--store", "memory"), cli.ExitUsage, "--store memory", "check a directory, or --store redis://")
}

// TestStore_directory keeps what a dispatcher was given over a restart, a backup and a restore.
func TestStore_directory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	args := []string{"serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--store", "file:" + dir}
	clitest.WantFailure(t, clitest.Command(t, nil, "store", "check", dir), cli.ExitFailed, "no such file or directory")
	d := clitest.Start(t, nil, args...)
	env := map[string]string{"WAGGLE_SERVER": clitest.Address(t, d)}
	d.Err.Line(t, `it begins empty","dir":"`+dir+`"`)
	if got := clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/"); got.Code != 0 {
		t.Fatal(got.Err)
	}
	clitest.Command(t, env, "task", "submit", "--source", "a", "https://b.example/1", "https://b.example/2")
	if got := clitest.Command(t, env, "stats"); !strings.Contains(got.Out, "file, 1 shard") {
		t.Errorf("stats printed\n%s", got.Out)
	}
	clitest.WantFailure(t, clitest.Command(t, nil, args...), cli.ExitFailed, dir, "in use by process", "several share one Redis")
	tasks := "0 scheduled, 3 ready, 0 leased; 0 done, 0 dead, 0 canceled"
	if got := clitest.Command(t, nil, "store", "check", dir); got.Code != 0 || !strings.Contains(got.Out, tasks) {
		t.Errorf("exit code %d, printed\n%s%s", got.Code, got.Out, got.Err)
	}
	file := filepath.Join(t.TempDir(), "waggle.backup")
	if got := clitest.Command(t, nil, "store", "backup", dir, file); got.Code != 0 || !strings.Contains(got.Out, tasks) {
		t.Errorf("exit code %d, printed\n%s%s", got.Code, got.Out, got.Err)
	}
	if code := d.End(); code != 0 {
		t.Errorf("serve ended with %d:\n%s", code, d.Err.Text())
	}
	clitest.WantFailure(t, clitest.Command(t, nil, "store", "restore", file, dir), cli.ExitFailed, "has a store already")
	restored := filepath.Join(t.TempDir(), "restored")
	if got := clitest.Command(t, nil, "store", "restore", file, restored, "-o", "json"); got.Code != 0 || !strings.Contains(got.Out, `"snapshots": 1`) {
		t.Errorf("exit code %d, printed\n%s%s", got.Code, got.Out, got.Err)
	}
	for _, of := range []string{dir, restored} {
		again := clitest.Start(t, map[string]string{"WAGGLE_STORE": "file:" + of}, args[:len(args)-2]...)
		env["WAGGLE_SERVER"] = clitest.Address(t, again)
		if got := clitest.Command(t, env, "task", "list", "--source", "a"); strings.Count(got.Out, "READY") != 3 {
			t.Errorf("after a restart with %s the tasks are\n%s%s", of, got.Out, got.Err)
		}
		if strings.Contains(again.Err.Text(), "begins empty") {
			t.Errorf("%s has a store:\n%s", of, again.Err.Text())
		}
	}
}

// TestStoreCheck_misfits lists what the items of a directory contradict each other about.
func TestStoreCheck_misfits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data")
	b, loader := dir.New(dir.Config{Dir: path}), store.NewLoader(store.Config{})
	_, err := b.Acquire(t.Context(), backend.Owner{
		Shards: 2, Snapshot: func(int, backend.Snapshot) error { return errors.New("the log is enough") }, Leased: func() bool { return false },
	})
	if err == nil {
		err = b.Load(t.Context(), backend.AllShards, loader)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A collector that holds nothing, and that nothing is remembered of.
	name := "c"
	group := codec.AppendItem(make([]byte, 8), codec.Holder, 1, func(c *codec.Codec) { codec.Text(c, 1, &name) })
	if err := b.Room(0, len(group), false); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(1, group, len(group)).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := clitest.Command(t, nil, "store", "check", path)
	clitest.WantFailure(t, got, cli.ExitFailed, "does not fit together", "a backup of before")
	if !strings.Contains(got.Out, "SHARD") || !strings.Contains(got.Out, "collector c counts 0 held") {
		t.Errorf("printed\n%s", got.Out)
	}
	term := clitest.OpenTerminal(t, 80)
	if code := clitest.Run(t.Context(), []string{"store", "check", path}, strings.NewReader(""), term.TTY, io.Discard, nil); code != cli.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.Lines(term.All(t)) {
		if len([]rune(line)) > 81 {
			t.Errorf("on a terminal of 80 columns: %s", line)
		}
	}
}

// TestStore_repair has a log that was cut off: no dispatcher starts on it until its loss is accepted.
func TestStore_repair(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	serve := []string{"serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--store", "file:" + dir}
	d := clitest.Start(t, nil, serve...)
	env := map[string]string{"WAGGLE_SERVER": clitest.Address(t, d)}
	clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/")
	if code := d.End(); code != 0 {
		t.Fatalf("serve ended with %d:\n%s", code, d.Err.Text())
	}
	whole := clitest.Command(t, nil, "store", "repair", dir, "--accept-loss")
	if whole.Code != 0 || !strings.Contains(whole.Out, "everything can be read") || strings.Contains(whole.Out, "Given up") {
		t.Errorf("repairing a whole store: exit code %d, printed\n%s%s", whole.Code, whole.Out, whole.Err)
	}
	log := filepath.Join(dir, "log-00000000000000000001.waggle")
	if err := os.Truncate(log, 64<<20-1); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{serve, {"store", "check", dir}, {"store", "backup", dir, dir + ".backup"}} {
		clitest.WantFailure(t, clitest.Command(t, nil, args...), cli.ExitFailed, log, "cut off at offset 67108863 of 67108864", "nothing was changed",
			"`waggle store repair "+dir+" --accept-loss`")
	}
	clitest.WantFailure(t, clitest.Command(t, nil, "store", "repair", dir), cli.ExitUsage, "--accept-loss accepts that")
	got := clitest.Command(t, nil, "store", "repair", dir, "--accept-loss")
	if got.Code != 0 || !strings.Contains(got.Out, "cut off at offset 67108863") || !strings.Contains(got.Out, dir+"/damaged-") || !strings.Contains(got.Out, "1 ready") {
		t.Errorf("exit code %d, printed\n%s%s", got.Code, got.Out, got.Err)
	}
	env["WAGGLE_SERVER"] = clitest.Address(t, clitest.Start(t, nil, serve...))
	if got := clitest.Command(t, env, "task", "list", "--source", "a"); strings.Count(got.Out, "READY") != 1 {
		t.Errorf("after the repair the tasks are\n%s%s", got.Out, got.Err)
	}
}

// TestStoreCopy moves what a dispatcher was given from a directory to Redis and back.
func TestStoreCopy(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).URL()
	begin, end := "file:"+filepath.Join(t.TempDir(), "data"), "file:"+filepath.Join(t.TempDir(), "back")
	serve := func(store string) (*clitest.Background, map[string]string) {
		d := clitest.Start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--store", store)
		return d, map[string]string{"WAGGLE_SERVER": clitest.Address(t, d)}
	}
	clitest.WantFailure(t, clitest.Command(t, nil, "store", "copy", begin, redis), cli.ExitFailed, "no such file or directory")
	d, env := serve(begin)
	if got := clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/"); got.Code != 0 {
		t.Fatal(got.Err)
	}
	clitest.Command(t, env, "task", "submit", "--source", "a", "https://b.example/1", "https://b.example/2")
	clitest.WantFailure(t, clitest.Command(t, nil, "store", "copy", begin, redis), cli.ExitFailed, "in use by process")
	if code := d.End(); code != 0 {
		t.Fatalf("serve ended with %d:\n%s", code, d.Err.Text())
	}
	for _, move := range [][2]string{{begin, redis}, {redis, end}} {
		if got := clitest.Command(t, nil, "store", "copy", move[0], move[1]); got.Code != 0 || !strings.Contains(got.Out, "both are equal") {
			t.Fatalf("exit code %d, printed\n%s%s", got.Code, got.Out, got.Err)
		}
		clitest.WantFailure(t, clitest.Command(t, nil, "store", "copy", move[0], move[1]), cli.ExitFailed, "already")
	}
	if got := clitest.Command(t, nil, "store", "check", "--store", redis); got.Code != cli.ExitOK {
		t.Errorf("the copy in redis: exit code %d, printed\n%s%s", got.Code, got.Out, got.Err)
	}
	for _, store := range []string{redis, end} {
		d, env := serve(store)
		if got := clitest.Command(t, env, "task", "list", "--source", "a"); strings.Count(got.Out, "READY") != 3 {
			t.Errorf("in %s the tasks are\n%s%s", store, got.Out, got.Err)
		}
		if store == redis {
			other := "file:" + filepath.Join(t.TempDir(), "other")
			clitest.WantFailure(t, clitest.Command(t, nil, "store", "copy", redis, other), cli.ExitFailed, "uses the store", "stop all its dispatchers")
		}
		d.End()
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
		clitest.WantFailure(t, clitest.Command(t, nil, args...), cli.ExitFailed, "unfinished copy of elsewhere")
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
		clitest.WantFailure(t, clitest.Command(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--store", "file:"+dir), cli.ExitFailed, want...)
	}
	clitest.WantFailure(t, clitest.Command(t, nil, "serve", "--store", "file:"), cli.ExitUsage, "names no directory")
	clitest.WantFailure(t, clitest.Command(t, nil, "serve", "--store", "file:"+newer, "--fsync", "1ms"), cli.ExitUsage, "--fsync", "10ms to 10s")
	clitest.WantFailure(t, clitest.Command(t, nil, "serve", "--store", "memory", "--fsync", "never"), cli.ExitUsage, "--fsync never is for --store file:DIR")
}
