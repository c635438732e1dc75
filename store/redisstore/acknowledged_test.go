package redisstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_LostTasks puts an older append-only file in the place of the present one: the store finds how many of the
// tasks that it had an answer for are gone, once.
func TestStore_LostTasks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF(redistest.FsyncAlways))
	s := openWatched(t, redisstore.Config{URL: server.URL()})
	gate := sourceGate("source")
	const tasks, lost = 4, 3 * 4
	calls := 0
	call := func() {
		t.Helper()
		calls++
		submit(t, s.Store, gate, submissions(&gate, fmt.Sprintf("h%d.example", calls), tasks)...)
	}
	call()
	files, older := filepath.Join(server.Dir(), "appendonlydir"), filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	for range lost / tasks {
		call()
	}
	s.lost(t, 0)
	server.Kill()
	if err := errors.Join(os.RemoveAll(files), os.CopyFS(files, os.DirFS(older))); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	await(t, "the redis", func() bool { return s.Store.Ping(t.Context()) == nil })
	for range 3 {
		call()
		s.lost(t, lost)
	}
}

// lost checks how many lost tasks were counted and logged.
func (s watched) lost(t *testing.T, want int64) {
	t.Helper()
	stats, err := s.Store.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := s.logs.FilterMessageSnippet("redis lost acknowledged tasks").All()
	if stats.LostTasks != want || (want > 0) != (len(told) == 1) {
		t.Fatalf("%d lost tasks, and %d lines in the log, want %d: %v", stats.LostTasks, len(told), want, told)
	}
	if want > 0 && told[0].ContextMap()["tasks"] != want {
		t.Errorf("the log says %v, want %d tasks", told[0].ContextMap(), want)
	}
}

// TestStore_AckReplicas has one replica: with two wanted a submit is not acknowledged, and a repeat
// finds the task; with one it is, when the replica has the task.
func TestStore_AckReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := redistest.Start(t, redistest.WithConfig("replicaof", strings.Replace(server.Addr(), ":", " ", 1)))
	client := redisClient(t, replica.URL())
	await(t, "the replica", func() bool {
		text, err := client.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(text, "master_link_status:up")
	})
	gate := sourceGate("source")
	items := submissions(&gate, "host.example", 1)
	two := open(t, redisstore.Config{URL: server.URL(), AckReplicas: 2})
	for range 2 { // the repeat, too
		_, err := two.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, items)
		if !errors.Is(err, dispatch.ErrStoreUnavailable) || !strings.Contains(err.Error(), "1 of 2") {
			t.Fatalf("submit with one of two replicas: %v", err)
		}
	}
	one := open(t, redisstore.Config{URL: server.URL(), AckReplicas: 1})
	for n := range 100 {
		results, err := one.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, submissions(&gate, "host.example", n+1))
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 && results[0].Code != dispatch.SubmitExists {
			t.Errorf("what was not acknowledged is %v, want EXISTS", results[0].Code)
		}
		last := submissions(&gate, "host.example", n+1)[n]
		if there := client.Exists(t.Context(), keyOf(last.ID)).Val(); there != 1 {
			t.Fatalf("task %d was acknowledged, and the replica has it not", n)
		}
	}
}

func keyOf(id dispatch.TaskID) string { return "waggle:{0}:t:" + string(id) }
