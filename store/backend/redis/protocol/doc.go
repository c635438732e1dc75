// Package protocol holds the decisions by which one dispatcher owns a shard that is kept in Redis. They are pure functions. The
// backend calls them, and a model in the tests calls the same functions in every order of events within bounds. This text is
// their specification.
//
// # Keys of a shard
//
//	epoch   number and process of the owner; written by acquire only
//	record  the owner's name and address, a beat, released, the standby; written by acquire, renew and hand-over
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
//   - Renew compares the epoch, that the record is not released, and that the beat in it is lower than its own. Each renewal that is
//     sent has a new beat, so one that arrives late changes nothing. Renew returns the head for Line.Resolve, because an owner
//     without work must notice a failover that lost writes. The term counts from before the send.
//   - The owner asks MayServe before each answer. Out of its term it is a candidate again. It keeps its memory and its unconfirmed
//     group until it has read the head under an epoch of its own.
//   - A call that is passed to the owner carries the highest epoch that its sender has seen. An owner that hears of a higher one
//     stops, and acquires past it.
//   - Hand-over needs an owner without an unconfirmed group. The owner stops first, then it marks the record as released. The record
//     still names its standby. MayAcquire lets that one acquire at once, and the others after a term.
//   - No lease ends because its deadline passed while nobody could renew it. An owner that begins to serve adds a time to each deadline:
//     from the last write of the record before its own until then. A lock that is missing may have ended in that time.
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
// # Standby
//
// A standby is a candidate that follows the groups of the owner and has the items in memory. Its memory is a cache: only a head that
// was found in the store can say that it is what is kept. Following.Receive and Following.Takeover decide that.
//
//   - Stream. An owner has one stream to a standby at a time. It first sends the head that it has kept and the group whose outcome it
//     does not know. Then it sends each group before Redis has it, and again when the group is sent again. It never waits for the
//     standby: it closes the stream to a slow one. It also closes it when its term ends and behind a hand-over. No stream
//     begins during a rewrite, and the first group of a rewrite ends it.
//   - Like a call, a stream carries the highest epoch. So nobody follows an owner with a lower epoch than it has seen. An owner that
//     was replaced and follows its successor drops its memory.
//   - Apply. A group that arrives is held. It is applied when the next one follows it, or when the head in the store is its own.
//   - Load. The standby reads the head, the items, and the head again, on one connection. Groups are applied over the items meanwhile.
//     It reads the first head again until Takeover knows it, and so with the second. Then memory is warm. If the connection breaks,
//     the load begins anew, because the next one may lead to a replica with older items.
//   - Name. A renewal names the standby of the open stream if its memory is warm, and else none. Acquire names none.
//   - Force. If the stream broke and the owner's port refuses a connection, the standby acquires at once. MayForce decides whether it
//     may. It uses the connection to Redis that it had before the stream broke: behind a failover the record may be an older one.
//   - Answer. After the stream of any standby broke or was closed, the owner answers nothing until a renewal is confirmed that it sent
//     after that. This renewal and the forced takeover exclude each other. The rule includes a standby that the record does not name,
//     because a failover may bring back the record that named it.
//   - Takeover. However the standby has acquired, it reads epoch and head together, and Takeover decides whether its memory is used.
//     If so, it serves at once on NewLine with Loaded set. If not, it loads.
//
// A standby that receives groups only after Redis has them is as safe, but it must load more often.
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
//	memory of a takeover           is what the store has
//	nothing expires in a gap       no lease ends because its deadline passed while nobody could renew it
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
//	a failover brings back the record that named the       any broken stream stops the answers, and a standby forces only on
//	  standby of a stream that broke                         the connection to Redis that it had before
//	a failover loses the head that a stream began with,    a load begins at a head that the groups have led to
//	  its writer sends that group again after the load
//	a failover brings back the owner before, its           nobody follows an owner with a lower epoch than it has seen
//	  successor follows it and drops what is lost
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
//	answers after the stream broke                         the standby forces, and two owners serve
//	a renewal does not compare the beat                    one that arrives late names the standby again
//	a group is applied when it arrives                     it is never kept, and memory has it
//	a load goes on across a failover                       memory has items of two states
//	released before the last group is answered             its fence is answered after its successor's
//
// # How to run it
//
//	go test ./store/backend/redis/protocol
//	WAGGLE_EXPLORE=long GOGC=40 go test -v -run Protocol -timeout 1h ./store/backend/redis/protocol
//
// The first takes seconds. The second explores 119.9 million states, up to 52 events deep, in eight minutes of a core and 1.8 GB.
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
//   - A stream that breaks at one end first. In the model both ends know at once. A firewall that resets one end only, and refuses the
//     owner's port while the owner lives, lets the owner answer reads until its next renewal shows another epoch: a sixth of
//     a term. What it writes is refused. Pings that are answered by the standby would close this.
//   - What is lost if a failover loses a forced takeover. The owner before goes on at its next confirmed renewal, and nobody counts
//     what the standby has answered.
//   - How long a gap was. The model knows of each deadline whether it passed in one.
//   - Locks deleted by hand, the lengths of leases, rewrites of more than two groups, streams with more than two groups on their way.
package protocol
