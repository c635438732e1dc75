package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// shardCheck is a pass over one shard: what its names of keys say, and what was counted.
type shardCheck struct {
	*checkPass
	shard int
	names key.Shard

	pools   map[string]bool
	queues  map[string]*queueSeen
	numbers map[string]*sourceSeen // of sources
	lanes   map[string]bool        // that stand in lists, or have settled tasks
	sets    []string               // kind and lane of each ZSET of tasks
	held    []string               // collectors with grants
	ends    []string               // queues that list sources
	moves   map[string]string      // numbers of tasks whose source has another one
	tasks   int64
}

// queueSeen is what was seen of a queue: which sources may have lanes there, and its entries in the lease index.
type queueSeen struct {
	sources         map[string]bool
	leases, orphans int
}

// sourceSeen is what was seen of a source: the uids that have its number, tasks whose source is not known, its counts
// before the tasks were read, and sums of the tasks.
type sourceSeen struct {
	uids    []string
	unowned []string
	counts  string
	sums    [6]int64 // waiting, leased, done, dead, canceled, out
	kept    int64
}

// run looks at sources, then at their queues, lanes and tasks, and then at what is counted of these.
func (c *shardCheck) run(ctx context.Context) error {
	c.pools, c.lanes, c.moves = make(map[string]bool), make(map[string]bool), make(map[string]string)
	c.queues, c.numbers = make(map[string]*queueSeen), make(map[string]*sourceSeen)
	for _, step := range []func(context.Context) error{
		c.readNames, c.readMembers, c.readUIDs, c.checkSources, c.checkQueues, c.checkEntries, c.readCounts, c.checkTasks, c.checkUnowned,
		c.checkBeside, c.checkLanes, c.checkGrants, c.checkCounts,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.checkPass.queues += int64(len(c.queues))
	return nil
}

func (c *shardCheck) queue(name string) *queueSeen {
	q := c.queues[name]
	if q == nil {
		q = &queueSeen{sources: make(map[string]bool)}
		c.queues[name] = q
	}
	return q
}

func (c *shardCheck) source(number string) *sourceSeen {
	s := c.numbers[number]
	if s == nil {
		s = new(sourceSeen)
		c.numbers[number] = s
	}
	return s
}

// lane notes a lane by its name, "<source>:<queue>"; false for what is none.
func (c *shardCheck) lane(name string) bool {
	number, queue, ok := strings.Cut(name, ":")
	if _, err := strconv.ParseUint(number, 10, 32); !ok || err != nil || queue == "" {
		return false
	}
	c.queue(queue).sources[number] = true
	c.source(number)
	return true
}

// otherKinds are kinds of keys that no other key is derived from, or that end by themselves.
var otherKinds = map[string]bool{
	"d": true, "h": true, "lock": true, "keep": true, "uid": true, "cause": true, "source": true, "coll": true, "duty": true,
	"mark": true, "version": true, "shard": true, "picks": true, "holdsby": true, "keeper": true, "acked": true, "filtered": true,
	"named": true, "closed": true, "settings": true, "heldqueues": true, "holds": true, "rules": true, "used": true, "polled": true,
	"kept": true, "pools": true, "leases": true, "forget": true, "queues": true, "idle": true, "sources": true, "pending": true,
	"heldsources": true, "old": true, "colls": true, "seen": true, "ended": true, "absent": true, "bind": true, "audit": true,
}

// readNames reads which queues, lanes, sources and pools there are keys of, and looks at leased tasks.
func (c *shardCheck) readNames(ctx context.Context) error {
	return c.scan(ctx, c.shard, "*", func(names []string) error {
		var ids []string
		for _, name := range names {
			kind, rest, _ := strings.Cut(strings.TrimPrefix(name, string(c.names)), ":")
			switch {
			case kind == "t":
				ids = append(ids, rest)
			case !otherKinds[kind] && !c.note(kind, rest):
				c.find(Finding{Kind: "key", Shard: c.shard, Name: name, Text: "it is of no known kind"})
			}
		}
		return c.page(ctx, c.shard, script.CheckLeased, nil, texts("task ", ids), nil)
	})
}

// note notes a key; false for one of no known kind.
func (c *shardCheck) note(kind, rest string) bool {
	switch kind {
	case "q":
		c.queue(rest)
	case "ends":
		c.queue(rest)
		c.ends = append(c.ends, rest)
	case "l":
		return c.lane(rest)
	case "s", "ld", "lc":
		if !c.lane(rest) {
			return false
		}
		c.sets = append(c.sets, kind+":"+rest)
		if kind != "s" {
			c.lanes[rest] = true
		}
	case "src", "counts", "lanes", "so", "sw", "drop":
		c.source(rest)
	case "po", "pw":
		c.pools[rest] = true
	case "qo", "qw", "qa":
		pool, queue, ok := strings.Cut(rest, ":")
		c.pools[pool] = true
		c.queue(queue)
		return ok
	case "held":
		c.held = append(c.held, rest)
	default:
		return false
	}
	return true
}

// memberSet is a key with members that are noted.
type memberSet struct {
	name string
	of   int // its type
	note func(member string)
}

// readMembers reads what sets say of queues, lanes and leases.
func (c *shardCheck) readMembers(ctx context.Context) error {
	noteQueue := func(name string) { c.queue(name) }
	noteNumber := func(number string) { c.source(number) }
	sets := []memberSet{
		{c.names.Pools(), typeSet, func(pool string) { c.pools[pool] = true }},
		{c.names.Queues(), typeZSet, func(reversed string) { c.queue(reversedLabels(reversed)) }},
		{c.names.Idle(), typeZSet, noteQueue},
		{c.names.Kept(), typeSet, c.noteKept},
		{c.names.Leases(), typeZSet, c.noteLease},
		{c.names.Filtered(), typeHash, noteNumber},
		{c.names.Named(), typeHash, noteNumber},
	}
	for pool := range c.pools {
		for _, set := range []string{c.names.PoolOpen(pool), c.names.PoolWait(pool)} {
			sets = append(sets, memberSet{set, typeZSet, noteQueue})
		}
	}
	for number := range c.numbers {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			continue
		}
		sets = append(sets, memberSet{c.names.SourceLanes(n), typeSet, func(queue string) {
			c.lane(number + ":" + queue)
			c.lanes[number+":"+queue] = true
		}})
	}
	for _, queue := range c.ends {
		sets = append(sets, memberSet{c.names.Ends(queue), typeSet, func(number string) {
			if c.lane(number + ":" + queue) {
				c.lanes[number+":"+queue] = true
			}
		}})
	}
	for _, set := range sets {
		err := c.members(ctx, c.shard, set.name, set.of, func(members []string) error {
			for _, member := range members {
				set.note(member)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *shardCheck) noteKept(lane string) {
	if c.lane(lane) && !c.lanes[lane] {
		c.lanes[lane] = true
	}
	number, _, _ := strings.Cut(lane, ":")
	c.source(number).kept++
}

// noteLease notes an entry of the lease index, "<id>[~]:<source>:<queue>".
func (c *shardCheck) noteLease(member string) {
	id, lane, _ := strings.Cut(member, ":")
	_, queue, _ := strings.Cut(lane, ":")
	if !c.lane(lane) {
		return
	}
	if strings.HasSuffix(id, "~") {
		c.queue(queue).orphans++
	} else {
		c.queue(queue).leases++
	}
}

// reversedLabels is the name of a queue with its labels in reverse order, as lists have it.
func reversedLabels(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

const (
	// checkQueueWork bounds the queues of one script, times the pools; checkQueueLanes their lanes.
	checkQueueWork  = 300
	checkQueueLanes = 100
	// maxCheckLanes bounds the lanes of a queue that is checked: it is checked in one step.
	maxCheckLanes = 5000
)

func (c *shardCheck) checkQueues(ctx context.Context) error {
	first := []any{len(c.pools)}
	for _, pool := range slices.Sorted(maps.Keys(c.pools)) {
		first = append(first, pool)
	}
	var items []checkItem
	lanes := 0
	flush := func() error {
		err := c.page(ctx, c.shard, script.CheckQueues, first, items, nil)
		items, lanes = nil, 0
		return err
	}
	for name, q := range c.queues {
		if n := len(q.sources); n > maxCheckLanes {
			c.find(Finding{Kind: "skipped", Shard: c.shard, Name: "queue " + name, Text: fmt.Sprintf("it has %d lanes, more than %d", n, maxCheckLanes)})
			continue
		}
		args := []any{name, strconv.Itoa(dispatch.SlotOf(name)), q.leases, q.orphans, len(q.sources)}
		for number := range q.sources {
			args = append(args, number)
		}
		if len(items) > 0 && (lanes+len(q.sources) > checkQueueLanes || (len(items)+1)*(len(c.pools)+1) > checkQueueWork || len(items) == checkItems) {
			if err := flush(); err != nil {
				return err
			}
		}
		items, lanes = append(items, checkItem{"queue " + name, args}), lanes+len(q.sources)
	}
	return flush()
}

// checkEntries looks at what sets of tasks and the lease index have.
func (c *shardCheck) checkEntries(ctx context.Context) error {
	err := c.members(ctx, c.shard, c.names.Leases(), typeZSet, func(members []string) error {
		return c.page(ctx, c.shard, script.CheckLeases, nil, texts("lease ", members), nil)
	})
	if err != nil {
		return err
	}
	for _, set := range c.sets {
		kind, lane, _ := strings.Cut(set, ":")
		number, queue, _ := strings.Cut(lane, ":")
		name, first := script.CheckEntries, []any{number, queue, strconv.Itoa(dispatch.SlotOf(queue))}
		if kind != "s" {
			name, first = script.CheckSettled, []any{kind, number, queue}
		}
		err := c.members(ctx, c.shard, string(c.names)+set, typeZSet, func(members []string) error {
			return c.page(ctx, c.shard, name, first, texts(set+" ", members), nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// texts are items of one argument each.
func texts(prefix string, args []string) []checkItem {
	items := make([]checkItem, len(args))
	for i, arg := range args {
		items[i] = checkItem{prefix + arg, []any{arg}}
	}
	return items
}

func (c *shardCheck) checkTasks(ctx context.Context) error {
	first := []any{len(c.moves)}
	for from, to := range c.moves {
		first = append(first, from, to)
	}
	for _, s := range c.numbers {
		s.sums = [6]int64{}
	}
	c.checkPass.tasks -= c.tasks // they are read again where numbers of sources have changed
	c.tasks = 0
	return c.scan(ctx, c.shard, "t:*", func(names []string) error {
		ids := make([]string, len(names))
		for i, name := range names {
			ids[i] = strings.TrimPrefix(name, string(c.names)+"t:")
		}
		c.tasks += int64(len(ids))
		c.checkPass.tasks += int64(len(ids))
		return c.page(ctx, c.shard, script.CheckTasks, first, texts("task ", ids), func(r *pack.Reply) {
			unowned, sums := r.Array(), r.Array()
			for unowned.More() {
				id, s := unowned.Text(), c.source(unowned.Number())
				s.unowned = append(s.unowned, id)
			}
			for sums.More() {
				s := c.source(sums.Number())
				for i := range s.sums {
					s.sums[i] += sums.Integer()
				}
			}
			r.Join(unowned)
			r.Join(sums)
		})
	})
}

// checkBeside looks at details and histories.
func (c *shardCheck) checkBeside(ctx context.Context) error {
	for _, kind := range []string{"d", "h"} {
		err := c.scan(ctx, c.shard, kind+":*", func(names []string) error {
			items := make([]checkItem, len(names))
			for i, name := range names {
				id := strings.TrimPrefix(name, string(c.names)+kind+":")
				items[i] = checkItem{kind + ":" + id, []any{kind, id}}
			}
			return c.page(ctx, c.shard, script.CheckBeside, nil, items, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *shardCheck) checkLanes(ctx context.Context) error {
	items := make([]checkItem, 0, len(c.lanes))
	for lane := range c.lanes {
		number, queue, _ := strings.Cut(lane, ":")
		items = append(items, checkItem{"lane " + lane, []any{number, queue}})
	}
	return c.pages(ctx, c.shard, script.CheckLanes, items, checkItems)
}

// grantsAtOnce bounds the grants of one script: each may be of a hundred tasks.
const grantsAtOnce = 10

// checkGrants looks at the notes of grants.
func (c *shardCheck) checkGrants(ctx context.Context) error {
	for _, collector := range c.held {
		err := c.members(ctx, c.shard, c.names.Held(collector), typeHash, func(fields []string) error {
			tokens := make(map[string]bool)
			for _, field := range fields {
				tokens[strings.Trim(field, "/")] = true
			}
			var items []checkItem
			for token := range tokens {
				items = append(items, checkItem{"grant " + collector + "/" + token, []any{token, pack.Holder(collector, token)}})
			}
			for page := range slices.Chunk(items, grantsAtOnce) {
				if err := c.page(ctx, c.shard, script.CheckGrants, []any{collector}, page, nil); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
