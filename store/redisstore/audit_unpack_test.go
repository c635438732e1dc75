package redisstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
)

// taskImage is a task, and the lane that its record names.
type taskImage struct {
	dispatch.Task
	lane string
}

func unpackTask(id dispatch.TaskID, raw string) (*taskImage, error) {
	image := new(taskImage)
	if err := record.Decode(id, raw, time.Time{}, &image.Task); err != nil {
		return nil, err
	}
	const leaseSize, laneAt = 39, 13 // the layout is in internal/record
	if image.Lease != nil {
		raw = raw[leaseSize:]
	}
	image.lane = strconv.FormatUint(uint64(binary.BigEndian.Uint32([]byte(raw[laneAt:]))), 10)
	return image, nil
}

// waits says whether the task waits, now or later.
func (t *taskImage) waits() bool {
	return t.State == dispatch.StateReady || t.State == dispatch.StateScheduled
}

// laneImage is a lane and its sets.
type laneImage struct {
	number                       string
	uid, queue, slot, pool       string
	settled, orphaned            bool
	rank, due                    float64 // of the first of lane ready, and the score of the first of lane later; +Inf = none
	ready, later, dead, canceled zset
}

func unpackLane(number, raw string) (*laneImage, error) {
	p := packed{rest: []byte(raw)}
	l := &laneImage{number: number, uid: p.text(2), queue: p.text(2), slot: p.text(2), pool: p.text(2)}
	had := p.integer(1)
	l.settled, l.orphaned = had&1 != 0, had&2 != 0
	l.rank, l.due = float64(p.integer(1)), p.float()
	if l.rank == 255 {
		l.rank = math.Inf(1)
	}
	if l.due == 0 {
		l.due = math.Inf(1)
	}
	return l, p.end("lane " + number)
}

// queueImage is a queue's record.
type queueImage struct {
	name              string
	nextGrant, block  float64
	inFlight, waiting int
	parts             map[string]*partImage // by pool
}

// partImage is where a queue and its lanes stand in one pool.
type partImage struct {
	pool       string
	held       bool
	open, wait *float64 // its scores in pool open and pool wait
	aside      bool
	lanes      map[setKind]loneLane
}

// setKind is one of the sets of lanes of a queue.
type setKind string

const (
	queueOpen setKind = "qo"
	queueWait setKind = "qw"
)

// loneLane is what a queue's record has of a set of lanes: how many there are, and the
// one that is alone.
type loneLane struct {
	count int
	name  string
	score float64
}

func unpackQueue(name, raw string) (*queueImage, error) {
	p := packed{rest: []byte(raw)}
	q := &queueImage{name: name, parts: make(map[string]*partImage)}
	q.nextGrant = p.float()
	p.float() // held until
	q.block = p.float()
	p.integer(4) // step
	p.float()    // when the block began
	q.inFlight, q.waiting = int(int32(p.integer(4))), int(int32(p.integer(4)))
	p.float() // what the host asks for
	p.text(2) // settings
	for len(p.rest) > 0 && p.err == nil {
		a := unpackPart(&p)
		q.parts[a.pool] = a
	}
	return q, p.end("queue " + name)
}

func unpackPart(p *packed) *partImage {
	a := &partImage{pool: p.text(1)}
	p.integer(6) // picks
	bits := p.integer(1)
	open, wait := p.float(), p.float()
	opens, waits := loneLane{count: int(p.integer(4))}, loneLane{count: int(p.integer(4))}
	opens.score, waits.score = p.float(), p.float()
	opens.name, waits.name = p.text(1), p.text(1)
	a.held, a.aside = bits&1 != 0, bits&8 != 0
	if bits&2 != 0 {
		a.open = &open
	}
	if bits&4 != 0 {
		a.wait = &wait
	}
	a.lanes = map[setKind]loneLane{queueOpen: opens, queueWait: waits}
	return a
}

// sourceImage is what a shard holds of a source.
type sourceImage struct {
	uid, pool string
	deleted   bool
	counts    map[string]int
	// named is set for one that claims name, listed when all its lanes are listed, too.
	named, listed bool
}

func unpackSource(uid string, fields map[string]string) (*sourceImage, error) {
	counts, err := unpackCounts(fields["counts"], "scheduled", "ready", "leased", "done", "dead", "canceled", "out", "limited", "row", "success", "failure")
	s := &sourceImage{uid: uid, counts: counts}
	p := packed{rest: []byte(fields["gate"]), err: err}
	p.text(2) // id
	p.float() // version
	s.pool = p.text(2)
	p.integer(1) // priority
	p.float()    // held until
	s.deleted = p.integer(1) == 1
	if fields["named"] == "" {
		return s, p.err
	}
	p = packed{rest: []byte(fields["named"]), err: p.err}
	p.float() // until when
	s.named, s.listed = true, math.IsInf(p.float(), 1)
	return s, p.err
}

// unpackNote reads the tasks of a note of a grant (lua/parts/grant.lua).
func unpackNote(note string) (ids string, err error) {
	p := packed{rest: []byte(note)}
	p.text(1) // session
	p.text(2) // calls
	p.integer(8)
	ids = p.text(2)
	p.text(2) // turns
	return ids, p.end("note of a grant")
}

// packNote makes one.
func packNote(session, ids string) string {
	return string([]byte{byte(len(session))}) + session + strings.Repeat("\x00", 2+8+1) + string([]byte{byte(len(ids))}) + ids + "\x00\x00"
}

// unpackCounts reads packed counts, given what they are of in their order.
func unpackCounts(value string, fields ...string) (map[string]int, error) {
	counts, p := make(map[string]int), packed{rest: []byte(value)}
	if value == "" {
		return counts, nil
	}
	for _, field := range fields {
		counts[field] = int(p.integer(6)<<16) >> 16
	}
	return counts, p.end("counts")
}

// packed reads what the scripts have packed, big-endian.
type packed struct {
	rest []byte
	err  error
}

var errShort = errors.New("packed value is too short")

func (p *packed) bytes(n int) []byte {
	if n > len(p.rest) {
		p.rest, p.err = nil, errShort
		return make([]byte, n)
	}
	b := p.rest[:n]
	p.rest = p.rest[n:]
	return b
}

// integer reads an unsigned one of n bytes.
func (p *packed) integer(n int) uint64 {
	var b [8]byte
	copy(b[8-n:], p.bytes(n))
	return binary.BigEndian.Uint64(b[:])
}

func (p *packed) float() float64 { return math.Float64frombits(p.integer(8)) }

// text reads a string behind its length of n bytes.
func (p *packed) text(n int) string { return string(p.bytes(int(p.integer(n)))) }

// end says what was wrong with the value as a whole.
func (p *packed) end(what string) error {
	if p.err == nil && len(p.rest) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w, or too long by %d bytes", what, errors.Join(errShort, p.err), len(p.rest))
}
