package redisstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// Finding is a disagreement between the records of a store and what is derived from them.
type Finding struct {
	Kind  string `json:"kind"`
	Shard int    `json:"shard"`
	// Name of the task, queue, lane, source, key or count.
	Name string `json:"name"`
	Text string `json:"text"`
	// Repaired is false in a check without repair, and where what was lost is in no other key.
	Repaired bool `json:"repaired"`
}

// CheckReport is what a check has found.
type CheckReport struct {
	Kinds  []CheckKind `json:"kinds"`
	Tasks  int64       `json:"tasks"`  // records that were read in the last pass
	Queues int64       `json:"queues"` // that were checked in the last pass
	Passes int         `json:"passes"`
	// Skipped are those that the last pass did not check in whole, and why: they have too many parts, or changed meanwhile.
	Skipped []Finding `json:"skipped"`
}

// CheckKind is the findings of one kind.
type CheckKind struct {
	Kind     string    `json:"kind"`
	Found    int64     `json:"found"`
	Repaired int64     `json:"repaired"`
	Examples []Finding `json:"examples"` // the first ones
}

// Left is how many findings were not repaired.
func (r *CheckReport) Left() (n int64) {
	for _, k := range r.Kinds {
		n += k.Found - k.Repaired
	}
	return n
}

const (
	// checkItems bounds the items of one script of a check.
	checkItems = 100
	// checkPasses bounds the passes of a repair. One repair may show the next: entries of a queue are looked at once it
	// can be read.
	checkPasses = 6
	// checkExamples bounds the examples of a kind.
	checkExamples = 10
	// checkScan is how many keys one SCAN looks at.
	checkScan = 1000
)

// Check compares the records of tasks with the indexes, queues and counts that are derived from them, and repairs what
// disagrees if it is asked to. Each finding and its repair is one step of a script on one task, queue or source, so that
// dispatchers may run meanwhile. A repair passes over the store until a pass repairs nothing.
func (s *Store) Check(ctx context.Context, repair bool) (*CheckReport, error) {
	report, kinds := new(CheckReport), make(map[string]*CheckKind)
	for {
		pass := &checkPass{Store: s, repair: repair, kinds: make(map[string]*CheckKind), found: make(map[uint64]bool), skipped: []Finding{}}
		if err := pass.run(ctx); err != nil {
			return nil, fmt.Errorf("check the store: %w", err)
		}
		report.Passes++
		report.Tasks, report.Queues, report.Skipped = pass.tasks, pass.queues, pass.skipped
		last := pass.repaired == 0 || report.Passes == checkPasses
		for _, k := range pass.kinds {
			if last {
				addKind(kinds, *k)
			} else {
				addKind(kinds, k.repaired()) // what is left is found again
			}
		}
		if last {
			break
		}
	}
	report.Kinds = []CheckKind{}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		report.Kinds = append(report.Kinds, *kinds[name])
	}
	return report, nil
}

// repaired is the kind without what is left.
func (k CheckKind) repaired() CheckKind {
	k.Found = k.Repaired
	k.Examples = slices.DeleteFunc(slices.Clone(k.Examples), func(f Finding) bool { return !f.Repaired })
	return k
}

// addKind adds findings to those of their kind.
func addKind(kinds map[string]*CheckKind, more CheckKind) {
	if more.Found == 0 {
		return
	}
	k := kinds[more.Kind]
	if k == nil {
		k = &CheckKind{Kind: more.Kind, Examples: []Finding{}}
		kinds[more.Kind] = k
	}
	k.Found += more.Found
	k.Repaired += more.Repaired
	k.Examples = append(k.Examples, more.Examples[:min(len(more.Examples), checkExamples-len(k.Examples))]...)
}

// checkPass is one pass over all shards.
type checkPass struct {
	*Store
	repair                  bool
	sources                 map[string]*dispatch.Source // by uid
	kinds                   map[string]*CheckKind
	found                   map[uint64]bool // hashes of the findings: some are found in two ways
	skipped                 []Finding
	repaired, tasks, queues int64
}

