package redisstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
)

// A record is one string: a header of fixed size, the body, and while the task
// is leased a tail, "<lease token>\n<session>". lua/prelude/record.lua reads and
// writes the header in the same layout; big-endian, times in ms:
//
//	version state flags priority result cancel     1 each
//	lane 4, depth 2, revision 4, bytes of the core 2, size 3
//	cycle 4, attempt 4, failures expirations throttled 2 each
//	given up, expired cycles, permanent cycles     1 each
//	run due first-due created settled              6 each
//	last lease: fence 8, holder 8
//	lease: fence 8, holder 8, granted 6, deadline 6, duration 4, longest hold 4
//	bytes of the tail 2
//
// The body is the core (URL, key, kind), which a settled task keeps, and the
// rest (metadata, payload), both in the protobuf wire format without what is
// empty. A key equal to the URL is left out.
const (
	headerSize    = 122
	recordVersion = 1
)

// The bits of the flags.
const (
	flagRecurring = 1 << iota
	flagAgain
	flagDetails
	flagHistory
)

// The fields of the body.
const (
	fieldURL = iota + 1
	fieldKey
	fieldKind
	fieldMetadata
	fieldPayload
	fieldMetadataKey   = 1
	fieldMetadataValue = 2
)

var errRecord = errors.New("record is damaged")

