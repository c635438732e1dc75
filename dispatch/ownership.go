package dispatch

import "time"

// Ownership is who owns a store that one dispatcher at a time owns, and what this process has seen and done of that since it started.
// All numbers are of all shards together.
type Ownership struct {
	// Owner is the name of the dispatcher that owns the store, and Address is where others pass calls on to it. Both are empty if
	// there is no owner, or if it is not known.
	Owner, Address string
	// Owning is true if this process is the owner.
	Owning bool
	// Epoch is the highest that was seen. It rises with each change of owner.
	Epoch uint64
	// Since is when the owner acquired the store, or when this process saw that first, by the clock of the store.
	Since time.Time
	// Away are the shards without an owner, ascending.
	Away []int
	// Ownerless is how long a shard, or the whole store, has been without an owner by now: the longest of all; 0: each has one.
	Ownerless time.Duration

	// Standby is the name of the dispatcher that has the first shard in memory too, and takes over within a second when its owner dies;
	// empty: there is none.
	Standby string
	// WithStandby is how many shards this process owns that have a standby, WithoutStandby how many have none.
	WithStandby, WithoutStandby int
	// WithoutStandbyFor is how long a shard of this process has had no standby although another dispatcher is there, or was in the last
	// hour, the longest of all; 0: each has one, or no other dispatcher is known.
	WithoutStandbyFor time.Duration
	// Forced are the shards that this process has taken over as a standby whose owner had died. Warm are those that it had in memory
	// when it acquired them, Loaded those that it had to load.
	Forced, Warm, Loaded int64

	// OwnerlessTotal is for how long a shard or the whole store had no owner, the present time included.
	OwnerlessTotal time.Duration
	// Changes of owner that were seen, those to this process included.
	Changes int64
	// RecentChanges are those of the last 10 minutes.
	RecentChanges int64
	// SelfFences are the terms of this process that ran out before a renewal was confirmed: it stopped to answer. SelfFenced is when
	// the last one was, by the clock of the store; zero: none was.
	SelfFences int64
	SelfFenced time.Time
	// Groups that this process has kept, with their bytes. GroupTime is the sum of their times from the first send to the
	// confirmation.
	Groups, GroupBytes int64
	GroupTime          time.Duration
	// Refused are groups of this process that were not kept, because the store had another epoch. RefusedAt is when the last one was,
	// by the clock of the store; zero: none was.
	Refused   int64
	RefusedAt time.Time
	// LoadTime is how long the last load of the store or of a shard took, and LoadedItems what it had; 0: there was none.
	LoadTime    time.Duration
	LoadedItems int64
	// Rewritten are items that this process wrote again after a failover had lost them. Deleted are those that it deleted then,
	// because the failover had brought them back.
	Rewritten, Deleted int64
	// LostTasks are changes of tasks that owners before this process had kept, so far as it saw, and that were gone when it loaded
	// the store: a failover has lost them together with their owner.
	LostTasks int64
}
