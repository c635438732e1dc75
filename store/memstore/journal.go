package memstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// Journal records the commands of a [Store], so that another one that replays them comes to the same state
// ([Store.Replay]). Every change of a store is a command; a command that changes nothing is not recorded.
type Journal interface {
	// Reserve makes room for an entry of at most n bytes. It is called before the command takes effect; an error
	// refuses the command. grows: the command adds data, and must leave room for those that end work, remove data or
	// stop something.
	Reserve(n int, grows bool) error
	// Append records an entry in the reserved room, and returns what waits until the entry is durable. Entries are
	// appended in the order in which the commands take effect. A nil entry only gives the room back.
	Append(entry []byte, reserved int) Commit
}

// Commit is an entry on its way to be durable.
type Commit interface {
	// Wait returns nil when the entry and all before it are durable.
	Wait(ctx context.Context) error
}

// durable returns when what a call has seen is durable.
func durable(ctx context.Context, seen Commit) error {
	if seen == nil {
		return nil
	}
	return seen.Wait(ctx)
}

// MachineVersion is raised with every change of what a command does: an entry of another version cannot be replayed.
const MachineVersion = 4

// An entry begins with a head of fixed size: the version of the machine, the command, the part of the store that it
// changes, the instant in microseconds since 1970, and the check of its results. Numbers have their lowest byte first.
const (
	versionAt = 0
	opAt      = 2
	partAt    = 3
	instantAt = 5
	checkAt   = 13
	headSize  = 17
)

// The parts of a store other than its shards, which are numbered from 0.
const (
	accessPart     = math.MaxUint16 - 3
	sourcesPart    = math.MaxUint16 - 2
	collectorsPart = math.MaxUint16 - 1
	allShards      = math.MaxUint16
)

// command is one change of a part of the store: given its inputs, the instant and the state, its effect is always the
// same.
type command interface {
	// op is its number in the journal.
	op() op
	// inputs writes its inputs, or reads them.
	inputs(c *codec.Codec)
	// results adds to the check what came of it.
	results(sum *checksum)
}

func encodeEntry(buf []byte, number int, micros uint64, c command) []byte {
	buf = binary.LittleEndian.AppendUint16(buf, MachineVersion)
	buf = append(buf, byte(c.op()))
	buf = binary.LittleEndian.AppendUint16(buf, uint16(number))
	buf = binary.LittleEndian.AppendUint64(buf, micros)
	buf = binary.LittleEndian.AppendUint32(buf, 0)
	w := codec.Writer(buf)
	c.inputs(w)
	return w.Buffer()
}

// checksum is a CRC-32C of the results of a command.
type checksum uint32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s *checksum) text(text string) {
	*s = checksum(crc32.Update(uint32(*s), castagnoli, []byte(text)))
}

func (s *checksum) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	*s = checksum(crc32.Update(uint32(*s), castagnoli, b[:]))
}

func (s *checksum) truth(is bool) {
	if is {
		s.number(1)
	} else {
		s.number(0)
	}
}

func checkOf(c command) uint32 {
	var sum checksum
	c.results(&sum)
	return uint32(sum)
}

// Replay makes the change of an entry again, at the instant of that time. Entries are replayed in their order, before
// any other call, on a store with the shards and the state that the first store had. An error, such as that the results
// differ, ends the use of the store.
func (s *Store) Replay(entry []byte) error {
	if len(entry) < headSize {
		return fmt.Errorf("an entry of %d bytes is shorter than its head", len(entry))
	}
	if version := binary.LittleEndian.Uint16(entry[versionAt:]); version != MachineVersion {
		return fmt.Errorf("%w: it is of version %d of the commands, this program knows version %d: start the release that wrote it, and stop it by SIGTERM",
			dispatch.ErrStoreMismatch, version, MachineVersion)
	}
	at := time.UnixMicro(int64(binary.LittleEndian.Uint64(entry[instantAt:])))
	c, err := decodeCommand(op(entry[opAt]), entry[headSize:])
	if err != nil {
		return err
	}
	if err := s.replay(int(binary.LittleEndian.Uint16(entry[partAt:])), at, c); err != nil {
		return err
	}
	if got, want := checkOf(c), binary.LittleEndian.Uint32(entry[checkAt:]); got != want {
		return fmt.Errorf("command %s at %s has other results than it had: check %08x, was %08x", c.op(), at.UTC().Format(time.RFC3339Nano), got, want)
	}
	return nil
}

// replay runs a command on the part with that number.
func (s *Store) replay(number int, at time.Time, c command) error {
	switch c := c.(type) {
	case shardCommand:
		if number >= len(s.shards) {
			return fmt.Errorf("command %s is of shard %d, there are %d", c.op(), number, len(s.shards))
		}
		sh := s.shards[number]
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.setInstant(at)
		sh.run(c)
		clear(sh.soonest)
	case storeCommand:
		s.lockAll()
		defer s.unlockAll()
		for _, sh := range s.shards {
			sh.setInstant(at)
		}
		s.runAll(c)
	case sourceCommand:
		s.mu.Lock()
		defer s.mu.Unlock()
		c.run(&s.sourceBook)
	case collectorCommand:
		s.collectors.mu.Lock()
		defer s.collectors.mu.Unlock()
		c.run(&s.collectors)
	case accessCommand:
		s.access.mu.Lock()
		defer s.access.mu.Unlock()
		c.run(&s.access)
	default:
		return fmt.Errorf("command %s is of no part", c.op())
	}
	return nil
}
