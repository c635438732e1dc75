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
)

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
		{"FailedURLs", failedURLCases()},
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
		{"Histories", historyCases()},
		{"SourceHolds", sourceHoldCases()},
		{"Push", pushCases()},
		{"Rules", ruleCases()},
		{"Holds", holdCases()},
		{"QueueHolds", queueHoldCases()},
		{"HeldLeases", heldLeaseCases()},
		{"Queues", queueCases()},
		{"Pools", poolCases()},
		{"Tasks", taskCases()},
		{"PageBytes", pageBytesCases()},
		{"Collectors", collectorCases()},
		{"Bindings", bindingCases()},
		{"Audit", auditCases()},
		{"Notices", noticeCases()},
		{"Hints", hintCases()},
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
