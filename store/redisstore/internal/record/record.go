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

// A record is one string: a header of fixed size, the body, and, once a lease ended or the task
// settled, the end. The record of a leased task stands between the lease and the name of the
// holder, "<collector>/<client token>", and is what it was before the grant: its state is that
// of a waiting task, its revision and attempt count one more. SHAPE.md has the fields, and
// lua/record.lua the same layout.
const (
	headerSize    = 47
	leaseSize     = 41
	endSize       = 41
	recordVersion = 1
	leaseVersion  = 2
)

// The bits of the flags.
const (
	flagRecurring = 1 << iota
	flagAgain
	flagDetails
	flagHistory
	flagEnded
	flagBehind
)

// The fields of the body.
const (
	fieldURL = iota + 1
	fieldKey
	fieldKind
	fieldMetadata
	fieldPayload
	fieldRelation
	fieldQueue
	fieldRedirect
	fieldMetadataKey   = 1
	fieldMetadataValue = 2
	fieldHops          = 1
	fieldFrom          = 2
	fieldDue           = 3
)

var errRecord = errors.New("record is damaged")

// Source is what the tasks of one source have in common in a reply.
type Source struct {
	uid, id, pool string
	version       int64
}

// Sources are those of the tasks in a reply, by their numbers in the shard.
type Sources map[uint32]Source

// ReadSources reads the sources of the tasks that follow in a reply.
func ReadSources(r *pack.Reply) Sources {
	const values = 2
	list := r.Array()
	sources := make(Sources, list.Len()/values)
	for list.More() {
		n := uint32(list.Integer()) //nolint:gosec // numbers of sources fit
		gate := list.Text()
		source, ok := readGate(gate)
		if !ok {
			list.Fail("the gate of a source", gate)
		}
		sources[n] = source
	}
	r.Join(list)
	return sources
}

// readGate reads of a gate (lua/source.lua) what its tasks have in common; nothing of an empty one, which is that of a
// source that the shard does not know any more.
func readGate(gate string) (s Source, ok bool) {
	// Deleted, held until, remembered, joined, lease, hold, priority.
	const numbersFirst, versionSize = 1 + 6 + 6 + 4 + 4 + 4 + 1, 7
	if gate == "" {
		return s, true
	}
	for _, part := range [...]struct {
		before, size int
		text         *string
	}{{numbersFirst, 1, &s.pool}, {0, 1, &s.uid}, {0, 2, &s.id}} {
		begin := part.before + part.size
		if len(gate) < begin {
			return s, false
		}
		h := numbers{[]byte(gate[part.before:begin])}
		end := begin + int(h.uint(part.size)) //nolint:gosec // two bytes fit
		if len(gate) < end {
			return s, false
		}
		*part.text, gate = gate[begin:end], gate[end:]
	}
	if len(gate) < versionSize {
		return s, false
	}
	h := numbers{[]byte(gate)}
	s.version = int64(h.uint(versionSize)) //nolint:gosec // 56 bits fit
	return s, true
}

// AppendTask appends the task that is next in a reply (lua/task.lua): as a grant, which has no
// token yet. What tells scheduled and ready apart is now.
func (s Sources) AppendTask(grants []dispatch.Grant, r *pack.Reply, now time.Time) ([]dispatch.Grant, error) {
	suffix, raw := r.Text(), r.Text()
	more, has := r.OptionalArray()
	if r.Err != nil {
		return nil, r.Err
	}
	grants = append(grants, dispatch.Grant{})
	g := &grants[len(grants)-1]
	err := s.decode(suffix, raw, now, g)
	if err == nil && has {
		err = decodeMore(&g.Task, more)
	}
	return grants, err
}

// decode reads a record with what its source says.
func (s Sources) decode(suffix, raw string, now time.Time, g *dispatch.Grant) error {
	t := &g.Task
	n, err := Decode(raw, now, t)
	if err != nil {
		return fmt.Errorf("task %s: %w", suffix, err)
	}
	t.ID = dispatch.TaskID(strconv.Itoa(dispatch.SlotOf(t.Queue)) + "-" + suffix)
	of, ok := s[n]
	if !ok {
		return fmt.Errorf("task %s: %w: its source, number %d, is not in the reply", t.ID, errRecord, n)
	}
	t.SourceUID, t.SourceID, t.Pool, g.SourceVersion = of.uid, of.id, of.pool, of.version
	return nil
}

// AppendAll appends all tasks of a reply: as grants, which have no token yet.
func (s Sources) AppendAll(grants []dispatch.Grant, r *pack.Reply, now time.Time) ([]dispatch.Grant, error) {
	const values = 2 // of most tasks
	grants = slices.Grow(grants, r.Len()/values)
	for r.More() {
		var err error
		if grants, err = s.AppendTask(grants, r, now); err != nil {
			return nil, err
		}
	}
	return grants, r.Err
}

