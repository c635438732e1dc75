// Package backend is the contract between package store, which has the rules of dispatch and everything in memory, and what keeps
// it for the next start: a directory (package dir). A backend knows neither tasks nor queues. It keeps items in the form of package
// codec, and knows of an item no more than its name, its shard and its bytes. Package backendtest has the suite for all of them.
//
// # What is kept
//
// A store is loaded from its items alone. So whatever an answer has promised is an item, or follows from items:
//
//	tasks, sources, lanes, rules, holds, collectors    items, a task in parts that replace each other
//	the next grant of a queue                          within the task that moved it: a queue without tasks has no item for it
//	a block, the asked delay, failed URLs of a queue   an item of the queue, only while it has one of them
//	used client tokens                                 an item for each grant that has ended, not for each task
//	the rule behind a settings name                    an item: the rule that was set last counts, and no order of rules shows that
//	lanes                                              written once; dropped ones stay while a settled task names them
//	highest fence, versions, counters                  one item for each shard, in each group
//	orphans (a waiting task that a lease still names)  fields of the task
//	counts of a source                                 a part of the source, in the group of the command
//	tasks that are over, of an [Archive]               apart from the items, and counted by their lanes; a group has what leaves them
//	when a collector was seen                          in each group that has the collector; single beats are not kept
//	orders, places, counts in flight and waiting       made anew at a load: leases by deadline, lists of holders, picks
//	locks of leases                                    beside the items, where [Term.Keyed]: they follow from the tasks
//	calls of a grant, who waits longest                given up at a load: nothing is given back, the lease expires; fairness begins anew
//
// # Why a directory has a log of its own
//
// Two databases were tried in the place of the log of package dir, with the same groups, 100 tasks a call:
//
//	                          log          pebble 2.1.7            bbolt 1.5
//	speed                     1            0.58 to 0.71            0.2
//	bytes written             1            2                       20
//	full disk                 refuses      ends the process        -
//	damage in the middle      is refused   2,000 of 20,000         -
//	                          by name      acknowledged tasks are
//	                                       missing, without a word
package backend

