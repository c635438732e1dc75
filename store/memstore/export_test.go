package memstore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// SortedSet is the sorted set for its own test.
type SortedSet struct{ set openSet[name] }

// name is a member that is nothing else.
type name string

func (n name) member() string { return string(n) }

// Insert adds a member.
func (s *SortedSet) Insert(score int64, member string) { s.set.insert(score, name(member)) }

// Remove takes a member out.
func (s *SortedSet) Remove(score int64, member string) { s.set.remove(score, name(member)) }

// Len is the number of members.
func (s *SortedSet) Len() int { return s.set.len() }

// First gives the first member; ok is false when the set is empty.
func (s *SortedSet) First() (score int64, member string, ok bool) {
	e, ok := s.set.first()
	return e.score, string(e.value), ok
}

// FirstFrom gives the first member at or after score.
func (s *SortedSet) FirstFrom(score int64) (found int64, member string, ok bool) {
	e, ok := s.set.firstFrom(score)
	return e.score, string(e.value), ok
}

// Last gives the last member.
func (s *SortedSet) Last() (score int64, member string, ok bool) {
	e, ok := s.set.last()
	return e.score, string(e.value), ok
}

// Oldest gives the member that waits longest over all bands.
func (s *SortedSet) Oldest() (score int64, member string, ok bool) {
	e, ok := s.set.oldest()
	return e.score, string(e.value), ok
}

// UpTo counts the members of at most a score.
func (s *SortedSet) UpTo(score int64) int { return s.set.upTo(score) }

// InBand counts the members of a score's band.
func (s *SortedSet) InBand(score int64) int { return s.set.inBand(score) }

// Members lists all members in order.
func (s *SortedSet) Members() []string {
	var members []string
	for e := range s.set.from(0) {
		members = append(members, string(e.value))
	}
	return members
}

// After lists the members behind a place.
func (s *SortedSet) After(score int64, member string) []string {
	var members []string
	for e := range s.set.after(score, member) {
		members = append(members, string(e.value))
	}
	return members
}

// BandScore is the score of a band and since.
func BandScore(band, since int64) int64 { return band<<bandShift + since }

// HasGhosts reports whether records were removed by hand while sets name them.
func (s *Store) HasGhosts() bool {
	for _, sh := range s.shards {
		if len(sh.ghosts) > 0 {
			return true
		}
	}
	return false
}

// Kept is how many records, stray locks, grants, queues and holders all shards
// keep.
func (s *Store) Kept() (records, locks, grants, queues, holders int) {
	for _, sh := range s.shards {
		sh.begin()
		records += sh.records.len()
		locks += len(sh.strays)
		grants += sh.grants.len()
		for _, used := range sh.used {
			grants += len(used.has)
		}
		queues += len(sh.queues)
		holders += sh.holders.len()
		sh.end()
	}
	return records, locks, grants, queues, holders
}

// Table is the table of records and grants for its own test: of strings.
type Table struct{ table table[string, *string] }

// Add takes in a key that it does not have.
func (t *Table) Add(key string) { t.table.add(key, &key) }

// Remove takes a key out.
func (t *Table) Remove(key string) { t.table.remove(key) }

// Has reports whether the table finds the key.
func (t *Table) Has(key string) bool {
	v := t.table.get(key)
	return v != nil && *v == key
}

// Keys lists the keys, and their number as the table has it.
func (t *Table) Keys() (keys []string, size int) {
	for _, v := range t.table.values {
		if v != nil {
			keys = append(keys, *v)
		}
	}
	return keys, t.table.len()
}

// CutSnapshots makes the pages of snapshots small.
func (s *Store) CutSnapshots(items, bytes int) { s.pages = pages{items: items, bytes: bytes} }

// Digest is a sum over all that the store keeps, as normalized has it.
func (s *Store) Digest() (uint64, error) {
	var sum uint64
	lines, err := s.Items()
	for _, line := range lines {
		hash := sha256.Sum256([]byte(line))
		sum += binary.LittleEndian.Uint64(hash[:])
	}
	return sum, err
}

// Items describes what the store keeps, to find what differs.
func (s *Store) Items() (lines []string, err error) {
	var left []byte
	err = s.Snapshot(func() {}, func(piece []byte) error {
		left = append(left, piece...)
		for {
			kind, shard, fields, rest, ok := cutItem(left)
			if !ok {
				return nil
			}
			if same := normalized(kind, fields); same != nil {
				lines = append(lines, fmt.Sprintf("%d of %d: %q", kind, shard, same))
			}
			left = rest
		}
	})
	slices.Sort(lines)
	return lines, err
}

// normalized leaves out of an item what a store that was made of it may have otherwise: when a collector was seen, and what it
// sends with each beat, which the journal does without; the instant of the last call; and the next grant of a queue, which is cut to
// the longest delay when the queue is placed.
func normalized(kind itemKind, fields []byte) []byte {
	c, w := codec.Reader(fields), codec.Writer(nil)
	switch kind {
	case itemStore:
		return nil
	case itemCollector:
		var k collector
		collectorFields(c, &k)
		k.seen = 0
		k.info = dispatch.CollectorInfo{ID: k.info.ID, Session: k.info.Session, Ended: k.info.Ended}
		collectorFields(w, &k)
	case itemQueue:
		var q queue
		queueFields(c, &q, 0)
		q.nextGrant = 0
		if !q.hasGates(0) {
			return nil
		}
		queueFields(w, &q, 0)
	case itemTask:
		r, lane, grant := new(record), int64(0), uint64(0)
		codec.Text(c, 1, &r.id)
		c.Part(2, true, func(c *codec.Codec) { taskBody(c, r, &lane) })
		c.Part(3, true, func(c *codec.Codec) { taskState(c, r, &grant) })
		c.Part(4, true, func(c *codec.Codec) { taskDetails(c, r) })
		r.paced = 0
		codec.Text(w, 1, &r.id)
		w.Part(2, true, func(c *codec.Codec) { taskBody(c, r, &lane) })
		w.Part(3, true, func(c *codec.Codec) { taskState(c, r, &grant) })
		w.Part(4, true, func(c *codec.Codec) { taskDetails(c, r) })
	default:
		return fields
	}
	return w.Buffer()
}

// Described describes a line of Items.
func Described(line string) string {
	var kind itemKind
	var shard int
	var fields []byte
	if _, err := fmt.Sscanf(line, "%d of %d: %q", &kind, &shard, &fields); err != nil || kind != itemTask {
		return line
	}
	r, c, lane, grant := new(record), codec.Reader(fields), int64(0), uint64(0)
	codec.Text(c, 1, &r.id)
	c.Part(2, false, func(c *codec.Codec) { taskBody(c, r, &lane) })
	c.Part(3, false, func(c *codec.Codec) { taskState(c, r, &grant) })
	c.Part(4, false, func(c *codec.Codec) { taskDetails(c, r) })
	l, d := r.lease, r.details
	r.lease, r.details = nil, nil
	return fmt.Sprintf("task %+v lane %d grant %d lease %+v details %+v", *r, lane, grant, l, d)
}

// TakeUnrecorded takes over what no journal has of another store: leaders, when the shards were swept, and when and how
// collectors were seen.
func (s *Store) TakeUnrecorded(other *Store) {
	s.leaders = other.leaders
	for i, sh := range s.shards {
		sh.sweptAt = other.shards[i].sweptAt
	}
	for c := range other.collectors.seen.from(0) {
		s.collectors.put(new(*c.value))
	}
}