// encodeBody packs what a submission says of a task. core is the number of bytes
// that a settled task keeps; size is what the task counts for the limit on bytes
// of a claim.
func encodeBody(s *dispatch.Submission) (body []byte, core, size int) {
	size = len(s.URL) + len(s.Key) + len(s.Kind) + len(s.Payload)
	body = appendText(body, fieldURL, s.URL)
	if s.Key != s.URL {
		body = appendText(body, fieldKey, s.Key)
	}
	body = appendText(body, fieldKind, s.Kind)
	core = len(body)
	for _, key := range slices.Sorted(maps.Keys(s.Metadata)) {
		value := s.Metadata[key]
		size += len(key) + len(value)
		entry := appendText(appendText(nil, fieldMetadataKey, key), fieldMetadataValue, value)
		body = protowire.AppendBytes(protowire.AppendTag(body, fieldMetadata, protowire.BytesType), entry)
	}
	if len(s.Payload) > 0 {
		body = protowire.AppendBytes(protowire.AppendTag(body, fieldPayload, protowire.BytesType), s.Payload)
	}
	return body, core, size
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// decodeBody reads what encodeBody wrote.
func decodeBody(body []byte, t *dispatch.Task) error {
	err := eachField(body, func(field protowire.Number, value []byte) error {
		switch int(field) {
		case fieldURL:
			t.URL = string(value)
		case fieldKey:
			t.Key = string(value)
		case fieldKind:
			t.Kind = string(value)
		case fieldPayload:
			t.Payload = value
		case fieldMetadata:
			return decodeMetadata(value, t)
		}
		return nil
	})
	if t.Key == "" {
		t.Key = t.URL
	}
	return err
}

func decodeMetadata(entry []byte, t *dispatch.Task) error {
	var key, value string
	err := eachField(entry, func(field protowire.Number, text []byte) error {
		switch int(field) {
		case fieldMetadataKey:
			key = string(text)
		case fieldMetadataValue:
			value = string(text)
		}
		return nil
	})
	if t.Metadata == nil {
		t.Metadata = make(map[string]string)
	}
	t.Metadata[key] = value
	return err
}

// eachField calls field for each bytes field, and skips those of other types,
// which a later version may write.
func eachField(b []byte, field func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errRecord, protowire.ParseError(n))
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return fmt.Errorf("%w: %w", errRecord, protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errRecord, protowire.ParseError(n))
		}
		if err := field(number, value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// header reads the numbers of a header one after the other.
type header struct{ b []byte }

func (h *header) uint(n int) uint64 {
	var buf [8]byte
	copy(buf[8-n:], h.b[:n])
	h.b = h.b[n:]
	return binary.BigEndian.Uint64(buf[:])
}

func (h *header) byte() byte          { return byte(h.uint(1)) }
func (h *header) time() time.Time     { return instant(int64(h.uint(6))) }
func (h *header) span() time.Duration { return time.Duration(h.uint(4)) * time.Millisecond }
func (h *header) digest() (d dispatch.LeaseDigest) {
	d.Fence, d.Holder = h.uint(8), h.uint(8)
	return d
}

// decodeRecord reads into the task what its record says as of now, which tells
// scheduled and ready apart. What its lane and source say is not in the record.
func decodeRecord(id dispatch.TaskID, raw string, now time.Time, t *dispatch.Task) error {
	if len(raw) < headerSize {
		return fmt.Errorf("task %s: %w: %d bytes", id, errRecord, len(raw))
	}
	if raw[0] != recordVersion {
		return fmt.Errorf("task %s: %w: version %d, this program knows %d", id, errRecord, raw[0], recordVersion)
	}
	t.ID = id
	lease, core, tail := decodeHeader([]byte(raw[:headerSize]), t)
	rest := raw[headerSize:]
	if tail > len(rest) || core > len(rest)-tail {
		return fmt.Errorf("task %s: %w: core of %d and tail of %d in %d bytes", id, errRecord, core, tail, len(rest))
	}
	if err := decodeBody([]byte(rest[:len(rest)-tail]), t); err != nil {
		return fmt.Errorf("task %s: %w", id, err)
	}
	if t.State == dispatch.StateScheduled && !t.Due.After(now) {
		t.State = dispatch.StateReady
	}
	if t.State != dispatch.StateLeased {
		return nil
	}
	token, _, _ := strings.Cut(rest[len(rest)-tail:], "\n")
	var err error
	if lease.Token, err = dispatch.ParseLeaseToken(token); err != nil {
		return fmt.Errorf("task %s: %w: %w", id, errRecord, err)
	}
	t.Lease = &lease
	return nil
}

// decodeHeader reads the header of a record into the task.
func decodeHeader(b []byte, t *dispatch.Task) (lease dispatch.Lease, core, tail int) {
	h := header{b[1:]}
	t.State = dispatch.State(h.byte())
	flags := h.byte()
	t.Recurring, t.AgainRequested = flags&flagRecurring != 0, flags&flagAgain != 0
	t.Priority, t.Result, t.CancelRequested = int(h.byte()), dispatch.Result(h.byte()), dispatch.CancelReason(h.byte())
	h.uint(4) // lane
	t.Depth, t.Revision, core = int(h.uint(2)), uint32(h.uint(4)), int(h.uint(2))
	h.uint(3) // size
	c := &t.Counters
	c.Cycle, c.Attempt = uint32(h.uint(4)), uint32(h.uint(4))
	c.Failures, c.Expirations, c.Throttled = uint16(h.uint(2)), uint16(h.uint(2)), uint16(h.uint(2))
	c.GivenUp, c.ExpiredCycles, c.PermanentCycles = h.byte(), h.byte(), h.byte()
	t.Run, t.Due, t.FirstDue, t.Created, t.SettledAt = h.time(), h.time(), h.time(), h.time(), h.time()
	t.LastLease = h.digest()
	lease.Digest = h.digest()
	lease.Granted, lease.Deadline, lease.Duration, lease.MaxHold = h.time(), h.time(), h.span(), h.span()
	return lease, core, int(h.uint(2))
}

// decodeDetails reads the parts that most tasks do not have.
func decodeDetails(t *dispatch.Task, details []any) {
	for i := 0; i+1 < len(details); i += 2 {
		field, _ := details[i].(string)
		value, _ := details[i+1].(string)
		if value == "" {
			continue
		}
		switch field {
		case "c":
			t.Cursor = []byte(value)
		case "m":
			t.Memo = []byte(value)
		}
	}
}

// decodeHistory reads a task's last error and last attempts (lua/parts/history.lua).
func decodeHistory(t *dispatch.Task, packed string) error {
	if packed == "" {
		return nil
	}
	attempts, rest := int(packed[0]), packed[1:]
	failure, rest, err := cutLong(rest)
	if err == nil && failure != "" {
		t.LastError = new(dispatch.Failure)
		err = json.Unmarshal([]byte(failure), t.LastError)
	}
	for range attempts {
		if err != nil {
			break
		}
		var a dispatch.Attempt
		var text string
		if text, rest, err = cutLong(rest); err == nil {
			err = json.Unmarshal([]byte(text), &a)
		}
		t.History = append(t.History, a)
	}
	if err != nil {
		return fmt.Errorf("task %s: history: %w", t.ID, err)
	}
	return nil
}

// cutLong cuts off what appendLong has put first.
func cutLong(packed string) (text, rest string, err error) {
	const prefix = 4
	if len(packed) < prefix {
		return "", "", fmt.Errorf("%w: no length in %d bytes", errRecord, len(packed))
	}
	n := binary.BigEndian.Uint32([]byte(packed[:prefix]))
	rest = packed[prefix:]
	if uint64(n) > uint64(len(rest)) {
		return "", "", fmt.Errorf("%w: length of %d in %d bytes", errRecord, n, len(rest))
	}
	return rest[:n], rest[n:], nil
}

// found is a task as scripts give it back (lua/prelude/task.lua).
type found struct {
	task          dispatch.Task
	sourceVersion int64
}

// foundEach is how many values a task has in a reply, after those of its lane.
const foundEach = 4

// decodeLane reads the tasks of one lane that a script gave back; none for nil.
func decodeLane(v any, now time.Time) ([]found, error) {
	values, ok := v.([]any)
	if !ok || len(values) == 0 {
		return nil, nil
	}
	r := &reply{values: values}
	lane := found{sourceVersion: 0}
	lane.task.Queue, lane.task.SourceUID, lane.task.SourceID, lane.task.Pool = r.text(), r.text(), r.text(), r.text()
	lane.sourceVersion = r.integer()
	tasks := make([]found, 0, (len(values)-r.next)/foundEach)
	for r.more() {
		id, raw, details, history := dispatch.TaskID(r.text()), r.text(), r.list(), r.text()
		if r.err != nil {
			break
		}
		f := lane
		if err := decodeRecord(id, raw, now, &f.task); err != nil {
			return nil, err
		}
		decodeDetails(&f.task, details)
		if err := decodeHistory(&f.task, history); err != nil {
			return nil, err
		}
		tasks = append(tasks, f)
	}
	return tasks, r.err
}

// decodeTasks reads tasks, without those that do not exist.
func decodeTasks(values []any, now time.Time) ([]*dispatch.Task, error) {
	tasks := make([]*dispatch.Task, 0, len(values))
	for _, v := range values {
		lane, err := decodeLane(v, now)
		if err != nil {
			return nil, err
		}
		for i := range lane {
			tasks = append(tasks, &lane[i].task)
		}
	}
	return tasks, nil
}

// millis is an instant in ms, 0 for one that is not set.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixMilli(), 0)
}

// instant reads what millis wrote.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// span is a duration in ms; one that is not set is 0, and a negative one too.
func span(d time.Duration) int64 { return max(d.Milliseconds(), 0) }