// Tasks reads the sources and the tasks that are next in a reply.
func Tasks(r *pack.Reply, now time.Time) ([]*dispatch.Task, error) {
	sources, list := ReadSources(r), r.Array()
	if r.Err != nil {
		return nil, r.Err
	}
	found, err := sources.AppendAll(nil, list, now)
	if err != nil {
		return nil, err
	}
	tasks := make([]*dispatch.Task, len(found))
	for i := range found {
		tasks[i] = &found[i].Task
	}
	return tasks, nil
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

// numbers reads the numbers of a record one after the other.
type numbers struct{ b []byte }

func (h *numbers) uint(n int) uint64 {
	var buf [8]byte
	copy(buf[8-n:], h.b[:n])
	h.b = h.b[n:]
	return binary.BigEndian.Uint64(buf[:])
}

func (h *numbers) byte() byte          { return byte(h.uint(1)) }
func (h *numbers) time() time.Time     { return pack.Instant(int64(h.uint(6))) }
func (h *numbers) span() time.Duration { return time.Duration(h.uint(4)) * time.Millisecond }
func (h *numbers) digest() (d dispatch.LeaseDigest) {
	h.byte() // leaseVersion
	d.Fence, d.Holder = h.uint(8), h.uint(8)
	return d
}

// Decode reads into the task what its record says as of now, which tells scheduled and ready
// apart, and returns the number of its source. What its source says is not in the record.
func Decode(raw string, now time.Time, t *dispatch.Task) (source uint32, err error) {
	rest, err := decodeLease([]byte(raw), t) // the task shares the bytes
	if err != nil {
		return 0, err
	}
	if len(rest) < headerSize {
		return 0, fmt.Errorf("%w: %d bytes", errRecord, len(raw))
	}
	if rest[0] != recordVersion {
		return 0, fmt.Errorf("%w: version %d, this program knows %d", errRecord, rest[0], recordVersion)
	}
	h := decodeHeader(rest[:headerSize], t)
	body := rest[headerSize:]
	if h.ended {
		if len(body) < endSize {
			return 0, fmt.Errorf("%w: %d bytes without the end", errRecord, len(raw))
		}
		decodeEnd(body[len(body)-endSize:], t)
		body = body[:len(body)-endSize]
	}
	if h.core > len(body) || h.queueAt+h.queueSize > len(body) {
		return 0, fmt.Errorf("%w: core of %d and queue at %d in %d bytes", errRecord, h.core, h.queueAt, len(body))
	}
	t.Queue = string(body[h.queueAt : h.queueAt+h.queueSize])
	if err := decodeBody(body, t); err != nil {
		return 0, err
	}
	switch {
	case t.Lease != nil:
		t.State = dispatch.StateLeased
		t.Revision++
		t.Counters.Attempt++
	case t.State == dispatch.StateScheduled && !t.Due.After(now):
		t.State = dispatch.StateReady
	}
	return h.source, nil
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
	h := numbers{raw}
	l := &dispatch.Lease{Digest: h.digest(), Granted: h.time(), Deadline: h.time(), Duration: h.span(), MaxHold: h.span()}
	t.CancelRequested = dispatch.CancelReason(h.byte())
	h.byte() // lock deleted
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

// header is what a header says of the record itself.
type header struct {
	source                   uint32
	ended                    bool
	core, queueAt, queueSize int
}

// decodeHeader reads the header of a record into the task.
func decodeHeader(b []byte, t *dispatch.Task) (is header) {
	h := numbers{b[1:]}
	t.State = dispatch.State(h.byte())
	flags := h.byte()
	t.Recurring, t.AgainRequested, t.Behind = flags&flagRecurring != 0, flags&flagAgain != 0, flags&flagBehind != 0
	is.ended = flags&flagEnded != 0
	t.Revision, is.source = uint32(h.uint(4)), uint32(h.uint(4))
	t.Due, t.Created = h.time(), h.time()
	h.uint(3) // bytes for a claim
	t.Priority, t.Depth, is.core = int(h.byte()), int(h.uint(2)), int(h.uint(2))
	t.Run, t.FirstDue = h.time(), h.time()
	is.queueAt, is.queueSize = int(h.uint(2)), int(h.uint(2))
	return is
}

// decodeEnd reads what the last lease left.
func decodeEnd(b []byte, t *dispatch.Task) {
	h, c := numbers{b}, &t.Counters
	t.Result = dispatch.Result(h.byte())
	c.Cycle, c.Attempt = uint32(h.uint(4)), uint32(h.uint(4))
	c.Failures, c.Released, c.Expirations, c.Throttled = uint16(h.uint(2)), h.byte(), uint16(h.byte()), uint16(h.uint(2))
	c.GivenUp, c.ExpiredCycles, c.PermanentCycles = h.byte(), h.byte(), h.byte()
	t.SettledAt, t.LastLease = h.time(), h.digest()
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

// decodeHistory reads a task's last error and last attempts (lua/history.lua).
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
		case fieldRedirect:
			return decodeRedirect(value, &t.Redirect)
		}
		return nil
	})
	t.Key = cmp.Or(t.Key, t.URL)
	return err
}

func decodeRedirect(entry []byte, r *dispatch.Redirect) error {
	return eachField(entry, func(field protowire.Number, value []byte) error {
		switch int(field) {
		case fieldHops:
			for _, hops := range value {
				r.Hops = int(hops)
			}
		case fieldFrom:
			r.From = string(value)
		case fieldDue:
			if len(value) != 6 {
				return fmt.Errorf("%w: a time of %d bytes", errRecord, len(value))
			}
			h := numbers{value}
			r.Due = h.time()
		}
		return nil
	})
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
