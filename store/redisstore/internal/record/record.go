// Package record packs and unpacks the records of tasks, as the store keeps them and scripts
// return them. It is pure functions between bytes and [dispatch.Task]: scripts pass the bodies
// of records through as they are.
package record

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
)

// A record is one string: a header of fixed size and the body. The record of a
// leased task stands between the lease and the name of the holder, "<collector>/
// <client token>", and is what it was before the grant: its state is that of a
// waiting task, its revision and attempt count one more. lua/prelude/record.lua
// has the same layout; big-endian, times in ms:
//
//	version state flags result cancel                   1 each
//	revision cycle lane attempt                         4 each
//	failures expirations throttled                      2 each
//	given up, expired cycles, permanent cycles          1 each
//	settled 6
//	last lease: leaseVersion 1 (0 = none), fence 8, holder 8
//	due created                                         6 each
//	bytes that count for a claim 3, priority 1
//	depth, bytes of the core                            2 each
//	run first-due                                       6 each
//
//	lease: leaseVersion 1, fence 8, holder 8, granted 6, deadline 6, duration 4,
//	longest hold 4, bytes of the holder's name 2
//
// The body is the core (URL, key, kind, relation), which a settled task keeps, and the rest
// (metadata, payload), both in the protobuf wire format without what is empty. A key equal to
// the URL is left out.
const (
	headerSize    = 85
	leaseSize     = 39
	recordVersion = 1
	leaseVersion  = 2
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
	fieldRelation
	fieldMetadataKey   = 1
	fieldMetadataValue = 2
)

var errRecord = errors.New("record is damaged")

// Lane is what the tasks of one lane have in common in a reply.
type Lane struct {
	queue, sourceUID, sourceID, pool string
	sourceVersion                    int64
	slot                             string
}

// ReadLane reads the lane of the tasks that follow in a reply.
func ReadLane(r *pack.Reply) Lane {
	return Lane{r.Text(), r.Text(), r.Text(), r.Text(), r.Integer(), r.Text()}
}

// taskValues is how many values most tasks have in a reply (lua/prelude/task.lua),
// besides those of their lane.
const taskValues = 2

// AppendTask appends the task that is next in a reply: as a grant, which has no token yet.
// What tells scheduled and ready apart is now.
func (l *Lane) AppendTask(grants []dispatch.Grant, r *pack.Reply, now time.Time) ([]dispatch.Grant, error) {
	id, raw := dispatch.TaskID(l.slot+"-"+r.Text()), r.Text()
	more, has := r.OptionalArray()
	if r.Err != nil {
		return nil, r.Err
	}
	grants = append(grants, dispatch.Grant{SourceVersion: l.sourceVersion})
	t := &grants[len(grants)-1].Task
	t.Queue, t.SourceUID, t.SourceID, t.Pool = l.queue, l.sourceUID, l.sourceID, l.pool
	err := Decode(id, raw, now, t)
	if err == nil && has {
		err = decodeMore(t, more)
	}
	return grants, err
}

// AppendLane appends the tasks of one lane that a script returned, none for nil: as grants,
// which have no token yet.
func AppendLane(grants []dispatch.Grant, r *pack.Reply, now time.Time) ([]dispatch.Grant, error) {
	if !r.More() {
		return grants, r.Err
	}
	l := ReadLane(r)
	grants = slices.Grow(grants, r.Len()/taskValues)
	for r.More() {
		var err error
		if grants, err = l.AppendTask(grants, r, now); err != nil {
			return nil, err
		}
	}
	return grants, r.Err
}

// Tasks reads tasks, an array of a lane each, without those that do not exist.
func Tasks(r *pack.Reply, now time.Time) ([]*dispatch.Task, error) {
	tasks := make([]*dispatch.Task, 0, r.Len())
	for r.More() {
		found, err := AppendLane(nil, r.Array(), now)
		if err != nil {
			return nil, err
		}
		for i := range found {
			tasks = append(tasks, &found[i].Task)
		}
	}
	return tasks, r.Err
}

// AppendDigest appends a lease's digest as records keep it; zeros for none.
func AppendDigest(b []byte, d dispatch.LeaseDigest) []byte {
	mark := byte(leaseVersion)
	if d == (dispatch.LeaseDigest{}) {
		mark = 0
	}
	b = append(b, mark)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, d.Fence), d.Holder)
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
func (h *header) time() time.Time     { return pack.Instant(int64(h.uint(6))) }
func (h *header) span() time.Duration { return time.Duration(h.uint(4)) * time.Millisecond }
func (h *header) digest() (d dispatch.LeaseDigest) {
	h.byte() // leaseVersion
	d.Fence, d.Holder = h.uint(8), h.uint(8)
	return d
}

