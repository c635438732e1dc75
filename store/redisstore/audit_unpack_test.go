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

// taskImage is a task, and the number of its source.
type taskImage struct {
	dispatch.Task
	source string
}

func unpackTask(id dispatch.TaskID, raw string) (*taskImage, error) {
	t := new(taskImage)
	n, err := record.Decode(raw, time.Time{}, &t.Task)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", id, err)
	}
	t.ID, t.source = id, strconv.FormatUint(uint64(n), 10)
	return t, nil
}

// lane names the lane of the task.
func (t *taskImage) lane() string { return t.source + ":" + t.Queue }

// waits says whether the task waits, now or later.
func (t *taskImage) waits() bool {
	return t.State == dispatch.StateReady || t.State == dispatch.StateScheduled
}

// rank is where the task comes in its lane (dispatch/scheduling.md).
func (t *taskImage) rank() int {
	rank := (9 - t.Priority) * 2
	switch {
	case t.Behind:
		return 20
	case !t.Recurring:
		rank++
	}
	return rank
}

// standing is where a lane stands in its queue, or a queue in a pool.
type standing byte

// Where lanes and queues stand; lanes neither held, full nor later.
const (
	standsNowhere standing = iota
	standsOpen
	standsWait
	standsHeld
	standsFull
	standsLater
)

// laneImage is a lane: where it stands in its queue, what its value says of its set, and the
// tasks, those of the head in their order.
type laneImage struct {
	name, source, queue, pool string
	stands                    standing
	score, later, more        float64
	head                      []entry
	set                       zset
}

// entry is a task in a lane: its score, and the end of its id.
type entry struct {
	score  float64
	suffix string
}

// unpackLane reads the value of a lane of a wide queue.
func unpackLane(name, raw string) (*laneImage, error) {
	p := packed{rest: []byte(raw)}
	source, queue, _ := strings.Cut(name, ":")
	l := &laneImage{name: name, source: source, queue: queue, pool: p.text(1)}
	l.unpack(&p)
	l.unpackHead(&p)
	return l, p.end("lane " + name)
}

func (l *laneImage) unpack(p *packed) {
	l.stands, l.score, l.later, l.more = standing(p.integer(1)), p.whole(7), p.whole(7), p.whole(4)
	if l.stands == standsWait {
		l.score = until(l.score)
	}
}

func (l *laneImage) unpackHead(p *packed) {
	for len(p.rest) > 0 && p.err == nil {
		l.head = append(l.head, entry{p.whole(7), string(p.bytes(26))})
	}
}

// queueImage is the value of a queue.
type queueImage struct {
	name                    string
	nextGrant, held, block  float64
	version                 float64
	slot, inFlight, waiting int
	wide                    bool
	settings                string
	parts                   map[string]*partImage // by pool
	lane                    *laneImage
}

// partImage is where a queue stands in one pool, and of a wide one how many of its lanes do.
type partImage struct {
	pool         string
	stands       standing
	score        float64
	aside        bool
	opens, waits int
}

// The bits of the value of a queue, and of its part in a pool behind where it stands there.
const (
	hasTrouble, isWide, hasLane, isFlat = 1, 2, 4, 8
	stands, here, aside                 = 7, 8, 16
)

func unpackQueue(name, raw string) (*queueImage, error) {
	p := packed{rest: []byte(raw)}
	q := &queueImage{name: name, parts: make(map[string]*partImage), nextGrant: p.whole(6), held: p.whole(6), version: p.whole(6)}
	q.slot, q.inFlight, q.waiting = int(p.integer(2)), int(p.integer(4)), int(p.integer(4))
	if bits := p.integer(1); bits == isFlat {
		q.unpackFlat(&p)
	} else {
		q.unpack(&p, bits)
	}
	if q.lane != nil {
		q.lane.name = q.lane.source + ":" + name
		if a := q.parts[q.lane.pool]; a != nil {
			a.opens, a.waits = count(q.lane.stands == standsOpen), count(q.lane.stands == standsWait)
		}
	}
	return q, p.end("queue " + name)
}

// unpackFlat reads the rest of a queue with a lane in one pool, and without trouble.
func (q *queueImage) unpackFlat(p *packed) {
	its, score := p.integer(1), p.whole(7)
	q.lane = &laneImage{source: strconv.FormatUint(p.integer(4), 10), queue: q.name}
	q.lane.unpack(p)
	head := packed{rest: p.bytes(int(p.integer(1)))}
	q.lane.unpackHead(&head)
	p.err = errors.Join(p.err, head.err)
	q.settings = p.text(1)
	a := &partImage{pool: p.text(1), stands: standing(its & stands), score: score}
	q.parts[a.pool] = a
	if its&here != 0 {
		q.lane.pool = a.pool
	}
}

