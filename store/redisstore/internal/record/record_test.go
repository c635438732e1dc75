package record_test

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
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

// ended is a record with the end of a lease.
func ended(t testing.TB) []byte {
	raw := slices.Concat(golden(t, "record.hex"), golden(t, "end.hex"))
	raw[2] |= 1 << 4 // the flag
	return raw
}

// decode reads a record of the source with number 1.
func decode(raw []byte, now time.Time) (dispatch.Task, error) {
	var task dispatch.Task
	source, err := record.Decode(string(raw), now, &task)
	if err == nil && source != 1 {
		err = fmt.Errorf("it is of source %d", source)
	}
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
		Queue: "a.b", URL: "http://a.b/", Key: "k123456789", Kind: "dd", Depth: 2, Run: time.UnixMilli(1772445610496).UTC(), Priority: 5,
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
	if task.CancelRequested != dispatch.CancelHeld {
		t.Errorf("the request to stop is %v, want %v", task.CancelRequested, dispatch.CancelHeld)
	}
	if task.State != dispatch.StateLeased || task.Revision != 2 || task.Counters.Attempt != 1 || task.Key != "k123456789" {
		t.Errorf("a leased task is %v in revision %d and attempt %d, its key %q", task.State, task.Revision, task.Counters.Attempt, task.Key)
	}
}

// TestDecode_Ended reads what the last lease left, and holds that a lease changes nothing of it
// but the attempts.
func TestDecode_Ended(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string][]byte{
		"waits": ended(t), "leased": slices.Concat(golden(t, "lease.hex"), ended(t), []byte("c-1/tok")),
	} {
		task, err := decode(raw, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		want := dispatch.Counters{
			Cycle: 3, Attempt: 2, Failures: 4, Expirations: 5, Throttled: 6, GivenUp: 7, ExpiredCycles: 8, PermanentCycles: 9,
		}
		if task.Lease != nil {
			want.Attempt++
		}
		last := dispatch.LeaseDigest{Fence: 0x64c08ba10a801, Holder: 0x123456789abcdef}
		if task.Result != dispatch.ResultFailed || task.Counters != want || task.LastLease != last || task.SettledAt != time.UnixMilli(1772445615496).UTC() {
			t.Errorf("%s: result %v, counters %+v, last lease %+v, settled at %v", name, task.Result, task.Counters, task.LastLease, task.SettledAt)
		}
		if string(task.Payload) != "payload!!!" || task.Queue != "a.b" {
			t.Errorf("%s: queue %q, payload %q", name, task.Queue, task.Payload)
		}
	}
}

func TestDecode_Damaged(t *testing.T) {
	t.Parallel()
	const lease, header, core, end = 41, 47, 29, 41
	refused := func(what string, raw []byte) {
		t.Helper()
		if _, err := decode(raw, time.Time{}); err == nil {
			t.Errorf("%s is read without an error", what)
		}
	}
	raw := golden(t, "record.hex")
	for n := range header + core {
		refused(fmt.Sprintf("a record of %d bytes", n), raw[:n])
	}
	refused("a record of another version", append([]byte{9}, raw[1:]...))
	raw = leased(t, "")
	for n := range lease + header {
		refused(fmt.Sprintf("a leased record of %d bytes", n), raw[:n])
	}
	refused("a leased record without a holder", raw)
	raw = ended(t)
	for n := range header + end {
		refused(fmt.Sprintf("%d bytes of an ended record", n), raw[:n])
	}
	raw[header-3] = 0xff
	refused("a record whose queue is behind its body", raw)
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

// FuzzAppendSubmission finds the queue of a record again, in its URL or key or apart.
func FuzzAppendSubmission(f *testing.F) {
	f.Add("http://a.b/", "k", "a.b")
	f.Add("http://a.b/", "", "other")
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, url, key, queue string) {
		if len(url)+len(key)+len(queue) > 1<<15 {
			return // longer ones are refused before
		}
		const byScript = 23 // bytes that lua/submit.lua puts before it
		raw := record.AppendSubmission(golden(t, "record.hex")[:byScript], &dispatch.Submission{URL: url, Key: cmp.Or(key, url), Queue: queue})
		task, err := decode(raw, time.Time{})
		if err != nil || task.Queue != queue || task.URL != url || task.Key != cmp.Or(key, url) {
			t.Errorf("URL %q, key %q, queue %q came back as %+v, %v", url, key, queue, task, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(golden(f, "record.hex"))
	f.Add(leased(f, "c-1/tok"))
	f.Add(ended(f))
	f.Fuzz(func(t *testing.T, raw []byte) {
		task := dispatch.Task{ID: "id"}
		if _, err := record.Decode(string(raw), time.Time{}, &task); err == nil && task.ID != "id" {
			t.Errorf("the record has changed the id: %+v", task)
		}
	})
}

func TestReadSources_damagedGate(t *testing.T) {
	t.Parallel()
	gate := strings.Repeat("\x00", 26) + "\x02eu" + "\x01u" + "\x00\x02id" + "\x00\x00\x00\x00\x00\x00\x07" + strings.Repeat("\x00", 6)
	for size := range len(gate) + 1 {
		r := pack.Read([]any{[]any{int64(1), gate[:size]}})
		record.ReadSources(r)
		if whole := size == 0 || size >= len(gate)-6; (r.Err == nil) != whole {
			t.Errorf("%d bytes of a gate of %d: error %v", size, len(gate), r.Err)
		}
	}
}
