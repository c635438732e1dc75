//go:build linux

package main_test

import (
	"encoding/json"
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
	wantFailure(t, command(t, nil, "store", "check"), waggle.ExitUsage, "--store memory", "no indexes to check", "use --store redis://")
}
