package redisstore

import (
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
)

// keys names every key of one Waggle in Redis. The scripts build the same names
// (lua/prelude/keys.lua).
type keys struct{ prefix string }

// Meta is a HASH: "shards", "format" and "made", a mark, all fixed when the store is
// first used. It belongs to no shard.
func (k keys) Meta() string { return k.prefix + ":meta" }

// Hints is the channel on which scripts tell what can be granted sooner.
func (k keys) Hints() string { return k.prefix + ":hints" }

// shard begins all keys of a shard: one hash tag, so one node of a Cluster.
func (k keys) shard(n int) shardKeys {
	return shardKeys(k.prefix + ":{" + strconv.Itoa(n) + "}:")
}

// shardKeys names the keys of one shard.
type shardKeys string

func (p shardKeys) key(name string) string { return string(p) + name }

// Shard is a HASH: the last "fence", version of the "rules" and the one
// by which its queues were "placed", when leases were last "swept" and until when the
// "grace" after an outage lasts, the "highest" instant that sweeps have seen and how far they have come in a "walk" over
// lanes since the clock was stepped back, "counts" by state and of events with the last
// number of a lane (packed, lua/prelude/counts.lua), and
// "picks:<pool>". It is KEYS[1] of every script.
func (p shardKeys) Shard() string { return p.key("shard") }

// Absent is never there. In a Cluster it is KEYS[2] of every script (scriptKeys).
func (p shardKeys) Absent() string { return p.key("absent") }

// Mark is a STRING: a mark that the shard was given when it was first looked at
// (marks.go). Only a Cluster has it.
func (p shardKeys) Mark() string { return p.key("mark") }

// Task is a STRING: the record of a task (record.go).
func (p shardKeys) Task(id dispatch.TaskID) string { return string(p) + "t:" + string(id) }

// Details is a HASH made when first needed: "c" cursor, "m" memo.
func (p shardKeys) Details(id dispatch.TaskID) string { return p.key("d:" + string(id)) }

// History is a STRING made when first needed: the last error and the last attempts
// (lua/parts/history.lua).
func (p shardKeys) History(id dispatch.TaskID) string { return p.key("h:" + string(id)) }

// Lock is a STRING with a TTL: the lease token of who holds the task.
func (p shardKeys) Lock(id dispatch.TaskID) string { return string(p) + "lock:" + string(id) }

// Used is a SET of the client tokens of whose grants the last lease has ended in a step of
// time ([dispatch.TokenStep]): of each the 8 bytes of its holder's digest. The first sweep
// after the next step removes it; where none does, it ends a day later by its TTL.
func (p shardKeys) Used(step int64) string { return p.key("used:" + strconv.FormatInt(step, 10)) }

// Polled is a SET of the client tokens that were polled in a step of time (polled.go), in
// the home shard of their collectors, and of those that hold something for long and are to
// be known then: of each the 8 bytes of its holder's digest. It ends as Used does. Only a
// store of several shards has it.
func (p shardKeys) Polled(step int64) string { return p.key("polled:" + strconv.FormatInt(step, 10)) }

// Held is a HASH: what a collector holds, grant by grant. "<client token>" is how many
// tasks it still holds of one, and "<client token>/" the note of it (packed,
// lua/parts/grant.lua): the session, the calls that answered from it, the tasks, whose
// ids are without their slot where they follow in one lane, and what it did to its queues.
// A grant of one task has that alone, as "/<client token>".
func (p shardKeys) Held(collector string) string { return p.key("held:" + collector) }

// Keep is a STRING with a TTL: the only session of the collector that is granted
// anything.
func (p shardKeys) Keep(collector string) string { return p.key("keep:" + collector) }

// Leases is a ZSET, the lease index: of lanes with leased tasks, each at most at the
// first deadline of its leases, to which a sweep moves it; and of orphans,
// "<task id>:<lane>", by when their lock ends.
func (p shardKeys) Leases() string { return p.key("leases") }

// SourceGate is a HASH: the "gate" of a source and "counts" of its tasks (packed,
// lua/prelude/lane.lua), the links that were "filtered" by reason (packed,
// lua/parts/filtered.lua), of one that claims name what is "named" of it
// (packed, lua/prelude/named.lua), and of a deleted one the last lane whose tasks were
// "dropped", and "why" it was deleted (JSON).
func (p shardKeys) SourceGate(uid string) string { return p.key("src:" + uid) }

// SourceLanes is a ZSET of the queues in which a source has a lane, by the number
// of the lane.
func (p shardKeys) SourceLanes(uid string) string { return p.key("lanes:" + uid) }

// SourceOpen and SourceWait are ZSETs of the lanes of a source that claims name: see
// dispatch/scheduling.md.
func (p shardKeys) SourceOpen(uid string) string { return p.key("so:" + uid) }

// SourceWait is the ZSET of lanes that such a claim need not look at now.
func (p shardKeys) SourceWait(uid string) string { return p.key("sw:" + uid) }

// Lane is a STRING (packed, lua/prelude/lane.lua): source uid, queue, slot, the pool
// in whose sets it stands, whether a task of it was ever dead or canceled, or an orphan,
// and of its sets what says where it belongs (lua/prelude/front.lua).
func (p shardKeys) Lane(n int64) string { return p.key("lane:" + strconv.FormatInt(n, 10)) }

