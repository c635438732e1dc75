package record_test

import (
	"encoding/hex"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
)

// golden reads bytes from a file of testdata.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(regexp.MustCompile(`#[^\n]*|\s`).ReplaceAllString(string(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// leased is the record of a leased task.
func leased(t testing.TB, holder string) []byte {
	return slices.Concat(golden(t, "lease.hex"), golden(t, "record.hex"), []byte(holder))
}

func decode(raw []byte, now time.Time) (dispatch.Task, error) {
	var task dispatch.Task
	err := record.Decode("id", string(raw), now, &task)
	return task, err
}

func TestDecode_Golden(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1772445612624)
	task, err := decode(golden(t, "record.hex"), now)
	if err != nil {
		t.Fatal(err)
	}
	want := dispatch.Task{
		ID: "id", URL: "http://a.b/", Key: "k123456789", Kind: "dd", Depth: 2, Run: time.UnixMilli(1772445610496).UTC(), Priority: 5,
		State: dispatch.StateScheduled, Due: time.UnixMilli(1772445615496).UTC(), Created: now.UTC(),
		Metadata: map[string]string{"lan": "great"}, Payload: []byte("payload!!!"), Revision: 1,
	}
	if !reflect.DeepEqual(task, want) {
		t.Errorf("task\n%+v, want\n%+v", task, want)
	}
}

func TestDecode_Leased(t *testing.T) {
	t.Parallel()
	task, err := decode(leased(t, "c-1/tok"), time.Time{})
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

func TestDecode_Damaged(t *testing.T) {
	t.Parallel()
	raw := golden(t, "record.hex")
	for n := range raw {
		if _, err := decode(raw[:n], time.Time{}); err == nil && n < 85+29 {
			t.Errorf("the first %d bytes of a record are read without an error", n)
		}
	}
	other := append([]byte{9}, raw[1:]...)
	if _, err := decode(other, time.Time{}); err == nil {
		t.Error("a record of another version is read without an error")
	}
	raw = leased(t, "")
	for n := range raw[:39+85] {
		if _, err := decode(raw[:n+1], time.Time{}); err == nil {
			t.Errorf("the first %d bytes of a leased record are read without an error", n+1)
		}
	}
	if _, err := decode(raw, time.Time{}); err == nil {
		t.Error("a leased record without a holder is read without an error")
	}
}

// TestDecodeHistory reads a history of one error and one attempt, whole and cut off.
func TestDecodeHistory(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1772445610496).UTC()
	failure := dispatch.Failure{Result: dispatch.ResultFailed, Message: "no", Time: at}
	attempt := dispatch.Attempt{Collector: "c", Fence: 7, Started: at, Ended: at, Result: dispatch.ResultFailed, Failure: &failure}
	packed, err := pack.AppendJSON([]byte{1}, &failure)
	if err == nil {
		packed, err = pack.AppendJSON(packed, &attempt)
	}
	if err != nil {
		t.Fatal(err)
	}
	task, err := record.DecodeHistory(string(packed))
	if err != nil {
		t.Fatal(err)
	}
	if want := (dispatch.Task{LastError: &failure, History: []dispatch.Attempt{attempt}}); !reflect.DeepEqual(task, want) {
		t.Errorf("task\n%+v, want\n%+v", task, want)
	}
	for n := 1; n < len(packed); n++ {
		if _, err := record.DecodeHistory(string(packed[:n])); err == nil {
			t.Errorf("%d bytes of a history are read without an error", n)
		}
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
		body, core, size := record.EncodeBody(&in)
		out, err := record.DecodeBody(body)
		if err != nil {
			t.Fatal(err)
		}
		if out.URL != url || out.Key != key || out.Kind != kind || string(out.Payload) != string(payload) || !reflect.DeepEqual(out.Metadata, in.Metadata) {
			t.Errorf("%+v came back as %+v", in, out)
		}
		kept, err := record.DecodeBody(body[:core])
		if err != nil || kept.URL != url || kept.Key != key || kept.Kind != kind || kept.Payload != nil || kept.Metadata != nil {
			t.Errorf("the core of %+v came back as %+v, %v", in, kept, err)
		}
		if size < len(url)+len(key)+len(kind)+len(payload) {
			t.Errorf("size %d of %+v", size, in)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(golden(f, "record.hex"))
	f.Add(leased(f, "c-1/tok"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		task, err := decode(raw, time.Time{})
		if err == nil && task.ID != "id" {
			t.Errorf("record without id: %+v", task)
		}
	})
}
