// Package key names every key of a store in Redis, and says what each holds. The scripts build
// the same names (lua/prelude/keys.lua).
package key

import (
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Prefix begins the names of all keys of one store.
type Prefix string

// Meta is a HASH: "shards", "format" and "made", a mark, all fixed when the store is
// first used. It belongs to no shard.
func (p Prefix) Meta() string { return string(p) + ":meta" }

// Hints is the channel on which scripts tell what can be granted sooner.
func (p Prefix) Hints() string { return string(p) + ":hints" }

// Shard begins all keys of a shard: one hash tag, so one node of a Cluster.
func (p Prefix) Shard(n int) Shard {
	return Shard(string(p) + ":{" + strconv.Itoa(n) + "}:")
}

// Shard names the keys of one shard.
type Shard string

func (s Shard) key(name string) string { return string(s) + name }

// Shard is a HASH: the last "fence", the versions of the "rules" and of the
// "holds", the sum of these by which its queues were "placed", in shard 0 the call that has changed
// the holds last ("holdsby"), when leases were last "swept" and until when the
// "grace" after an outage lasts, the "highest" instant that sweeps have seen and how far they have come in a "walk" over
// lanes since the clock was stepped back, "counts" by state and of events with the last
// number of a lane (packed, lua/prelude/counts.lua), and
// "picks:<pool>". It is KEYS[1] of every script.
func (s Shard) Shard() string { return s.key("shard") }

// Absent is never there. In a Cluster it is KEYS[2] of every script (internal/script).
func (s Shard) Absent() string { return s.key("absent") }

// Mark is a STRING: a mark that the shard was given when it was first looked at
// (internal/meta). Only a Cluster has it.
func (s Shard) Mark() string { return s.key("mark") }

// Task is a STRING: the record of a task (internal/record).
func (s Shard) Task(id dispatch.TaskID) string { return string(s) + "t:" + string(id) }

// Details is a HASH made when first needed: "c" cursor, "m" memo.
func (s Shard) Details(id dispatch.TaskID) string { return s.key("d:" + string(id)) }

// History is a STRING made when first needed: the last error and the last attempts
// (lua/parts/history.lua).
func (s Shard) History(id dispatch.TaskID) string { return s.key("h:" + string(id)) }

// Lock is a STRING with a TTL: the lease token of who holds the task.
func (s Shard) Lock(id dispatch.TaskID) string { return string(s) + "lock:" + string(id) }

// Used is a SET of the client tokens of whose grants the last lease has ended in a step of
// time ([dispatch.TokenStep]): of each the 8 bytes of its holder's digest. The first sweep
// after the next step removes it; where none does, it ends a day later by its TTL.
func (s Shard) Used(step int64) string { return s.key("used:" + strconv.FormatInt(step, 10)) }

// Polled is a SET of the client tokens that were polled in a step of time (claim.go), in
// the home shard of their collectors, and of those that hold something for long and are to
// be known then: of each the 8 bytes of its holder's digest. It ends as Used does. Only a
// store of several shards has it.
func (s Shard) Polled(step int64) string { return s.key("polled:" + strconv.FormatInt(step, 10)) }

// Held is a HASH: what a collector holds, grant by grant. "<client token>" is how many
// tasks it still holds of one, and "<client token>/" the note of it (packed,
// lua/parts/grant.lua): the session, the calls that answered from it, the tasks, whose
// ids are without their slot where they follow in one lane, and what it did to its queues.
// A grant of one task has that alone, as "/<client token>".
func (s Shard) Held(collector string) string { return s.key("held:" + collector) }

// Keep is a STRING with a TTL: the only session of the collector that is granted
// anything.
func (s Shard) Keep(collector string) string { return s.key("keep:" + collector) }

// Leases is a ZSET, the lease index: of lanes with leased tasks, each at most at the
// first deadline of its leases, to which a sweep moves it; and of orphans,
// "<task id>:<lane>", by when their lock ends.
func (s Shard) Leases() string { return s.key("leases") }

// SourceGate is a HASH: the "gate" of a source and "counts" of its tasks (packed,
// lua/prelude/lane.lua), the links that were "filtered" by reason (packed,
// lua/parts/filtered.lua), of one that claims name what is "named" of it
// (packed, lua/prelude/named.lua), and of a deleted one the last lane whose tasks were
// "dropped", and "why" it was deleted (JSON).
func (s Shard) SourceGate(uid string) string { return s.key("src:" + uid) }

// SourceLanes is a ZSET of the queues in which a source has a lane, by the number
// of the lane.
func (s Shard) SourceLanes(uid string) string { return s.key("lanes:" + uid) }

// SourceOpen and SourceWait are ZSETs of the lanes of a source that claims name: see
// dispatch/scheduling.md.
func (s Shard) SourceOpen(uid string) string { return s.key("so:" + uid) }

// SourceWait is the ZSET of lanes that such a claim need not look at now.
func (s Shard) SourceWait(uid string) string { return s.key("sw:" + uid) }

// Lane is a STRING (packed, lua/prelude/lane.lua): source uid, queue, slot, the pool
// in whose sets it stands, whether a task of it was ever dead or canceled, or an orphan,
// and of its sets what says where it belongs (lua/prelude/front.lua).
func (s Shard) Lane(n int64) string { return s.key("lane:" + strconv.FormatInt(n, 10)) }

// LaneSet is a ZSET of the ends of task ids (after the slot) of a lane: what is not
// settled, first what is ready, then what is later, leased (by deadline), or an orphan
// (lua/prelude/lane.lua); what is dead; what is canceled.
func (s Shard) LaneSet(set LaneSet, n int64) string { return s.key(set.Name(n)) }

// LaneSet is one of the sets of a lane.
type LaneSet string

// The sets of a lane.
const (
	LaneTasks    LaneSet = "lt"
	LaneDead     LaneSet = "ld"
	LaneCanceled LaneSet = "lc"
)

// Name is what follows the prefix of the shard in the key of a set of the n-th lane.
func (s LaneSet) Name(n int64) string { return string(s) + ":" + strconv.FormatInt(n, 10) }

// Queue is a STRING (packed): its next grant, until when holds stop it, its block, leases in
// flight, waiting tasks, what its host asks for, its settings as of a version of rules and
// holds, and of each pool where it and its lanes stand there (lua/prelude/queue.lua).
func (s Shard) Queue(name string) string { return s.key("queue:" + name) }

// Cause is a STRING until the block of a queue ends that failures of its host caused: the
// task whose attempt failed so last, a line's end, and the failure (JSON).
func (s Shard) Cause(name string) string { return s.key("cause:" + name) }

// QueueLanes is a ZSET of the lanes of a queue by number.
func (s Shard) QueueLanes(name string) string { return s.key("ql:" + name) }

// QueueOpen and QueueWait are ZSETs of lanes, PoolOpen and PoolWait of queues:
// see dispatch/scheduling.md. Those of lanes exist from the second member on; a
// lane that is alone in its set stands in the queue's record.
func (s Shard) QueueOpen(pool, name string) string { return s.key("qo:" + pool + ":" + name) }

// QueueWait is the ZSET of lanes that cannot be picked now.
func (s Shard) QueueWait(pool, name string) string { return s.key("qw:" + pool + ":" + name) }

// QueueAside is a SET of lanes in queue open that claims which name their sources
// have put aside until the queue is placed sooner.
func (s Shard) QueueAside(pool, name string) string { return s.key("qa:" + pool + ":" + name) }

// PoolOpen is the ZSET of queues that can be granted from.
func (s Shard) PoolOpen(pool string) string { return s.key("po:" + pool) }

// PoolWait is the ZSET of queues that cannot be granted from now.
func (s Shard) PoolWait(pool string) string { return s.key("pw:" + pool) }

// Pools is a SET of the pools that ever had a queue.
func (s Shard) Pools() string { return s.key("pools") }

// Queues is a ZSET, all scores 0, of the queues that exist by reversed labels:
// the names that end alike stand together.
func (s Shard) Queues() string { return s.key("queues") }

// Idle is a ZSET of the queues that only a delay or block keeps, by its end.
func (s Shard) Idle() string { return s.key("idle") }

// Forget is a ZSET of the lane sets with settled tasks, by when the first of
// them is forgotten.
func (s Shard) Forget() string { return s.key("forget") }

// Settings is a HASH: the settings of queues by the name they are filed under.
func (s Shard) Settings() string { return s.key("settings") }

// HeldQueues is a HASH of the queue names and patterns that holds are on: until when they
// stop them, in ms.
func (s Shard) HeldQueues() string { return s.key("heldqueues") }

// Holds is a HASH in shard 0: the holds, but for those of sources, by key (JSON).
func (s Shard) Holds() string { return s.key("holds") }

// Rules is a HASH in shard 0: the queue rules by pattern.
func (s Shard) Rules() string { return s.key("rules") }

// Source is a STRING in the home shard of the id: the source (JSON).
func (s Shard) Source(id string) string { return s.key("source:" + id) }

// Sources is a ZSET, all scores 0, of the source ids of this home shard.
func (s Shard) Sources() string { return s.key("sources") }

// Pending is a ZSET, all scores 0, of the sources with a version that is not
// applied everywhere.
func (s Shard) Pending() string { return s.key("pending") }

// HeldSources is a ZSET, all scores 0, of the sources that have holds.
func (s Shard) HeldSources() string { return s.key("heldsources") }

// Collector is a STRING (MessagePack) in the home shard of the id: the session, since
// when it is known, when it was last seen, whether it has replaced another that is
// not ended yet, and what it tells of itself (JSON).
func (s Shard) Collector(id string) string { return s.key("coll:" + id) }

// Replaced is a ZSET of a collector's replaced sessions by when.
func (s Shard) Replaced(id string) string { return s.key("old:" + id) }

// Collectors is a ZSET, all scores 0, of the collector ids of this home shard.
func (s Shard) Collectors() string { return s.key("colls") }

// Seen is a ZSET of the collector ids of this home shard by when they were last
// seen; those that have ended are in Ended instead.
func (s Shard) Seen() string { return s.key("seen") }

// Ended is a ZSET of the ids of the collectors that have ended by when they were last
// seen.
func (s Shard) Ended() string { return s.key("ended") }

// Duty is a STRING with a TTL in shard 0: who leads a duty.
func (s Shard) Duty(duty string) string { return s.key("duty:" + duty) }