// Decode reads into the task what its record says as of now, which tells
// scheduled and ready apart. What its lane and source say is not in the record.
func Decode(id dispatch.TaskID, raw string, now time.Time, t *dispatch.Task) error {
	t.ID = id
	rest, err := decodeLease([]byte(raw), t) // the task shares the bytes
	if err != nil {
		return fmt.Errorf("task %s: %w", id, err)
	}
	if len(rest) < headerSize {
		return fmt.Errorf("task %s: %w: %d bytes", id, errRecord, len(raw))
	}
	if rest[0] != recordVersion {
		return fmt.Errorf("task %s: %w: version %d, this program knows %d", id, errRecord, rest[0], recordVersion)
	}
	if core, body := decodeHeader(rest[:headerSize], t), len(rest)-headerSize; core > body {
		return fmt.Errorf("task %s: %w: core of %d in %d bytes", id, errRecord, core, body)
	}
	if err := decodeBody(rest[headerSize:], t); err != nil {
		return fmt.Errorf("task %s: %w", id, err)
	}
	switch {
	case t.Lease != nil:
		t.State = dispatch.StateLeased
		t.Revision++
		t.Counters.Attempt++
	case t.State == dispatch.StateScheduled && !t.Due.After(now):
		t.State = dispatch.StateReady
	}
	return nil
}

// decodeLease reads the lease of a leased task's record, and returns the record as
// it was before.
func decodeLease(raw []byte, t *dispatch.Task) (rest []byte, err error) {
	if len(raw) == 0 || raw[0] != leaseVersion {
		return raw, nil
	}
	if len(raw) < leaseSize {
		return nil, fmt.Errorf("%w: lease of %d bytes", errRecord, len(raw))
	}
	h := header{raw}
	l := &dispatch.Lease{Digest: h.digest(), Granted: h.time(), Deadline: h.time(), Duration: h.span(), MaxHold: h.span()}
	name := int(h.uint(2))
	rest = raw[leaseSize:]
	if name > len(rest) {
		return nil, fmt.Errorf("%w: name of %d in %d bytes", errRecord, name, len(rest))
	}
	rest, holder := rest[:len(rest)-name], string(rest[len(rest)-name:])
	l.Token.Collector, l.Token.ClientToken, _ = strings.Cut(holder, "/")
	l.Token.Fence = l.Digest.Fence
	if l.Token.Collector == "" || l.Token.ClientToken == "" {
		return nil, fmt.Errorf("%w: %.64q does not name a holder", errRecord, holder)
	}
	t.Lease = l
	return rest, nil
}

// decodeHeader reads the header of a record into the task.
func decodeHeader(b []byte, t *dispatch.Task) (core int) {
	h := header{b[1:]}
	t.State = dispatch.State(h.byte())
	flags := h.byte()
	t.Recurring, t.AgainRequested = flags&flagRecurring != 0, flags&flagAgain != 0
	t.Result, t.CancelRequested, t.Revision = dispatch.Result(h.byte()), dispatch.CancelReason(h.byte()), uint32(h.uint(4))
	c := &t.Counters
	c.Cycle = uint32(h.uint(4))
	h.uint(4) // lane
	c.Attempt = uint32(h.uint(4))
	c.Failures, c.Expirations, c.Throttled = uint16(h.uint(2)), uint16(h.uint(2)), uint16(h.uint(2))
	c.GivenUp, c.ExpiredCycles, c.PermanentCycles = h.byte(), h.byte(), h.byte()
	t.SettledAt, t.LastLease, t.Due, t.Created = h.time(), h.digest(), h.time(), h.time()
	h.uint(3) // bytes for a claim
	t.Priority, t.Depth, core = int(h.byte()), int(h.uint(2)), int(h.uint(2))
	t.Run, t.FirstDue = h.time(), h.time()
	return core
}

// decodeMore reads the parts that most tasks do not have: fields of the details,
// the history, what keeps a waiting task, and who deleted the source.
func decodeMore(t *dispatch.Task, more *pack.Reply) error {
	for more.More() {
		field, value := more.Text(), more.Text()
		if value == "" {
			continue
		}
		switch field {
		case "c":
			t.Cursor = []byte(value)
		case "m":
			t.Memo = []byte(value)
		case "h":
			if err := decodeHistory(t, value); err != nil {
				return err
			}
		case "l":
			ends, lock, _ := strings.Cut(value, " ")
			ms, err := strconv.ParseInt(ends, 10, 64)
			if err != nil {
				return fmt.Errorf("task %s: end of its lock: %w", t.ID, err)
			}
			t.Lock = &dispatch.StrayLock{Value: lock, Ends: pack.Instant(ms)}
		case "x":
			t.SourceDeleted = new(dispatch.Gate)
			if err := json.Unmarshal([]byte(value), t.SourceDeleted); err != nil {
				return fmt.Errorf("task %s: deletion of its source: %w", t.ID, err)
			}
		}
	}
	return more.Err
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

// cutLong cuts off what [pack.AppendLong] has put first.
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

// decodeBody reads what appendBody wrote. The task shares the bytes of its payload.
func decodeBody(body []byte, t *dispatch.Task) error {
	err := eachField(body, func(field protowire.Number, value []byte) error {
		switch int(field) {
		case fieldURL:
			t.URL = string(value)
		case fieldKey:
			t.Key = string(value)
		case fieldKind:
			t.Kind = string(value)
		case fieldRelation:
			for _, relation := range value {
				t.Relation = dispatch.Relation(relation)
			}
		case fieldPayload:
			t.Payload = value
		case fieldMetadata:
			return decodeMetadata(value, t)
		}
		return nil
	})
	t.Key = cmp.Or(t.Key, t.URL)
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