// unpack reads the rest of any other.
func (q *queueImage) unpack(p *packed, bits uint64) {
	q.wide, q.settings = bits&isWide != 0, p.text(1)
	if bits&hasTrouble != 0 {
		q.block = p.whole(6)
		p.bytes(2 + 6 + 4) // step, when it began, what the host asks for
		p.bytes(4 * int(p.integer(1)))
	}
	lanePool := ""
	for range p.integer(1) {
		a := &partImage{pool: p.text(1)}
		its := p.integer(1)
		a.stands, a.aside, a.score = standing(its&stands), its&aside != 0, p.whole(7)
		if its&here != 0 {
			lanePool = a.pool
		}
		if q.wide {
			a.opens, a.waits = int(p.integer(4)), int(p.integer(4))
		}
		q.parts[a.pool] = a
	}
	if bits&hasLane != 0 {
		q.lane = &laneImage{source: strconv.FormatUint(p.integer(4), 10), queue: q.name, pool: lanePool}
		q.lane.unpack(p)
		q.lane.unpackHead(p)
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// sourceImage is what a shard holds of a source.
type sourceImage struct {
	uid, pool string
	deleted   bool
	counts    map[string]int
	// named is set for one that claims name, listed when all its lanes are listed, too.
	named, listed bool
}

func unpackSource(gate, counted, named string) (*sourceImage, error) {
	counts, err := unpackCounts(counted, sourceCounts)
	s := &sourceImage{counts: counts, named: counts["named"] > 0}
	p := packed{rest: []byte(gate), err: err}
	s.deleted = p.integer(1) == 1
	// Held until, how long settled tasks are remembered, bytes that are joined, lease, hold, priority.
	p.bytes(6 + 6 + 4 + 4 + 4 + 1)
	s.pool = p.text(1)
	s.uid = p.text(1)
	p.text(2)      // id
	p.bytes(7 + 6) // version, limit
	if s.named && named != "" {
		s.listed = named[0] == 1
	}
	return s, p.end("gate")
}

// What the packed counts of a shard and of a source are, in their order.
var (
	shardCounts = []string{
		"scheduled", "ready", "leased", "done", "dead", "canceled", "granted", "settled", "expired", "orphaned", "dropped", "sources",
	}
	sourceCounts = []string{"scheduled", "ready", "leased", "done", "dead", "canceled", "out", "limited", "row", "success", "failure", "named", "kept"}
)

// settingsImage are the settings that a call of the shard needed last, and their version.
type settingsImage struct {
	version     float64
	name, filed string
}

// unpackShard reads what the shard counts, and these settings.
func unpackShard(value string) (counts map[string]int, settings settingsImage, err error) {
	p := packed{rest: []byte(value)}
	if value == "" {
		return map[string]int{}, settings, nil
	}
	counts, err = unpackCounts(string(p.bytes(6*len(shardCounts))), shardCounts)
	p.bytes(8 + 6) // the last fence, the last step of used client tokens
	if len(p.rest) > 0 {
		settings = settingsImage{p.whole(6), p.text(1), p.text(2)}
	}
	return counts, settings, errors.Join(err, p.end("shard"))
}

func unpackCounts(value string, fields []string) (map[string]int, error) {
	counts, p := make(map[string]int), packed{rest: []byte(value)}
	if value == "" {
		return counts, nil
	}
	for _, field := range fields {
		counts[field] = int(int64(p.integer(6)<<16) >> 16)
	}
	return counts, p.end("counts")
}

// unpackNote reads the tasks of a note of a grant (lua/grant.lua).
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

// whole reads one that is compared with scores.
func (p *packed) whole(n int) float64 { return float64(p.integer(n)) }

// text reads a string behind its length of n bytes.
func (p *packed) text(n int) string { return string(p.bytes(int(p.integer(n)))) }

// end says what was wrong with the value as a whole.
func (p *packed) end(what string) error {
	if p.err == nil && len(p.rest) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w, or too long by %d bytes", what, errors.Join(errShort, p.err), len(p.rest))
}

// until is the end of a gate, +Inf for one without.
func until(ms float64) float64 {
	if ms >= float64(dispatch.Forever.UnixMilli()) {
		return math.Inf(1)
	}
	return ms
}