func (p *checkPass) run(ctx context.Context) error {
	if err := p.checkHomes(ctx); err != nil {
		return err
	}
	if err := p.checkShared(ctx); err != nil {
		return err
	}
	for shard := range p.scripts.Shards {
		c := &shardCheck{checkPass: p, shard: shard, names: p.keys.Shard(shard)}
		if err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *checkPass) find(f Finding) {
	if f.Kind == "skipped" {
		p.skipped = append(p.skipped, f)
		return
	}
	hash := maphash.Comparable(checkSeed, f)
	if p.found[hash] {
		return
	}
	p.found[hash] = true
	one := CheckKind{Kind: f.Kind, Found: 1, Examples: []Finding{f}}
	if f.Repaired {
		p.repaired++
		one.Repaired = 1
	}
	addKind(p.kinds, one)
}

// checkSeed is of the hashes that stand for what was seen: two of a billion names have one with a chance of one in 40.
var checkSeed = maphash.MakeSeed()

// checkItem is what a script of a check looks at: its arguments, and its name for a finding.
type checkItem struct {
	name string
	args []any
}

// page runs a script on some items, and takes what it found. What the script returns behind that, the caller reads. A
// value that the script cannot read is a finding of its item.
func (p *checkPass) page(ctx context.Context, shard int, name script.Name, first []any, items []checkItem, more func(*pack.Reply)) error {
	if len(items) == 0 {
		return nil
	}
	args := append([]any{p.repair}, first...)
	for _, item := range items {
		args = append(args, item.args...)
	}
	r, err := p.scripts.Run(ctx, "check", name, script.Call{Shard: shard, Args: args})
	switch {
	case err == nil:
	case ctx.Err() != nil || errors.Is(err, dispatch.ErrStoreUnavailable) || errors.Is(err, dispatch.ErrStoreReadOnly) || errors.Is(err, dispatch.ErrStoreFull):
		return err
	case len(items) == 1:
		p.find(Finding{Kind: "damaged", Shard: shard, Name: items[0].name, Text: fmt.Sprintf("%.300s", err)})
		return nil
	default:
		half := len(items) / 2
		if err := p.page(ctx, shard, name, first, items[:half], more); err != nil {
			return err
		}
		return p.page(ctx, shard, name, first, items[half:], more)
	}
	found := r
	if more != nil {
		found = r.Array()
	}
	for found.More() {
		p.find(Finding{Kind: found.Text(), Shard: shard, Name: found.Text(), Text: found.Text(), Repaired: found.Bool()})
	}
	r.Join(found)
	if more != nil {
		more(r)
	}
	return r.Err
}

// pages runs a script on all items, some at a time.
func (p *checkPass) pages(ctx context.Context, shard int, name script.Name, items []checkItem, size int) error {
	for page := range slices.Chunk(items, size) {
		if err := p.page(ctx, shard, name, nil, page, nil); err != nil {
			return err
		}
	}
	return nil
}

// scan gives the keys of a shard that match, some at a time. It gives each key that is there the whole time, once.
func (p *checkPass) scan(ctx context.Context, shard int, match string, each func(names []string) error) error {
	return p.scanBy(ctx, shard, func(node redis.UniversalClient, cursor uint64) ([]string, uint64, error) {
		return node.Scan(ctx, cursor, string(p.keys.Shard(shard))+match, checkScan).Result()
	}, each)
}

func (p *checkPass) scanBy(ctx context.Context, shard int, step func(redis.UniversalClient, uint64) ([]string, uint64, error), each func([]string) error) error {
	type page struct {
		names []string
		next  uint64
	}
	seen := make(map[uint64]bool) // hashes of what was given: SCAN may give it again
	for cursor := uint64(0); ; {
		found, err := script.Retry(ctx, "scan", func() (page, error) {
			node, err := p.node(ctx, shard)
			if err != nil {
				return page{}, err
			}
			names, next, err := step(node, cursor)
			return page{names, next}, err
		})
		if err != nil {
			return err
		}
		fresh := slices.DeleteFunc(found.names, func(name string) bool {
			hash := maphash.String(checkSeed, name)
			again := seen[hash]
			seen[hash] = true
			return again
		})
		for names := range slices.Chunk(fresh, checkItems) {
			if err := each(names); err != nil {
				return err
			}
		}
		if cursor = found.next; cursor == 0 {
			return nil
		}
	}
}

// node is the client of the server that has the shard: a cursor of a scan is one of its server.
func (p *checkPass) node(ctx context.Context, shard int) (redis.UniversalClient, error) {
	if cluster, ok := p.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, p.keys.Shard(shard).Shard())
	}
	return p.client, nil
}

// Types of keys with members.
const (
	typeSet = iota
	typeZSet
	typeHash
)

// members gives the members of a SET or a ZSET, or the fields of a HASH, some at a time.
func (p *checkPass) members(ctx context.Context, shard int, name string, of int, each func([]string) error) error {
	return p.scanBy(ctx, shard, func(node redis.UniversalClient, cursor uint64) ([]string, uint64, error) {
		switch of {
		case typeSet:
			return node.SScan(ctx, name, cursor, "", checkScan).Result()
		case typeZSet:
			return everySecond(node.ZScan(ctx, name, cursor, "", checkScan).Result())
		default:
			return everySecond(node.HScan(ctx, name, cursor, "", checkScan).Result())
		}
	}, each)
}

// everySecond leaves scores, or values of fields, out of what a scan has found.
func everySecond(flat []string, next uint64, err error) ([]string, uint64, error) {
	names := make([]string, 0, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		names = append(names, flat[i])
	}
	return names, next, err
}
