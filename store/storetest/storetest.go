// Package storetest holds every implementation of [dispatch.Store] to its
// contract.
//
// [Run] is the conformance suite: small named cases by topic, each on a store
// of its own. [Model] is the model test: random operations, applied step by
// step to a store and, when one is given, to a reference, with complete answers
// compared and the promises checked by a [Checker] that reads only answers.
//
// Both move the store's clock by hand, so that they say to the millisecond when
// a lease ends and in which order tasks go out. A name such as T14 in a case is
// a fault that users of such systems have reported; the case holds it off.
package storetest

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Factory makes an empty store for one test, and whatever ends it when the test
// ends. It may call t.Parallel first when its instances have a clock each.
type Factory func(t *testing.T, opts Options) Instance

// Options say what kind of store a test needs.
type Options struct {
	// Shards of the store, at least 1.
	Shards int
}

// Instance is an empty store under test, and what the tests need to reach
// around the contract. All fields are required.
type Instance struct {
	Store dispatch.Store
	// Clock is the store's clock, which stands still but for its methods.
	Clock Clock
	// DeleteLock removes the lock of a task, as an operator might by hand.
	DeleteLock func(id dispatch.TaskID)
	// SetLock sets a lock as a failover might leave it behind, or somebody by hand; with a
	// ttl of 0 it has no end.
	SetLock func(id dispatch.TaskID, value string, ttl time.Duration)
	// LockValue reads the lock of a task and its time left, 0 = it has no end; empty = none.
	LockValue func(id dispatch.TaskID) (value string, ttl time.Duration)
	// DeleteRecord removes the record of a task and leaves the indexes, as a
	// failover might.
	DeleteRecord func(id dispatch.TaskID)
}

// Clock is a clock that stands still unless it is moved.
type Clock interface {
	// Now is what the clock shows, to the microsecond.
	Now() time.Time
	// Advance moves the clock, back when d is negative.
	Advance(d time.Duration)
	// Set moves the clock to now, which may be earlier than what it shows.
	Set(now time.Time)
}

// start is where every test begins. A whole second keeps failures readable.
var start = time.Date(2026, time.March, 2, 10, 0, 0, 0, time.UTC)

// testCase is one case of the suite.
type testCase struct {
	name string
	run  func(e *env)
}

// topic is the cases of one file.
type topic struct {
	name  string
	cases []testCase
}

// topics lists the whole suite.
func topics() []topic {
	return []topic{
		{"Submit", submitCases()},
		{"Revisit", revisitCases()},
		{"Claim", claimCases()},
		{"Named", namedCases()},
		{"Order", orderCases()},
		{"Line", lineCases()},
		{"Bounds", boundCases()},
		{"Orphans", orphanCases()},
		{"Locks", lockCases()},
		{"Politeness", politenessCases()},
		{"Replay", replayCases()},
		{"Polls", pollCases()},
		{"Renew", renewCases()},
		{"Apply", applyCases()},
		{"Succeed", succeedCases()},
		{"Details", detailCases()},
		{"Expiry", expiryCases()},
		{"Sessions", sessionCases()},
		{"Cancel", cancelCases()},
		{"Sources", sourceCases()},
		{"Push", pushCases()},
		{"Rules", ruleCases()},
		{"QueueHolds", queueHoldCases()},
		{"Queues", queueCases()},
		{"Pools", poolCases()},
		{"Tasks", taskCases()},
		{"PageBytes", pageBytesCases()},
		{"Collectors", collectorCases()},
		{"CollectorHolds", collectorHoldCases()},
		{"Cluster", clusterCases()},
		{"Stats", statsCases()},
	}
}

// Run runs the conformance suite, each case with one shard and with four.
func Run(t *testing.T, factory Factory) {
	t.Helper()
	for _, shards := range []struct {
		name  string
		count int
	}{{"OneShard", 1}, {"FourShards", 4}} {
		for _, topic := range topics() {
			for _, c := range topic.cases {
				t.Run(shards.name+"/"+topic.name+"/"+c.name, func(t *testing.T) {
					c.run(newEnv(t, factory, Options{Shards: shards.count}))
				})
			}
		}
	}
}
