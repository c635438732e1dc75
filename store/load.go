package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Loader makes a store of items ([backend.Items]): those of a snapshot, and then those of the groups that came after it. Of an item
// that comes several times the last one counts. What follows from the items, such as orders and counts, is made at the end, or before
// by [Loader.Warm].
type Loader struct {
	config Config
	store  *Store
	shards []*machine.Loading // nil: they are placed
	micros uint64             // of the snapshot or the last group
	tasks  int                // of the snapshot
	ended  bool               // it has its end
	items  []item             // room for those of the next piece
	begun  bool               // it has its begin

	one    *machine.Shard // that is loaded, of a store that is there; nil: all are
	opened chan struct{}  // closed when a store that is keyed is there
	making sync.Mutex     // held while that is made
}

// NewLoader makes a loader of an empty store. [Config.Backend] keeps what the store changes once it is loaded.
func NewLoader(config Config) *Loader { return &Loader{config: config, opened: make(chan struct{})} }

// Begin implements [backend.Items].
func (l *Loader) Begin(shards int) error {
	if l.one != nil {
		l.beginOne()
		return nil
	}
	l.store, l.shards, l.micros, l.tasks, l.ended, l.begun = nil, nil, 0, 0, false, false
	if shards == 0 {
		return nil
	}
	return l.begin(shards)
}

// item is an item of a piece. Most are tasks, which take most of the time that a load takes: all cores read them.
type item struct {
	kind   codec.Kind
	shard  int
	fields []byte
	task   machine.LoadedTask // that was read
}

// Add implements [backend.Items]: it takes the next piece of what [Store.Snapshot] wrote.
func (l *Loader) Add(piece []byte) error {
	items := l.items[:0]
	for len(piece) > 0 {
		kind, shard, fields, rest, ok := codec.CutItem(piece)
		if !ok {
			return errors.New("an item is cut off")
		}
		if len(items) < cap(items) {
			items = items[:len(items)+1] // with the room that its task had
		} else {
			items = append(items, item{})
		}
		last := &items[len(items)-1]
		last.kind, last.shard, last.fields = kind, shard, fields
		piece = rest
	}
	l.items = items
	readTasks(items)
	for i := range items {
		if err := l.inSnapshot(&items[i]); err != nil {
			return fmt.Errorf("item of kind %d of shard %d: %w", items[i].kind, items[i].shard, err)
		}
	}
	return nil
}

// readTasks reads the tasks among the items.
func readTasks(items []item) {
	var parts sync.WaitGroup
	for part := range slices.Chunk(items, len(items)/runtime.GOMAXPROCS(0)+1) {
		parts.Go(func() {
			for i := range part {
				if part[i].kind == codec.Task {
					part[i].task.Read(part[i].fields)
				}
			}
		})
	}
	parts.Wait()
}

// Group implements [backend.Items].
func (l *Loader) Group(group []byte) error {
	if len(group) < groupHead {
		return fmt.Errorf("a group of %d bytes is shorter than its head", len(group))
	}
	l.micros = binary.LittleEndian.Uint64(group)
	for rest := group[groupHead:]; len(rest) > 0; {
		kind, shard, fields, after, ok := codec.CutItem(rest)
		if !ok {
			return errors.New("an item of a group is cut off")
		}
		if err := l.item(kind, shard, fields); err != nil {
			return fmt.Errorf("item of kind %d of shard %d: %w", kind, shard, err)
		}
		rest = after
	}
	for number, loading := range l.shards {
		if loading == nil {
			continue
		}
		if err := loading.Placed(l.lastInstant()); err != nil {
			return fmt.Errorf("shard %d: %w", number, err)
		}
	}
	return nil
}

// Warm puts what was loaded so far in its place, so that [Loader.Store] returns soon, and the groups that follow keep it so. Before the
// first call the loader needs all groups of which a piece has something: no item may name one that is missing. Who waits for the end
// calls it again each second or so, since tasks become due meanwhile, by [Config.Now].
//
// The error wraps [backend.ErrDamaged]. After it, and after an error of Group, the loader has to begin anew.
func (l *Loader) Warm() error {
	for number, loading := range l.shards {
		if loading == nil {
			continue
		}
		if err := loading.Warm(l.store.clock.now()); err != nil {
			return fmt.Errorf("%w: shard %d: %w", backend.ErrDamaged, number, err)
		}
	}
	l.items = nil
	l.collect()
	return nil
}

