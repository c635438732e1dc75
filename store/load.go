package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Loader makes a store of items: those of a snapshot, and then those of the groups that came after it. Of an item that comes several
// times the last one counts. What follows from the items, such as orders and counts, is made at the end.
type Loader struct {
	config Config
	store  *Store
	shards []*machine.Loading
	left   []byte // the begin of an item, of which the rest is yet to come
	micros uint64 // of the snapshot or the last group
	tasks  int    // of the snapshot
	ended  bool   // it has its end
	begun  bool   // it has its begin
}

// NewLoader begins to load a store. A snapshot, if one comes, says how many shards it has; another number in the config is an
// error.
func NewLoader(config Config) *Loader { return &Loader{config: config} }

// Add takes the next piece of what [Store.Snapshot] wrote, cut anywhere. The error wraps [ErrItems].
func (l *Loader) Add(piece []byte) error {
	rest := slices.Concat(l.left, piece)
	for {
		kind, shard, fields, after, ok := codec.CutItem(rest)
		if !ok {
			l.left = rest
			return nil
		}
		if err := l.inSnapshot(kind, shard, fields); err != nil {
			return fmt.Errorf("%w: item of kind %d of shard %d: %w", ErrItems, kind, shard, err)
		}
		rest = after
	}
}

// Group takes a group that came after the snapshot, if there is one. The error wraps [ErrItems].
func (l *Loader) Group(group []byte) error {
	if len(group) < groupHead {
		return fmt.Errorf("%w: a group of %d bytes is shorter than its head", ErrItems, len(group))
	}
	if l.store == nil {
		if err := l.begin(l.config.Shards); err != nil {
			return err
		}
	}
	l.micros = binary.LittleEndian.Uint64(group)
	for rest := group[groupHead:]; len(rest) > 0; {
		kind, shard, fields, after, ok := codec.CutItem(rest)
		if !ok {
			return fmt.Errorf("%w: an item of a group is cut off", ErrItems)
		}
		if err := l.item(kind, shard, fields); err != nil {
			return fmt.Errorf("%w: item of kind %d of shard %d: %w", ErrItems, kind, shard, err)
		}
		rest = after
	}
	return nil
}

// inSnapshot takes an item of a snapshot, which has a begin and an end.
func (l *Loader) inSnapshot(kind codec.Kind, shard int, fields []byte) error {
	c := codec.Reader(fields)
	switch {
	case l.ended:
		return errors.New("it is behind the end")
	case kind == codec.Store && !l.begun:
		var shards int
		if storeFields(c, &shards, &l.micros); c.Known() != nil {
			return c.Known()
		}
		l.begun = true
		return l.begin(shards)
	case !l.begun:
		return errors.New("the first one is not the store")
	case kind == codec.End:
		var tasks int
		if codec.Int(c, 1, &tasks); tasks != l.tasks {
			c.Failf("there are %d tasks, and must be %d", l.tasks, tasks)
		}
		l.ended = true
		return c.Known()
	case kind == codec.Task:
		l.tasks++
	}
	return l.item(kind, shard, fields)
}

// begin makes the empty store.
func (l *Loader) begin(shards int) error {
	shards = cmp.Or(shards, 1)
	if l.config.Shards != 0 && l.config.Shards != shards {
		return fmt.Errorf("%w: it has %d shards, not %d", dispatch.ErrStoreMismatch, shards, l.config.Shards)
	}
	config := l.config
	config.Shards, config.Journal = shards, nil // what is loaded is kept already
	var err error
	if l.store, err = New(config); err != nil {
		return err
	}
	for _, sh := range l.store.shards {
		l.shards = append(l.shards, machine.NewLoading(sh.Shard))
	}
	return nil
}

// item takes an item, or the removal of one.
func (l *Loader) item(kind codec.Kind, shard int, fields []byte) error {
	c := codec.Reader(fields)
	removed := kind&codec.Removed != 0
	switch kind &^= codec.Removed; {
	case kind < codec.Shard:
		l.ofStore(kind, removed, c)
	case shard >= len(l.shards):
		return fmt.Errorf("there are %d shards", len(l.shards))
	case removed:
		l.shards[shard].Remove(kind, c)
	default:
		return l.shards[shard].Read(kind, c)
	}
	return c.Known()
}

// ofStore takes an item that is of no shard.
func (l *Loader) ofStore(kind codec.Kind, removed bool, c *codec.Codec) {
	s, name := l.store, ""
	if removed {
		codec.Text(c, 1, &name)
	}
	switch kind {
	case codec.Rule:
		var rule dispatch.QueueRule
		if removed {
			s.rules.rules.Delete(name)
		} else if ruleFields(c, &rule); true {
			s.rules.rules.Set(rule.Pattern, rule)
		}
	case codec.Hold:
		var hold dispatch.Hold
		if removed {
			delete(s.holds.holds, name)
		} else if holdFields(c, &hold); true {
			s.holds.holds[hold.Key()] = hold
		}
	case codec.KeptSource:
		k := new(keptSource)
		if removed {
			s.sourceBook.remove(name)
		} else if keptSourceFields(c, k); true {
			s.sourceBook.put(k)
		}
	case codec.Collector:
		k := new(collector)
		if removed {
			s.collectors.remove(name)
		} else if collectorFields(c, k); true {
			k.recorded = k.seen
			s.collectors.put(k)
		}
	case codec.Binding:
		b := new(binding)
		if removed {
			s.access.remove(name)
		} else if bindingFields(c, b); true {
			s.access.put(b)
		}
	case codec.Audit:
		a := new(auditEntry)
		if auditFields(c, a); !removed {
			s.access.add(a)
		}
	default:
		c.Failf("there is no such kind")
	}
}

// Ended is nil if a whole snapshot was added.
func (l *Loader) Ended() error {
	if !l.ended || len(l.left) > 0 {
		return fmt.Errorf("%w: the end of the snapshot is missing", ErrItems)
	}
	return nil
}

// Store is what was loaded. The error wraps [ErrItems].
func (l *Loader) Store() (*Store, error) {
	if err := l.Ended(); l.begun && err != nil {
		return nil, err
	}
	if l.store == nil {
		if err := l.begin(l.config.Shards); err != nil {
			return nil, err
		}
	}
	s := l.store
	now := s.clock.now()
	for number, of := range l.shards {
		if err := of.End(now, s.rules.rules.Get, l.config.Journal != nil); err != nil {
			return nil, fmt.Errorf("%w: shard %d: %w", ErrItems, number, err)
		}
	}
	s.rules.version, s.holds.version = s.shards[0].Versions()
	s.clock.journal = l.config.Journal
	// What reading has left over is as large as what was read. The runtime would give it back minutes later, and the next
	// collection, which needs it again, comes when the heap has doubled.
	if l.tasks > manyTasks {
		l.shards = nil
		debug.FreeOSMemory()
	}
	return s, nil
}

// manyTasks are worth a collection of garbage.
const manyTasks = 100_000

// LastInstant is the time of the last group, or of the snapshot.
func (l *Loader) LastInstant() time.Time { return time.UnixMicro(int64(l.micros)) }

// ErrItems is wrapped by errors about items that cannot be read.
var ErrItems = errors.New("the items cannot be read")
