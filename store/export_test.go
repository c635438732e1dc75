package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
)

// Kept is how many records, stray locks, and grants of client tokens in use or used before are kept.
func (s *Store) Kept() (records, locks, grants int, err error) {
	var left []byte
	err = s.Snapshot(backend.AllShards, backend.Snapshot{Write: func(piece []byte) error {
		left = append(left, piece...)
		for {
			kind, _, _, rest, ok := codec.CutItem(left)
			if !ok {
				return nil
			}
			switch kind {
			case codec.Task:
				records++
			case codec.Stray:
				locks++
			case codec.Grant, codec.Used:
				grants++
			}
			left = rest
		}
	}})
	return records, locks, grants, err
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
func (s *Store) Items() (lines []string, err error) { return s.items(normalized) }

// ExactItems describes what the store keeps, as it does.
func (s *Store) ExactItems() (lines []string, err error) {
	return s.items(func(_ codec.Kind, buf []byte) []byte { return buf })
}

func (s *Store) items(as func(codec.Kind, []byte) []byte) (lines []string, err error) {
	var left []byte
	to := backend.Snapshot{Write: func(piece []byte) error {
		left = append(left, piece...)
		for {
			kind, shard, fields, rest, ok := codec.CutItem(left)
			if !ok {
				return nil
			}
			if same := as(kind, fields); same != nil {
				lines = append(lines, fmt.Sprintf("%d of %d: %q", kind, shard, same))
			}
			left = rest
		}
	}}
	if s.archive != nil {
		to.Expand = func(each func([]byte) error) error {
			return s.archive.Each(context.Background(), backend.AllShards, each) //nolint:forbidigo // its callers have none
		}
	}
	err = s.Snapshot(backend.AllShards, to)
	slices.Sort(lines)
	return lines, err
}

// fieldsOf are the fields of an item or a part by their numbers, each as it was written; of a number that comes several times
// they are all in one.
func fieldsOf(buf []byte) map[protowire.Number][]byte {
	fields := make(map[protowire.Number][]byte)
	for len(buf) > 0 {
		number, _, n := protowire.ConsumeField(buf)
		if n < 0 {
			panic("an item is damaged")
		}
		fields[number] = append(fields[number], buf[:n]...)
		buf = buf[n:]
	}
	return fields
}

// together puts fields together again.
func together(fields map[protowire.Number][]byte) (buf []byte) {
	for _, number := range slices.Sorted(maps.Keys(fields)) {
		buf = append(buf, fields[number]...)
	}
	return buf
}

// normalized leaves out of an item what a store that was made of it may have otherwise: when a collector was seen, and what it
// sends with each beat, which the backend does without; the instant of the last call; and the next grant of a queue, which is cut to
// the longest delay when the queue is placed.
func normalized(kind codec.Kind, buf []byte) []byte {
	fields := fieldsOf(buf)
	switch kind {
	case codec.Store:
		return nil
	case codec.Collector: // its id, session, end, whether the session is fresh, when it was first seen, replaced sessions
		maps.DeleteFunc(fields, func(number protowire.Number, _ []byte) bool {
			return !slices.Contains([]protowire.Number{1, 2, 12, 13, 14, 16, 18}, number)
		})
	case codec.Queue:
		delete(fields, 2)
		if !slices.ContainsFunc([]protowire.Number{3, 5, 6, 7, 8}, func(gate protowire.Number) bool { return fields[gate] != nil }) {
			return nil // when its block began means nothing without the block
		}
	case codec.Task:
		_, _, tag := protowire.ConsumeTag(fields[3])
		content, _ := protowire.ConsumeBytes(fields[3][tag:])
		state := fieldsOf(content)
		delete(state, 7)
		fields[3] = together(state)
	}
	return together(fields)
}

// TakeUnrecorded takes over what no backend has of another store: when the shards were swept, and when and how
// collectors were seen.
func (s *Store) TakeUnrecorded(other *Store) {
	for i, sh := range s.shards {
		sh.TakeOver(other.shards[i].Shard)
	}
	for c := range other.collectors.seen.From(0) {
		s.collectors.put(new(*c.Value))
	}
}

// OpenKeyed makes the store of what was loaded, and begins to use it, as [Open] does with a term that is keyed.
func (l *Loader) OpenKeyed(term backend.Term) (*Store, error) {
	s, err := l.Store()
	if err != nil {
		return nil, err
	}
	s.term, s.clock.keyed = term, true
	for _, sh := range s.shards {
		sh.Keyed = true
		sh.LocksLost()
	}
	l.opened = make(chan struct{})
	close(l.opened)
	return s, nil
}

// Unlocked is [backend.Owner.Unlocked] of the store.
func (l *Loader) Unlocked(shard int, locks []backend.Unlocked) (backend.Commit, error) {
	return l.unlocked(shard, locks)
}

// End makes the shards of what was loaded, and nothing else that [Loader.Store] does.
func (l *Loader) End() error {
	for number := range l.shards {
		if err := l.end(number); err != nil {
			return err
		}
	}
	return nil
}

// Queues is how many queues are in memory of what was loaded.
func (l *Loader) Queues() (n int64) {
	for _, sh := range l.store.shards {
		var stats dispatch.StoreStats
		sh.AddStats(&stats)
		n += stats.Queues
	}
	return n
}
