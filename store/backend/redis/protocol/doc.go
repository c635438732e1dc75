// Package protocol holds the decisions by which one dispatcher owns a shard that is kept in Redis. They are pure functions. The
// backend calls them, and a model in the tests calls the same functions in every order of events within bounds. This text is
// their specification.
//
// # Keys of a shard
//
//	epoch   number and process of the owner; written by acquire only
//	record  the owner's name and address, a beat, released; written by acquire, renew and hand-over
//	head    epoch and sequence of the last group, rewriting; written by each group. (The last fence is an item of the shard.)
//	        The sequence rises by the tasks that the group changes: who has seen a later head knows how many changes are lost
//	items   tasks and all else that is kept
//	locks   one for each lease
//
// # Ownership
//
// Acquire, renew and hand-over are scripts with the flag allow-oom. They compare before they write, and work while Redis is full.
//
//   - Acquire compares the epoch and the whole record with what the candidate has read, and writes both. MayAcquire decides
//     whether a candidate may try, NextEpoch which epoch it mints. A broken connection ends the watch of the record, because the
//     next one may lead to a promoted replica. If the reply is lost, the process is a candidate, and the record is its own. A record
//     that was met and is gone counts as watched from then on: its owner may live, and has in memory what is lost with it.
//   - The new owner reads the epoch and the head. Line.Resolve decides whether it keeps the memory of an earlier term. If not, it
//     loads the items. It reads the epoch again after the last page, and drops what it loaded if the epoch is not its own.
//   - Renew compares the epoch, and that the record is neither released nor of a later beat. It returns the head for Line.Resolve,
//     because an owner without work must notice a failover that lost writes. The term counts from before the send.
//   - The owner asks MayServe before each answer. Out of its term it is a candidate again. It keeps its memory and its unconfirmed
//     group until it has read the head under an epoch of its own.
//   - A call that is passed to the owner carries the highest epoch that its sender has seen. An owner that hears of a higher one
//     stops, and acquires past it.
//   - Hand-over needs an owner without an unconfirmed group. The owner stops first, then it marks the record as released.
//
// # Groups
//
// One group is in flight. Its condition is the owner's epoch and the head that it follows (Line.Kept), both watched and compared
// on its connection. AfterSend decides by the reply, Line.Resolve by what was read.
//
//   - The client is answered after the group is confirmed, and only within the term. Reads answer from confirmed state: they
//     wait for the group that holds what they saw.
//   - No sequence stands for two groups. The same group is sent again with the same epoch and sequence. Under a new epoch
//     the same content is a new group with a new sequence.
//   - If Redis refuses a group because it is full, the same group is sent by the allow-oom script with the same condition,
//     whatever it holds. Memory has its content already, so nothing else can be kept before it.
//   - A grant is not answered if its SET NX failed. A group of its own undoes it. After a lost reply the lock is read: the
//     grant stands only if the lock holds its token.
//   - A lock is released by compare, by a script inside the transaction of its item.
//
// # Rewrite
//
// Line.Resolve returns Rewrite if the head is older than memory and on its line. The next groups follow the head that was found
// (Line.Rewritten). First they write every item that memory has, each with its lock, and their heads are marked as rewriting.
// Then they delete the items that memory lacks. The last one clears the mark, and has the locks of the groups that waited when the
// rewrite began: their items are in it. A foreign lock stays. Nothing is answered until the end. A successor that loads in between finds items of two ages: never a settled task without the tasks that
// it discovered, but perhaps those tasks beside the task that is not settled. So its report finds them and must not create them anew.
//
// # Invariants
//
//	nothing answered is missing    while its owner stays owner, or if Redis lost no write
//	one lease a task               no grant is answered while another lease that was answered runs
//	a grant has its lock           its token was set when it was answered
//	a replaced owner changes       the head is the last one of the owner of the epoch
//	  nothing
//	fences rise                    in the order of answers, over takeovers and steps of the clock
//	reads are kept and current     no older than the last answer, no newer than the store
//	one owner serves               unless a failover has lost the epoch of the other, which ends with its term
//	epochs rise                    no process accepts an epoch that is not above all that it has seen
//	store equals memory            items, deletions and locks, whenever no group is in flight, so after a rewrite too
//	a report is whole              no settled task without the task that it discovered
//	somebody can serve             without further faults, and while Redis stays full; tried on each 16th state
//
// What a failover lost is excused only when another process writes before the owner has written it again. A dispatcher reports
// it as lost with its owner.
//
// # What the explorer found
//
// In drafts:
//
//	a rewrite that follows the last confirmed head is      it follows the head that was found
//	  refused for ever
//	a term ends during a load, the owner acquires anew     memory is loaded only after the second read of the epoch
//	  and serves half of the items                           (Line.Loaded)
//	a takeover in the middle of a rewrite: a repeated      a report creates only what does not exist
//	  report resets a task that was discovered and leased
//
// In mutants, each of which leaves out one rule (TestExplore_Mutants has them all and logs the shortest way to each):
//
//	a number used twice after a failover                   a late EXEC finds its condition true and undoes the rewrite
//	head not watched                                       a late EXEC puts the older state back
//	epoch without its process                              after a failover two processes mint the same number
//	only own heads are known                               a failover to the head that was loaded: answered writes are dropped
//	renew does not return the head                         an owner without work never notices a failover
//	the record is watched across a failover                the replica has an older beat: two owners serve
//	deletions first                                        a takeover finds neither the task nor what it discovered
//	a full store without the script                        the refused group blocks everything behind it
//	answers after the term                                 an old fence is answered after its successor's
//	a renewal that only the lock keeps                     a successor ends a lease that was renewed
//
// # How to run it
//
//	go test ./store/backend/redis/protocol
//	WAGGLE_EXPLORE=long GOGC=40 go test -v -run Protocol -timeout 1h ./store/backend/redis/protocol
//
// The first takes seconds. The second explores 69.6 million states, up to 53 events deep, in six minutes and 3 GB.
//
// # What the model leaves out
//
//   - Two primaries at once. A primary that is cut off and still takes writes can have an owner of its own until
//     min-replicas-to-write stops it. Only WAIT after acquire, renew and groups closes this gap.
//   - A failover that loses two changes of owner, or all. The last owner writes again what it has. But if its term had run out
//     and another one had owned the store before, leases of both stand.
//   - A pause between MayServe and the answer that it allowed.
//   - A machine that is suspended. Linux stops the monotonic clock then, so the term must be measured by CLOCK_BOOTTIME.
//   - A lock that a failover has brought back, of a task without a lease: it stays until it ends, and a grant that meets it is undone.
//   - Late acquires and renewals, locks deleted by hand, the lengths of leases, standbys, rewrites of more than two groups.
package protocol