import (
	"context"
	"errors"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Backend keeps the items of one store for one owner at a time. After Acquire and Load the owner's goroutines call the other methods
// at the same time. No method keeps bytes that it was given longer than it runs.
//
// Errors wrap [dispatch.ErrStoreFull] if there is no room, [dispatch.ErrStoreMismatch] if what is kept is another store, another
// format or has other shards, and else [dispatch.ErrStoreUnavailable].
type Backend interface {
	// Acquire makes the caller the only owner, in one conditional step, and makes the store if there is none. While another owner
	// lives it returns [ErrInUse], or waits until it can take the store over under a higher epoch: then nothing that the other one
	// sends later is kept. After an error nothing is owned.
	Acquire(ctx context.Context, owner Owner) (Term, error)

	// Load gives the items of a shard, or with [AllShards] of all: exactly those of all groups that were acknowledged, perhaps some
	// of groups that were not. Of groups that were not acknowledged each is there as a whole or not at all, and none without those
	// before it. It follows Acquire, or [Owner.Gained], and changes nothing that is kept. The error wraps [ErrDamaged] if something
	// that was acknowledged cannot be read.
	Load(ctx context.Context, shard int, items Items) error

	// Room takes room for a group of about so many bytes, before the command changes anything; an error refuses the command: the
	// shard is not owned, or there is no room. grows: the command adds data. It is refused while enough is left for the commands
	// that end work, remove data or stop something, so that a full store can be emptied. A call of Commit with the same room follows.
	Room(shard, bytes int, grows bool) error

	// Commit takes a group that is to be kept as a whole, behind all that came before for this shard, and does not wait for that.
	// room is what Room was asked for. A nil group only gives it back, and the result is nil.
	//
	// A group of [AllShards] changes several shards at once. A backend whose shards fail apart cuts it by the shard that each of
	// its items names: what a shard lacks then follows from shard 0 when it is loaded.
	//
	// Once a group could not be kept, or the owner has lost the shard, no later group of that shard is kept, until the shard is
	// acquired again.
	Commit(shard int, group []byte, room int) Commit

	// Until is the instant, by the clock of this machine, up to which the owner may answer reads and grants of a shard; zero: there
	// is no limit. The error says why nothing may be answered: the owner has lost the shard, or a group could not be kept. It
	// is asked before each answer, and waits only while the owner finds out whether it still is one.
	Until(ctx context.Context, shard int) (time.Time, error)

	// EndCopy makes an unfinished copy of another store a whole one. It can be repeated.
	EndCopy(ctx context.Context) error

	// Release waits for the groups under way and gives up the store, so that the next owner need not wait for the end of a term. It
	// may make a last snapshot. Nothing may be called after it; it can be repeated, and follows a Load that has failed, too.
	Release(ctx context.Context) error
}

// Owned is a backend that other dispatchers can take over.
type Owned interface {
	Backend
	// Ownership is who owns the store, and what this backend has seen of that. It is asked often and before Acquire has returned
	// too, so it does not wait.
	Ownership() dispatch.Ownership
	// HandOver begins to give all shards to the standby, and returns its name: see [dispatch.Store].
	HandOver(ctx context.Context) (to string, err error)
}

// Measured is a backend that is measured while it keeps groups.
type Measured interface {
	Backend
	// Measure has kept called from now on with the bytes of each group that is kept, and the time since its first change. It must not block.
	Measure(kept func(bytes int, took time.Duration))
	// Usage is what the backend takes and has left now. It does not wait for the store.
	Usage() Usage
}

// Usage is what a backend takes and has left. What is not known is 0.
type Usage struct {
	// Used bytes, of so many that it may use; Limit 0: there is no limit. Of several servers: those of the fullest one.
	Used, Limit int64
	// Disk has the bytes of the disk that others or the backend use or that are Free, without what is reserved; only of a directory.
	Disk, Free int64
	// Oldest is the age of the oldest group on its way; 0: there is none.
	Oldest time.Duration
}

// Archive is a backend that keeps tasks that are over apart from what the owner has in memory: those that [Snapshot.Apart] has got. Its
// methods may be called until Release.
type Archive interface {
	Backend
	// Recall gives what is kept apart of those tasks of a shard, in any order, and nothing of those that are not. It is called while
	// a command waits, mostly for tasks that nobody has seen, which must cost next to nothing. entry is valid until each returns; each is
	// not called by two at once.
	Recall(ctx context.Context, shard int, keys [][16]byte, each func(entry []byte)) error
	// Each gives the entries of all tasks that are apart in a shard, or with [AllShards] in all. Some of them may be back in memory by now.
	Each(ctx context.Context, shard int, each func(entry []byte) error) error
}

// AllShards is the shard of what concerns all of them.
const AllShards = -1

// Commit is a group on its way.
type Commit interface {
	// Wait returns nil when the group is kept, and all before it. After an error that is not the context's the group may be kept
	// or not. It can be called by many, and again.
	Wait(ctx context.Context) error
	// Part is what of a group of [AllShards] concerns a shard, as far as that is kept by itself; nil: all of that is kept.
	Part(shard int) Commit
}

// Owner is who uses the store.
type Owner struct {
	// Shards is how many the store must have; 0: as it was made, else the backend's default.
	Shards int
	// Snapshot writes all items of a shard, or with [AllShards] of all, as of one instant, and may take long: commands go on. A
	// backend that compacts what it keeps calls it once a group of this term is kept: before, the owner may have not placed all of
	// what it has loaded.
	Snapshot func(shard int, to Snapshot) error
	// Forget forgets those of the tasks of a shard that are over and whose time has come: an [Archive] calls it for what it has apart.
	Forget func(ctx context.Context, shard int, keys [][16]byte) error
	// Now is the clock of the store; nil: that of the machine.
	Now func() time.Time
	// Leased reports whether leases stand. How long the store is without an owner matters only then.
	Leased func() bool
	// Follow is called by a backend with [Term.Keyed] while another owner has a shard: what it returns takes what is kept, and what the
	// owner changes then. Gain.Kept of that shard says later that this is the latest. It can be called again, which drops what
	// was taken before. nil: nothing is followed.
	Follow func(Followed) (Standby, error)
	// Gained is called by a backend with [Term.Keyed] when it has acquired a shard later than by Acquire. The shard can be used when it
	// has returned nil; after an error the backend acquires it again.
	Gained func(ctx context.Context, gain Gain) error
	// Unlocked is called by a backend with [Term.Keyed] when a group is kept whose locks were not as they must be, before anybody
	// learns that it is kept. The group is answered after the commit that it returns, which may be nil. After an error nothing was
	// undone: the group is not answered, and Unlocked is called again in the next term.
	Unlocked func(shard int, locks []Unlocked) (Commit, error)
}

// Snapshot takes what [Owner.Snapshot] writes.
type Snapshot struct {
	// Begun is called at the instant of the snapshot: what Commit had got by then is in it, nothing later is. nil: nothing is called.
	Begun func()
	// Write takes a piece of whole items.
	Write func(piece []byte) error

	// Apart, of an [Archive], takes entries of tasks that are over ([codec.Apart]), in any order: those that the owner has in memory,
	// which are not among the items, and the removals of some that are apart and have changed since the last snapshot. An entry
	// replaces those of the same task that came before, in this snapshot or an earlier one.
	Apart func(entries []byte) error
	// Kept, with Apart, is called when all is written. Once it has returned nil, the owner drops those tasks from its memory, and asks
	// for them by [Archive.Recall]; so the snapshot and what is apart have to become valid in one step.
	Kept func() error

	// Expand, without Apart, gives the entries of all tasks that are apart, as [Archive.Each] does: the snapshot has them as items then.
	// Missing gets how many it did not give; nil: that is an error.
	Expand  func(each func(entry []byte) error) error
	Missing func(tasks int64)
}

// Gain is a shard that the owner has acquired.
type Gain struct {
	Shard int
	// Kept: what the owner has in memory, or what it has taken as a standby ([Owner.Follow]), is what is kept. Else it loads the shard.
	// Locks may be missing in both cases.
	Kept bool
	// Away is how long nobody owned it, at least. Collectors could not renew leases meanwhile.
	Away time.Duration
	// Renewed is when an owner has shown its last sign of life, by the clock of the store; zero: nobody knows.
	Renewed time.Time
}

// Followed is a shard that another owner has.
type Followed struct {
	// Shard of so many.
	Shard, Shards int
	// Now is the clock of the store.
	Now func() time.Time
}

// Standby takes what another owner keeps: first the items, each as it was at some instant since the standby began, then all groups since
// then, in order.
type Standby interface {
	Items
	// Warm prepares to be the owner at once. Groups follow.
	Warm() error
}

// Unlocked is a lock that a group has not set: a grant found one of somebody else, a renewal found none.
type Unlocked struct {
	Task, Token string
	// Value is that of the lock that a grant has found, and TTL how long that lasts, 0 for without end.
	Value string
	TTL   time.Duration
	// Ends is that of the [codec.Lock] of a renewal.
	Ends int64
}

// Term is what an owner has acquired.
type Term struct {
	// Kind of the store, such as "file".
	Kind string
	// Epoch is higher than that of all owners before; 0: a lock of the operating system keeps others out.
	Epoch uint64
	// Away is how long nobody owned the store, at least; only without Keyed. Collectors could not renew leases meanwhile.
	Away time.Duration
	// Keyed: the backend has items under names and shows leases as locks. So a group has whole items, and what happens to locks
	// ([codec.Lock]); the shards are acquired and lost each by itself.
	Keyed bool
	// Shards of the store, and those that were acquired, 0 first; only with Keyed.
	Shards int
	Gained []Gain
	// Now is the clock of the store; nil: that of the machine.
	Now func() time.Time
}

// Items take what is loaded.
type Items interface {
	// Begin drops what was taken so far and begins an empty store of that many shards; 0: as the snapshot says that comes next.
	Begin(shards int) error
	// Add takes the next piece of a snapshot, as [Owner.Snapshot] has given it, or with [Term.Keyed] of the items that are kept,
	// in any order.
	Add(piece []byte) error
	// Ended is nil if a whole snapshot was added.
	Ended() error
	// Group takes a group that came later, or any other number of items behind the head of a group.
	Group(group []byte) error
}

// Errors of a backend.
var (
	// ErrInUse: the store has another owner.
	ErrInUse = errors.New("the store is in use")
	// ErrDamaged: something that was acknowledged cannot be read.
	ErrDamaged = errors.New("the store is damaged")
)
