package redisstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
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
// The body is in body.go.
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

var errRecord = errors.New("record is damaged")

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
	h.byte() // leaseVersion
	d.Fence, d.Holder = h.uint(8), h.uint(8)
	return d
}

// decodeRecord reads into the task what its record says as of now, which tells
// scheduled and ready apart. What its lane and source say is not in the record.
func decodeRecord(id dispatch.TaskID, raw string, now time.Time, t *dispatch.Task) error {
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
func decodeMore(t *dispatch.Task, more []any) error {
	for i := 0; i+1 < len(more); i += 2 {
		field, _ := more[i].(string)
		value, _ := more[i+1].(string)
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
			t.Lock = &dispatch.StrayLock{Value: lock, Ends: instant(ms)}
		case "x":
			t.SourceDeleted = new(dispatch.Gate)
			if err := json.Unmarshal([]byte(value), t.SourceDeleted); err != nil {
				return fmt.Errorf("task %s: deletion of its source: %w", t.ID, err)
			}
		}
	}
	return nil
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