// LaneSet is a ZSET of the ends of task ids (after the slot) of a lane: what is not
// settled, first what is ready, then what is later, leased (by deadline), or an orphan
// (lua/prelude/lane.lua); what is dead; what is canceled.
func (p shardKeys) LaneSet(set laneSet, n int64) string { return p.key(set.name(n)) }

// laneSet is one of the sets of a lane.
type laneSet string

const (
	laneTasks    laneSet = "lt"
	laneDead     laneSet = "ld"
	laneCanceled laneSet = "lc"
)

func (s laneSet) name(n int64) string { return string(s) + ":" + strconv.FormatInt(n, 10) }

// Queue is a STRING (packed): its next grant, blocks, pause, leases in flight, waiting
// tasks, what its host asks for, its settings as of a version of the rules, and of
// each pool where it and its lanes stand there (lua/prelude/queue.lua).
func (p shardKeys) Queue(name string) string { return p.key("queue:" + name) }

// Cause is a STRING until the block of a queue ends that failures of its host caused: the
// task whose attempt failed so last, a line's end, and the failure (JSON).
func (p shardKeys) Cause(name string) string { return p.key("cause:" + name) }

// QueueLanes is a ZSET of the lanes of a queue by number.
func (p shardKeys) QueueLanes(name string) string { return p.key("ql:" + name) }

// QueueOpen and QueueWait are ZSETs of lanes, PoolOpen and PoolWait of queues:
// see dispatch/scheduling.md. Those of lanes exist from the second member on; a
// lane that is alone in its set stands in the queue's record.
func (p shardKeys) QueueOpen(pool, name string) string { return p.key("qo:" + pool + ":" + name) }

// QueueWait is the ZSET of lanes that cannot be picked now.
func (p shardKeys) QueueWait(pool, name string) string { return p.key("qw:" + pool + ":" + name) }

// QueueAside is a SET of lanes in queue open that claims which name their sources
// have put aside until the queue is placed sooner.
func (p shardKeys) QueueAside(pool, name string) string { return p.key("qa:" + pool + ":" + name) }

// PoolOpen is the ZSET of queues that can be granted from.
func (p shardKeys) PoolOpen(pool string) string { return p.key("po:" + pool) }

// PoolWait is the ZSET of queues that cannot be granted from now.
func (p shardKeys) PoolWait(pool string) string { return p.key("pw:" + pool) }

// Paused is a HASH of the holds of pools by key, each until when in ms, a line's end,
// and the hold (JSON). Until when stands in the shard key, too, as "pause:<pool>", for
// claims.
func (p shardKeys) Paused() string { return p.key("paused") }

// Pools is a SET of the pools that ever had a queue.
func (p shardKeys) Pools() string { return p.key("pools") }

// Queues is a ZSET, all scores 0, of the queues that exist by reversed labels:
// the names that end alike stand together.
func (p shardKeys) Queues() string { return p.key("queues") }

// Idle is a ZSET of the queues that only a delay, block or pause keeps, by its end.
func (p shardKeys) Idle() string { return p.key("idle") }

// Forget is a ZSET of the lane sets with settled tasks, by when the first of
// them is forgotten.
func (p shardKeys) Forget() string { return p.key("forget") }

// Settings is a HASH: the settings of queues by the name they are filed under.
func (p shardKeys) Settings() string { return p.key("settings") }

// Rules is a HASH in shard 0: the queue rules by pattern.
func (p shardKeys) Rules() string { return p.key("rules") }

// Source is a STRING in the home shard of the id: the source (JSON).
func (p shardKeys) Source(id string) string { return p.key("source:" + id) }

// Sources is a ZSET, all scores 0, of the source ids of this home shard.
func (p shardKeys) Sources() string { return p.key("sources") }

// Pending is a ZSET, all scores 0, of the sources with a version that is not
// applied everywhere.
func (p shardKeys) Pending() string { return p.key("pending") }

// Collector is a STRING (MessagePack) in the home shard of the id: the session, since
// when it is known, when it was last seen, whether it has replaced another that is
// not ended yet, and what it tells of itself (JSON).
func (p shardKeys) Collector(id string) string { return p.key("coll:" + id) }

// Replaced is a ZSET of a collector's replaced sessions by when.
func (p shardKeys) Replaced(id string) string { return p.key("old:" + id) }

// Collectors is a ZSET, all scores 0, of the collector ids of this home shard.
func (p shardKeys) Collectors() string { return p.key("colls") }

// Seen is a ZSET of the collector ids of this home shard by when they were last
// seen; those that have ended are in Ended instead.
func (p shardKeys) Seen() string { return p.key("seen") }

// Ended is a ZSET of the ids of the collectors that have ended by when they were last
// seen.
func (p shardKeys) Ended() string { return p.key("ended") }

// Drains is a HASH in shard 0: the holds of collectors by key, each as in Paused.
func (p shardKeys) Drains() string { return p.key("drains") }

// Duty is a STRING with a TTL in shard 0: who leads a duty.
func (p shardKeys) Duty(duty string) string { return p.key("duty:" + duty) }
