// Package key has the name and the content of every key of a store in Redis. The scripts build the same names
// (lua/prelude/keys.lua).
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

// Hints is the channel for hints of scripts: what can be granted earlier.
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

// Used is a SET of used client tokens: the last lease of their grants ended in this step of time
// ([dispatch.TokenStep]). A member is the 8 bytes of the holder's digest. The first sweep after the next step removes
// the set; without a sweep its TTL ends it a day later.
func (s Shard) Used(step int64) string { return s.key("used:" + strconv.FormatInt(step, 10)) }

// Polled is a SET in the home shard of collectors: client tokens that were polled in this step of time (renew.go), and
// tokens with long leases that must be known then. A member is the 8 bytes of the holder's digest. It ends as Used
// does. Only a store of several shards has it.
func (s Shard) Polled(step int64) string { return s.key("polled:" + strconv.FormatInt(step, 10)) }

// Held is a HASH of the grants of a collector. "<client token>" is the number of tasks of a grant that are still held.
// "<client token>/" is the note of the grant (packed, lua/parts/grant.lua): the session, the calls that got it, the
// tasks, and its effect on queues. Consecutive ids of one lane omit their slot. A grant of one task has only the note,
// as "/<client token>".
func (s Shard) Held(collector string) string { return s.key("held:" + collector) }

// Keep is a STRING with a TTL: the only session of the collector that gets grants.
func (s Shard) Keep(collector string) string { return s.key("keep:" + collector) }

// Leases is a ZSET, the lease index. The score of a lane with leased tasks is at most its first deadline; a sweep
// raises it to that. The score of an orphan, "<task id>:<lane>", is the end of its lock.
func (s Shard) Leases() string { return s.key("leases") }

// SourceGate is a HASH of a source: its "gate" and the "counts" of its tasks (packed, lua/prelude/lane.lua), and the
// links "filtered" by reason (packed, lua/parts/filtered.lua). A source that claims name also has "named" (packed,
// lua/prelude/named.lua). A deleted source has "dropped", the last lane with dropped tasks, and "why" it was deleted
// (JSON).
func (s Shard) SourceGate(uid string) string { return s.key("src:" + uid) }

// SourceLanes is a ZSET of the queues with a lane of the source, by the number of the lane.
func (s Shard) SourceLanes(uid string) string { return s.key("lanes:" + uid) }

// SourceOpen and SourceWait are ZSETs of the lanes of a source that claims name: see
// dispatch/scheduling.md.
func (s Shard) SourceOpen(uid string) string { return s.key("so:" + uid) }

// SourceWait is the ZSET of lanes that such a claim need not read now.
func (s Shard) SourceWait(uid string) string { return s.key("sw:" + uid) }

// Lane is a STRING (packed, lua/prelude/lane.lua): source uid, queue, slot, the pool
// in whose sets it stands, whether a task of it was ever dead or canceled, or an orphan,
// and of its sets what says where it belongs (lua/prelude/front.lua).
func (s Shard) Lane(n int64) string { return s.key("lane:" + strconv.FormatInt(n, 10)) }

// LaneSet is a ZSET of the ends of task ids (after the slot) of a lane: LaneTasks has ready tasks, then later ones,
// leased ones by deadline, and orphans (lua/prelude/lane.lua). LaneDead and LaneCanceled have the others.
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

// Cause is a STRING while failures of the host block a queue: the task that failed last, a newline, and the failure
// (JSON).
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

// Collector is a STRING (MessagePack) in the home shard of the id: the session, its first and last time seen, whether
// it has replaced another one that is not ended yet, and its info (JSON).
func (s Shard) Collector(id string) string { return s.key("coll:" + id) }

// Replaced is a ZSET of a collector's replaced sessions by when.
func (s Shard) Replaced(id string) string { return s.key("old:" + id) }

// Collectors is a ZSET, all scores 0, of the collector ids of this home shard.
func (s Shard) Collectors() string { return s.key("colls") }

// Seen is a ZSET of the collector ids of this home shard, by the time they were last seen; ended collectors are in
// Ended instead.
func (s Shard) Seen() string { return s.key("seen") }

// Ended is a ZSET of the ids of the collectors that have ended by when they were last
// seen.
func (s Shard) Ended() string { return s.key("ended") }

// Duty is a STRING with a TTL in shard 0: who leads a duty.
func (s Shard) Duty(duty string) string { return s.key("duty:" + duty) }