// inSnapshot takes an item of a snapshot, which has a begin and an end.
func (l *Loader) inSnapshot(i *item) error {
	c, kind := codec.Reader(i.fields), i.kind
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
	case kind == codec.Task && i.shard < len(l.shards) && l.shards[i.shard] != nil:
		l.tasks++
		return l.shards[i.shard].Take(&i.task, i.fields)
	}
	return l.item(kind, i.shard, i.fields)
}

// begin makes the empty store, unless it is there.
func (l *Loader) begin(shards int) error {
	if l.store != nil && len(l.shards) == shards {
		return nil
	}
	if l.store != nil {
		return fmt.Errorf("there are %d shards, not %d", shards, len(l.shards))
	}
	if shards == 0 {
		return errors.New("it has no shards")
	}
	s, err := newStore(shards, l.config)
	if err != nil {
		return err
	}
	l.store = s
	for _, sh := range s.shards {
		sh.Archived = sh.Archived || s.backend == nil // of a backend that nobody owns, which may have tasks apart
		l.shards = append(l.shards, machine.NewLoading(sh.Shard))
	}
	return nil
}

// item takes an item, or the removal of one.
func (l *Loader) item(kind codec.Kind, shard int, fields []byte) error {
	c := codec.Reader(fields)
	removed := kind&codec.Removed != 0
	switch kind &^= codec.Removed; {
	case kind == codec.LockItem: // it follows from the task
		return nil
	case kind.OfStore():
		l.ofStore(kind, removed, c)
	case shard >= len(l.shards) || l.shards[shard] == nil:
		return fmt.Errorf("there are %d shards, or it is loaded with another one", len(l.shards))
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
	if removed && kind != codec.Audit {
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
		if auditFields(c, a); !removed { // else it was the oldest, which went when the newest came
			s.access.add(a)
		}
	case codec.Notice:
		var record []byte
		if removed {
			delete(s.access.notices, name)
		} else if noticeFields(c, &name, &record); true {
			s.access.notices[name] = record
		}
	default:
		c.Failf("there is no such kind")
	}
}

// Ended implements [backend.Items].
func (l *Loader) Ended() error {
	if !l.ended {
		return errors.New("the end of the snapshot is missing")
	}
	return nil
}

// Store is what was loaded. The error wraps [backend.ErrDamaged].
func (l *Loader) Store() (*Store, error) {
	s := l.store
	if l.shards == nil && s != nil {
		return s, nil
	}
	if s == nil {
		return nil, fmt.Errorf("%w: it has no items", backend.ErrDamaged)
	}
	for number := range l.shards {
		if err := l.end(number); err != nil {
			return nil, err
		}
	}
	s.rules.version, s.holds.version = s.shards[0].Versions()
	l.shards, l.items = nil, nil
	l.collect()
	return s, nil
}

// end makes a shard of its items.
func (l *Loader) end(number int) error {
	s := l.store
	if err := l.shards[number].End(s.clock.now(), s.rules.rules.Get, s.backend != nil); err != nil {
		return fmt.Errorf("%w: shard %d: %w", backend.ErrDamaged, number, err)
	}
	return nil
}

// collect gives back what reading has left over, which is as large as what was read. The runtime would give it back minutes later,
// and the next collection, which needs it again, comes when the heap has doubled.
func (l *Loader) collect() {
	if l.tasks > manyTasks {
		debug.FreeOSMemory()
	}
	l.tasks = 0
}

// manyTasks are worth a collection of garbage.
const manyTasks = 100_000

// Place puts what was loaded in its places, and returns the number of shards. The error wraps [backend.ErrDamaged].
func (l *Loader) Place() (shards int, err error) {
	s, err := l.Store()
	if err != nil {
		return 0, err
	}
	return s.Shards(), nil
}

// forget is [backend.Owner.Forget] of the store.
func (l *Loader) forget(ctx context.Context, shard int, keys [][16]byte) error {
	return l.store.shards[shard].do(ctx, &machine.Forget{Keys: keys})
}

// Snapshot writes what was loaded, and what the store has changed since: see [Store.Snapshot].
func (l *Loader) Snapshot(shard int, to backend.Snapshot) error {
	s, err := l.Store()
	if err != nil {
		return err
	}
	if s.clock.keyed && s.shards[shard].away.Load() {
		return fmt.Errorf("%w: shard %d is not in memory yet", dispatch.ErrStoreUnavailable, shard)
	}
	return s.Snapshot(shard, to)
}

// leased reports whether leases stand in what was loaded.
func (l *Loader) leased() bool { return l.store.hasLeases() }

// lastInstant is the time of the last group, or of the snapshot.
func (l *Loader) lastInstant() time.Time { return time.UnixMicro(int64(l.micros)) }
