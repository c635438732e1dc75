// Package key has the name and the content of every key of a store in Redis. The scripts build the same names
// (lua/key.lua).
package key

import (
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Prefix begins the names of all keys of one store.
type Prefix string

// Meta is a HASH: "shards", "format" and "made", a mark, all fixed when the store is
// first used; and "copying" while another store is copied into it. It belongs to no shard.
func (p Prefix) Meta() string { return string(p) + ":meta" }

// Library is a STRING with a TTL: a dispatcher that uses the function library of that version runs (internal/script). It
// belongs to no shard.
func (p Prefix) Library(version string) string { return string(p) + ":library:" + version }

// Hints is the channel for hints of scripts: what can be granted earlier.
func (p Prefix) Hints() string { return string(p) + ":hints" }

// Shard begins all keys of a shard: one hash tag, so one node of a Cluster.
func (p Prefix) Shard(n int) Shard {
	return Shard(string(p) + ":{" + strconv.Itoa(n) + "}:")
}

// Shard names the keys of one shard.
type Shard string

func (s Shard) key(name string) string { return string(s) + name }

// Shard is a STRING: counts by state and of events, the last number of a source, the last fence, the last step of time in
// which client tokens were used, and the settings that a call needed last (packed, lua/shard.lua). It is KEYS[1] of every
// script.
func (s Shard) Shard() string { return s.key("shard") }

// Keeper is a HASH: the sum of the versions of rules and holds by which queues were "placed", when leases were last
// "swept" and until when the "grace" after an outage lasts.
func (s Shard) Keeper() string { return s.key("keeper") }

// Version is a STRING: the version of the "rules" or of the "holds".
func (s Shard) Version(of string) string { return s.key("version:" + of) }

// Picks is a STRING: how many picks of queues of a pool there were.
func (s Shard) Picks(pool string) string { return s.key("picks:" + pool) }

// HoldsBy is a STRING in shard 0: the call that has changed the holds last.
func (s Shard) HoldsBy() string { return s.key("holdsby") }

// Acked is a HASH: of each dispatcher the number of its last call that was acknowledged, and how many such calls were
// "lost" (lua/acknowledge.lua).
func (s Shard) Acked() string { return s.key("acked") }

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
// (lua/history.lua).
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
// "<client token>/" is the note of the grant (packed, lua/grant.lua): the session, the calls that got it, the
// tasks, and its effect on queues. Consecutive ids of one queue omit their slot. A grant of one task has only the note,
// as "/<client token>".
func (s Shard) Held(collector string) string { return s.key("held:" + collector) }

// Keep is a STRING with a TTL: the only session of the collector that gets grants.
func (s Shard) Keep(collector string) string { return s.key("keep:" + collector) }

// Leases is a ZSET, the lease index: "<task id>:<source>:<queue>" by deadline, and orphans by when they are looked at. A
// renewal leaves it as it is; a sweep moves what was renewed.
func (s Shard) Leases() string { return s.key("leases") }

// SourceNumber is a STRING: the number of a source in the shard.
func (s Shard) SourceNumber(uid string) string { return s.key("uid:" + uid) }

// SourceGate is a STRING: what scripts need of a source (packed, lua/source.lua).
func (s Shard) SourceGate(n int64) string { return s.key("src:" + number(n)) }

// SourceCounts is a STRING: the counts of a source (packed, lua/source.lua).
func (s Shard) SourceCounts(n int64) string { return s.key("counts:" + number(n)) }

// Filtered is a HASH by number of the links of sources that were not followed, by reason.
func (s Shard) Filtered() string { return s.key("filtered") }

// SourceLanes is a SET of the queues where a source has tasks that wait, are dead or canceled.
func (s Shard) SourceLanes(n int64) string { return s.key("lanes:" + number(n)) }

// Dropped is a HASH of a deleted source: "why", and the "cursor" in its lanes.
func (s Shard) Dropped(n int64) string { return s.key("drop:" + number(n)) }

// Named is a HASH by number of the sources that claims name (packed, lua/named.lua).
func (s Shard) Named() string { return s.key("named") }

// SourceOpen and SourceWait are ZSETs of the queues with lanes of a source that claims name: see
// dispatch/scheduling.md.
func (s Shard) SourceOpen(n int64) string { return s.key("so:" + number(n)) }

// SourceWait is the ZSET of lanes that such a claim need not read now.
func (s Shard) SourceWait(n int64) string { return s.key("sw:" + number(n)) }

// Queue is a STRING: all that a turn needs of a queue, with its lane where it has one (packed, lua/queue.lua).
func (s Shard) Queue(name string) string { return s.key("q:" + name) }

// Lane is the name of the lane of a source in a queue, as other keys have it.
func Lane(source int64, queue string) string { return number(source) + ":" + queue }

// LaneValue is a STRING: a lane of a queue with several (packed, lua/lane.lua).
func (s Shard) LaneValue(lane string) string { return s.key("l:" + lane) }

// LaneSet is a ZSET of the ends of task ids (after the slot): the tasks that wait behind the head of a lane.
func (s Shard) LaneSet(lane string) string { return s.key("s:" + lane) }

// LaneDead and LaneCanceled are ZSETs of task ids by when they are forgotten.
func (s Shard) LaneDead(lane string) string { return s.key("ld:" + lane) }

// LaneCanceled has the canceled tasks of a lane: see LaneDead.
func (s Shard) LaneCanceled(lane string) string { return s.key("lc:" + lane) }

// Kept is a SET of the lanes with dead or canceled tasks.
func (s Shard) Kept() string { return s.key("kept") }

// Ends is a SET of the sources that have dead or canceled tasks in a queue.
func (s Shard) Ends(queue string) string { return s.key("ends:" + queue) }

// Cause is a STRING while failures of the host block a queue: the task that failed last, a newline, and the failure
// (JSON).
func (s Shard) Cause(name string) string { return s.key("cause:" + name) }

// QueueOpen and QueueWait are ZSETs of the sources whose lanes are in a queue with several, PoolOpen and PoolWait of
// queues: see dispatch/scheduling.md.
func (s Shard) QueueOpen(pool, name string) string { return s.key("qo:" + pool + ":" + name) }

// QueueWait is the ZSET of lanes that cannot be picked now.
func (s Shard) QueueWait(pool, name string) string { return s.key("qw:" + pool + ":" + name) }

// QueueAside is a SET of sources whose lanes in queue open were put aside by claims that name them, until the queue is
// placed sooner.
func (s Shard) QueueAside(pool, name string) string { return s.key("qa:" + pool + ":" + name) }

// PoolOpen is the ZSET of queues that can be granted from.
func (s Shard) PoolOpen(pool string) string { return s.key("po:" + pool) }

// PoolWait is the ZSET of queues that can be granted from at a known time.
func (s Shard) PoolWait(pool string) string { return s.key("pw:" + pool) }

// Closed is a HASH: by "<kind>:<pool>" how many queues stand in neither (lua/pool.lua).
func (s Shard) Closed() string { return s.key("closed") }

// Pools is a SET of the pools that ever had a queue.
func (s Shard) Pools() string { return s.key("pools") }

// Queues is a ZSET, all scores 0, of the queues that exist by reversed labels:
// the names that end alike stand together.
func (s Shard) Queues() string { return s.key("queues") }

// Idle is a ZSET of the queues that only a delay or block keeps, by its end.
func (s Shard) Idle() string { return s.key("idle") }

// Forget is a ZSET of the keys of dead and canceled tasks, by when the first of each is forgotten.
func (s Shard) Forget() string { return s.key("forget") }

func number(n int64) string { return strconv.FormatInt(n, 10) }

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

// Binding is a STRING with a TTL in the home shard of a collector id: the identity that it belongs to.
func (s Shard) Binding(collector string) string { return s.key("bind:" + collector) }

// Audit is a STREAM in shard 0: what operators changed ("entry", JSON), and the call that added it ("call").
func (s Shard) Audit() string { return s.key("audit") }
