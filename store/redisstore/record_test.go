package redisstore_test

import (
	"encoding/hex"
	"os"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

func goldenSubmission() dispatch.Submission {
	return dispatch.Submission{
		SourceUID: "uid", Scope: "uid", Queue: "a.b", URL: "http://a.b/", Key: "k123456789", Kind: "dd", Depth: 2,
		Run: time.UnixMilli(1772445610496), Priority: 5, Due: time.UnixMilli(1772445615496),
		Metadata: map[string]string{"lan": "great"}, Payload: []byte("payload!!!"),
	}
}

func TestRecord_Golden(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Set(time.UnixMilli(1772445612624))
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	gate := sourceGate("uid")
	item := goldenSubmission()
	item.ID = dispatch.NewTaskID(dispatch.Identity{Scope: item.Scope, Queue: item.Queue, Key: item.Key})
	submit(t, s, gate, item)
	raw, err := client.Get(t.Context(), redisstore.TaskKey(s, "waggle", item.ID)).Result()
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("internal/record/testdata/record.hex")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`#[^\n]*|\s`).ReplaceAllString(string(golden), "")
	if got := hex.EncodeToString([]byte(raw)); got != want {
		t.Errorf("record\n%s, want\n%s", got, want)
	}
}

// goldenHistory is a history of one error and one attempt, as lua/history.lua
// writes it.
const goldenHistory = "\x01" + "\x00\x00\x00/" + `{"u":2,"m":"no","t":"2026-03-02T10:00:10.496Z"}` + "\x00\x00\x00\x87" +
	`{"c":"c","f":7,"s":"2026-03-02T10:00:10.496Z","e":"2026-03-02T10:00:10.496Z","r":2,"x":{"u":2,"m":"no","t":"2026-03-02T10:00:10.496Z"}}`

func TestHistory_Golden(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	gate := sourceGate("uid")
	submit(t, s, gate, submission(&gate, "a.b", "http://a.b/"))
	grant := claimOne(t, s)
	tr := done(&grant)
	at := time.UnixMilli(1772445610496).UTC()
	failure := dispatch.Failure{Result: dispatch.ResultFailed, Message: "no", Time: at}
	tr.State, tr.Shrink = dispatch.StateScheduled, false
	tr.LastError = &failure
	tr.Attempt = &dispatch.Attempt{Collector: "c", Fence: 7, Started: at, Ended: at, Result: dispatch.ResultFailed, Failure: &failure}
	settle(t, s, tr)
	packed, err := client.Get(t.Context(), key.Prefix("waggle").Shard(0).History(grant.Task.ID)).Result()
	if err != nil {
		t.Fatal(err)
	}
	if packed != goldenHistory {
		t.Errorf("history\n%q, want\n%q", packed, goldenHistory)
	}
	tasks, _, err := s.Tasks(t.Context(), []dispatch.TaskID{grant.Task.ID}, true)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tasks[0].History, []dispatch.Attempt{*tr.Attempt}; !reflect.DeepEqual(tasks[0].LastError, &failure) || !reflect.DeepEqual(got, want) {
		t.Errorf("last error %+v and history\n%+v, want\n%+v", tasks[0].LastError, got, want)
	}
}
