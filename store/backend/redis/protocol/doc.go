// Package protocol holds the decisions by which one dispatcher owns a shard that is kept in Redis. They are pure functions: the
// backend calls them, and a model in the tests calls the same ones in every order of events within bounds. This text is the
// specification; design.md has the reasons for one owner, and this text has only how ownership works.
//
// # Keys of a shard
//
//	epoch   number and process of the owner; written by acquire only
//	record  the owner's name, address, beat; written by acquire, renew and hand-over
//	head    epoch and sequence of the last group, last fence, rewriting, counters; written by each group
//	items   tasks and all else
//	locks   one for each lease
//
// # Ownership
//
// Acquire, renew and hand-over are allow-oom scripts that compare before they write, so that they work while Redis is full.
//
//   - Acquire compares the epoch and the whole record with what the candidate has read, and writes both. MayAcquire says when a
//     candidate may try, NextEpoch which epoch it mints. A connection that breaks ends the watch of the record: the next
//     connection may lead to a promoted replica. If the reply is lost, the process is a candidate again, of its own record.
//   - The new owner reads the epoch and the head, then decides by Line.Resolve whether it keeps memory of an earlier term. Else it
//     loads the items, reads the epoch again behind the last page, and drops what it loaded if the epoch is not its own.
//   - Renew compares the epoch and that the record is not released. It returns the head, and the owner passes both to Line.Resolve:
//     an owner without work must notice a failover that lost writes. The term counts from before the send.
//   - MayServe is asked before each answer. An owner out of its term is a candidate of its own record. It keeps its memory and its
//     unconfirmed group until it has read the head under an epoch of its own.
//   - Each call that is passed on carries the highest epoch that its sender has seen. An owner that hears of a higher one
//     stops, and acquires past it.
//   - Hand-over needs an owner without an unconfirmed group. It stops to answer first, then marks the record as released.
//
// # Groups
//
// One group is in flight. Its condition is the owner's epoch and the head that it follows (Line.Kept), both by WATCH and by
// comparison on that connection. AfterSend says what follows from each reply, Line.Resolve what follows from reading.
//
//   - The client is answered after the group is confirmed and only within the term. Reads answer from confirmed state, so they
//     wait for the group that holds what they saw.
//   - A sequence is never used for two groups. The same group may be sent again under the same epoch and sequence. Under a new
//     epoch the same content is another group with another sequence.
//   - A group that Redis refuses because it is full is sent again by the allow-oom script, whatever it holds. Its condition
//     is the same. Memory already has what the group holds, so it must be kept before anything else can be.
//   - A grant whose SET NX failed is not answered. It is undone by a group of its own. If the reply was lost, the
//     lock is read: the grant stands only if the lock holds its token.
//
// # Rewrite
//
// Line.Resolve returns Rewrite if the head is older than memory, but on its line. Groups then follow the head that was found
// (Line.Rewritten). They write every item that memory has, each with its lock, and say rewriting. Then they delete the items
// that memory lacks, and their locks. The last one clears rewriting. A foreign lock stays. Nothing is answered until the end. A
// successor that loads in between finds items of two ages, but no report without the tasks that it discovered.
//
// # Invariants
//
//	nothing that was answered is missing     while its owner is owner, or Redis lost no write; checked in each state
//	one lease a task                         no grant is answered while another answered lease of the task runs
//	a grant has its lock                     its token was in the lock when it was answered
//	fences rise                              in the order of answers, over takeovers and steps of the clock
//	reads are kept and current               no older than the last answer, no newer than the store
//	one owner serves                         at any time, unless a failover has lost the epoch of one
//	epochs rise                              no process accepts an epoch that is not above all it has seen
//	store and memory are equal               items, deletions and locks, whenever no group is in flight; so after a rewrite too
//	a report is whole                        no settled task without the task that it discovered; in each state
//	somebody can serve                       without further faults, from each state that is tried, and while Redis stays full too
//
// What a failover loses is excused only when another process writes before the owner has rewritten it. That is what a dispatcher
// reports as lost with its owner.
//
// # What the explorer changed
//
//	counterexample                                          so
//	two failovers mint the same number                      an epoch names its process
//	a rewrite follows the last confirmed head: refused      it follows the head that was found
//	  for ever
//	after a failover, a rewrite uses a number again; the    no number is used twice (Line.Last)
//	  late EXEC of the number's first group is applied
//	a term ends during a load; the owner acquires anew      memory counts as loaded only behind the second read of the
//	  and keeps half of the items                             epoch (Line.Loaded)
//	a failover between two pages: items of two ages         the same
//	a failover puts back the head that the owner loaded     that head is on the owner's line too (Line.Base): rewrite
//	  from; "not mine" drops answered writes
//	an owner without work never notices a failover          renew returns the head
//	the watch of the record goes on over a failover: the    a broken connection begins the watch anew
//	  replica has an older beat, and two owners serve
//	deletions first, then a takeover                        deletions last
//	Redis is full: a refused group blocks reports, and a    groups by script whatever they hold; acquire and renew
//	  renewal in MULTI is refused too                         are scripts always
//	a late confirmation is answered after the successor's   confirmations are answered within the term only
//	  grant: fences fall
//
// # How to run it
//
//	go test ./store/backend/redis/protocol                        small bounds, and mutants that must be found
//	WAGGLE_EXPLORE=long go test -timeout 1h -v -run Protocol ./store/backend/redis/protocol
//
// # What the model leaves out
//
//   - Two primaries at once. A primary that is cut off and still takes writes can have an owner of its own, until
//     min-replicas-to-write stops it. Only WAIT behind acquire, renew and groups closes that gap.
//   - Two changes of owner that one failover loses. The last owner then loads, and what it had answered is lost with it.
//   - A pause between the check of the term and the answer. Only a bound on the time between the two helps.
//   - A machine that sleeps: the monotonic clock of Linux stops then, so a term needs CLOCK_BOOTTIME there.
//   - A lock that is deleted by hand, lengths of leases, standbys, and more than one failover in a run.
package protocol
