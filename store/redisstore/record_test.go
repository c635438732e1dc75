package redisstore_test

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// goldenRecord is the record of a new task, as lua/submit.lua writes it. Changing
// it means that data in existing stores cannot be read: raise the format.
const goldenRecord = "01" + "01" + "00" + "00" + "00" + // version state flags result cancel
	"00000001" + "00000000" + "00000001" + "00000000" + // revision cycle lane attempt
	"0000" + "0000" + "0000" + "00" + "00" + "00" + "000000000000" + // counters settled
	"00" + "0000000000000000" + "0000000000000000" + // last lease
	"019cadfdc588" + "019cadfdba50" + // due created
	"000029" + "05" + "0002" + "001d" + // size priority depth core
	"019cadfdb200" + "000000000000" + // run first-due
	"0a0b" + "687474703a2f2f612e622f" + "120a" + "6b3132333435363738" + "39" + "1a02" + "6464" + // URL key kind
	"220c" + "0a036c616e" + "120567726561" + "74" + "2a0a" + "7061796c6f6164212121" // metadata payload

// goldenLease and goldenHolder stand before and behind the record of a leased
// task.
const (
	goldenLease = "02" + "00064c08ba10a801" + "0123456789abcdef" + // fence holder
		"019cadfdba50" + "019cadfe2f80" + "00007530" + "001b7740" + "0007" // granted deadline duration hold name
	goldenHolder = "632d312f746f6b" // c-1/tok
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
	if got := hex.EncodeToString([]byte(raw)); got != goldenRecord {
		t.Errorf("record\n%s, want\n%s", got, goldenRecord)
	}
	task, err := redisstore.DecodeRecord(item.ID, raw, time.UnixMilli(1772445612624))
	if err != nil {
		t.Fatal(err)
	}
	want := dispatch.Task{
		ID: item.ID, URL: item.URL, Key: item.Key, Kind: "dd", Depth: 2, Run: item.Run.UTC(), Priority: 5,
		State: dispatch.StateScheduled, Due: item.Due.UTC(), Created: time.UnixMilli(1772445612624).UTC(),
		Metadata: item.Metadata, Payload: item.Payload, Revision: 1,
	}
	if !reflect.DeepEqual(task, want) {
		t.Errorf("task\n%+v, want\n%+v", task, want)
	}
}

func TestRecord_Leased(t *testing.T) {
	t.Parallel()
	raw, err := hex.DecodeString(goldenLease + goldenRecord + goldenHolder)
	if err != nil {
		t.Fatal(err)
	}
	task, err := redisstore.DecodeRecord("id", string(raw), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	granted := time.UnixMilli(1772445612624).UTC()
	want := dispatch.Lease{
		Token:   dispatch.LeaseToken{Collector: "c-1", ClientToken: "tok", Fence: 0x64c08ba10a801},
		Digest:  dispatch.LeaseDigest{Fence: 0x64c08ba10a801, Holder: 0x123456789abcdef},
		Granted: granted, Deadline: granted.Add(30 * time.Second), Duration: 30 * time.Second, MaxHold: 30 * time.Minute,
	}
	if task.Lease == nil || *task.Lease != want {
		t.Errorf("lease\n%+v, want\n%+v", task.Lease, want)
	}
	if task.State != dispatch.StateLeased || task.Revision != 2 || task.Counters.Attempt != 1 || task.Key != "k123456789" {
		t.Errorf("a leased task is %v in revision %d and attempt %d, its key %q", task.State, task.Revision, task.Counters.Attempt, task.Key)
	}
}

func TestRecord_Damaged(t *testing.T) {
	t.Parallel()
	raw, err := hex.DecodeString(goldenRecord)
	if err != nil {
		t.Fatal(err)
	}
	for n := range raw {
		if _, err := redisstore.DecodeRecord("id", string(raw[:n]), time.Time{}); err == nil && n < 85+29 {
			t.Errorf("the first %d bytes of a record are read without an error", n)
		}
	}
	other := append([]byte{9}, raw[1:]...)
	if _, err := redisstore.DecodeRecord("id", string(other), time.Time{}); err == nil {
		t.Error("a record of another version is read without an error")
	}
	if raw, err = hex.DecodeString(goldenLease + goldenRecord); err != nil {
		t.Fatal(err)
	}
	for n := range raw[:39+85] {
		if _, err := redisstore.DecodeRecord("id", string(raw[:n+1]), time.Time{}); err == nil {
			t.Errorf("the first %d bytes of a leased record are read without an error", n+1)
		}
	}
	if _, err := redisstore.DecodeRecord("id", string(raw), time.Time{}); err == nil {
		t.Error("a leased record without a holder is read without an error")
	}
}

func FuzzBody(f *testing.F) {
	f.Add("http://a.b/", "", "feed", "k", "v", []byte("p"))
	f.Add("", "key", "", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, url, key, kind, name, value string, payload []byte) {
		if key == "" {
			key = url
		}
		in := dispatch.Submission{URL: url, Key: key, Kind: kind, Payload: payload}
		if name != "" {
			in.Metadata = map[string]string{name: value}
		}
		body, core, size := redisstore.EncodeBody(&in)
		out, err := redisstore.DecodeBody(body)
		if err != nil {
			t.Fatal(err)
		}
		if out.URL != url || out.Key != key || out.Kind != kind || string(out.Payload) != string(payload) || !reflect.DeepEqual(out.Metadata, in.Metadata) {
			t.Errorf("%+v came back as %+v", in, out)
		}
		kept, err := redisstore.DecodeBody(body[:core])
		if err != nil || kept.URL != url || kept.Key != key || kept.Kind != kind || kept.Payload != nil || kept.Metadata != nil {
			t.Errorf("the core of %+v came back as %+v, %v", in, kept, err)
		}
		if size < len(url)+len(key)+len(kind)+len(payload) {
			t.Errorf("size %d of %+v", size, in)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	raw, err := hex.DecodeString(goldenRecord)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	leased, err := hex.DecodeString(goldenLease + goldenRecord + goldenHolder)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(leased)
	f.Fuzz(func(t *testing.T, raw []byte) {
		task, err := redisstore.DecodeRecord("id", string(raw), time.Time{})
		if err == nil && task.ID != "id" {
			t.Errorf("record without id: %+v", task)
		}
	})
}

func FuzzHints(f *testing.F) {
	f.Add("ready 0 default 250\nsource a.b\nrules\nsession c s")
	f.Fuzz(func(t *testing.T, message string) {
		for _, h := range redisstore.Hints(message) {
			if h.Kind < dispatch.HintReady || h.Kind > dispatch.HintResync {
				t.Errorf("hint %+v of %q", h, message)
			}
		}
	})
}

// goldenHistory is a history of one error and one attempt, as lua/parts/history.lua
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
	task, err := redisstore.DecodeHistory(packed)
	if err != nil {
		t.Fatal(err)
	}
	want := dispatch.Task{LastError: &failure, History: []dispatch.Attempt{*tr.Attempt}}
	if !reflect.DeepEqual(task, want) {
		t.Errorf("task\n%+v, want\n%+v", task, want)
	}
	for n := 1; n < len(packed); n++ {
		if _, err := redisstore.DecodeHistory(packed[:n]); err == nil {
			t.Errorf("%d bytes of a history are read without an error", n)
		}
	}
}
