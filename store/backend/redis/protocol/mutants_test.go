package protocol_test

import "testing"

// refuse wants the explorer to find what is wrong in m.
func refuse(t *testing.T, m mutant, b bounds, first state) {
	t.Helper()
	r := explore(m, b, first)
	t.Logf("%d states, depth %d: %s\n%s", r.states, r.depth, r.wrong, r.trace)
	if r.wrong == "" {
		t.Errorf("not found in %d states", r.states)
	}
}

// TestExplore_Mutants wants the explorer to find what is wrong in each mutant, and logs how.
func TestExplore_Mutants(t *testing.T) {
	const rewrites = 1 << failover
	for _, c := range []struct {
		name string
		m    mutant
		b    bounds
	}{
		{"head not watched", mutant{headNotWatched: true}, bounds{1, 2, 1, 1 << sendLate}},
		{"epoch not compared", mutant{epochNotCompared: true}, bounds{1, 1, 1, 1 << sendLate}},
		{"script without compare", mutant{scriptNotCompared: true}, bounds{2, 2, 1, 1<<fill | 1<<sendLate}},
		{"resend without reading", mutant{resendsBlindly: true}, bounds{2, 3, 1, rewrites | 1<<loseReply}},
		{"acquire not conditional on the record", mutant{acquiresBlindly: true}, bounds{0, 0, 2, 0}},
		{"no margin at two thirds", mutant{noMargin: true}, bounds{1, 0, 1, 1 << slowTick}},
		{"term counted from the answer", mutant{countsFromAnswer: true}, bounds{1, 0, 1, 1 << slowTick}},
		{"record watched across a failover", mutant{watchesAcrossFailover: true}, bounds{2, 0, 1, rewrites | 1<<slowTick}},
		{"answer before the group", mutant{answersEarly: true}, bounds{1, 2, 1, 1 << loseReply}},
		{"grant answered without its lock", mutant{answersFailedLock: true}, bounds{1, 1, 1, 1 << lockByHand}},
		{"requeue before the deadline", mutant{requeuesEarly: true}, bounds{0, 2, 1, 0}},
		{"renewal kept in the lock only", mutant{renewsLockOnly: true}, bounds{1, 3, 1, 1 << expire}},
		{"read of what is not kept", mutant{readsMemory: true}, bounds{0, 1, 1, 0}},
		{"fallen epoch accepted", mutant{fallenEpoch: true}, bounds{1, 0, 2, rewrites}},
		{"fence from the clock only", mutant{clockFence: true}, bounds{1, 3, 1, 1 << stepBack}},
		{"sequence used again", mutant{reusesSequence: true}, bounds{2, 3, 0, rewrites | 1<<sendLate}},
		{"rewrite without deletes", mutant{rewriteWithoutDeletes: true}, bounds{1, 2, 1, rewrites}},
		{"rewrite deletes first", mutant{rewriteDeletesFirst: true}, bounds{1, 2, 1, rewrites}},
		{"rewrite without locks", mutant{rewriteOmitsLocks: true}, bounds{1, 3, 1, rewrites}},
		{"rewrite follows the last confirmed head", mutant{rewriteFollowsKept: true}, bounds{1, 1, 1, rewrites}},
		{"loss not noticed without work", mutant{renewsBlindly: true}, bounds{1, 1, 1, rewrites}},
		{"full store without script", mutant{neverScripts: true}, bounds{1, 1, 1, 1 << fill}},
		{"answer after the term", mutant{answersLate: true}, bounds{2, 2, 1, 1<<pause | 1<<expire}},
		{"epoch without process", mutant{epochWithoutProcess: true}, bounds{1, 2, 2, rewrites}},
		{"memory loaded before the check", mutant{loadedEarly: true}, bounds{0, 0, 2, 0}},
		{"load not verified", mutant{loadsUnverified: true}, bounds{1, 2, 2, rewrites}},
		{"memory kept whatever the head", mutant{keepsMemory: true}, bounds{0, 1, 2, 0}},
		{"a lease ended that nobody could renew", mutant{endsInGap: true}, bounds{2, 1, 1, 1<<kill | 1<<expire}},
		{"base forgotten", mutant{forgetsBase: true}, bounds{1, 2, 2, rewrites}},
	} {
		t.Run(c.name, func(t *testing.T) { refuse(t, c.m, c.b, initial()) })
	}
}

// TestExplore_StandbyMutants is TestExplore_Mutants with a standby.
func TestExplore_StandbyMutants(t *testing.T) {
	const breaks = 1 << breakStream
	warmed, following := initial().warmed(0), initial().following(1)
	// B holds a report that Redis may never have.
	unkept := initial().warmed(1).after(0, grant, send, deliver, reply, report, sendLate, deliver)
	// A is going to send a report, and the replica does not follow any more.
	reported := following.after(0, grant, send, reply, lag, report)
	// B has loaded a group of A that a failover has lost together with the epoch of B, and A does not know that it was kept.
	resent := initial().warmed(1).after(0, lag, renew, grant).after(1, breakStream).after(0, send).after(1, force, readBack, load).
		after(0, renewed, tick, failover, readBack)
	for _, c := range []struct {
		name  string
		m     standbyMutant
		b     bounds
		first state
	}{
		{"forced by a candidate that is not named", standbyMutant{forcesUnnamed: true}, bounds{1, 0, 1, breaks}, following},
		{"forced after the owner has renewed", standbyMutant{forcesLate: true}, bounds{1, 0, 1, breaks}, warmed},
		{"forced across a failover", standbyMutant{forcesAcrossFailover: true}, bounds{2, 0, 1, breaks | 1<<failover}, warmed},
		{"answers after the stream broke", standbyMutant{ignoresBreak: true}, bounds{1, 0, 1, breaks}, warmed},
		{"answers after an older renewal", standbyMutant{confirmsByOld: true}, bounds{1, 0, 1, breaks}, warmed},
		{"answers if the standby was not named", standbyMutant{stopsIfNamed: true}, bounds{3, 0, 1, breaks | 1<<failover}, initial().warmed(1)},
		{"a late renewal names again", standbyMutant{renewsLate: true}, bounds{2, 0, 1, breaks | 1<<renewLate}, warmed},
		{"a group applied when it arrives", standbyMutant{appliesAtOnce: true}, bounds{2, 1, 1, breaks | 1<<sendLate}, warmed},
		{"a group applied that was not kept", standbyMutant{appliesDropped: true}, bounds{0, 3, 2, 0}, unkept},
		{"the group that is held left out", standbyMutant{leavesHeld: true}, bounds{1, 1, 1, breaks}, warmed},
		{"a gap", standbyMutant{takesGap: true}, bounds{2, 2, 1, breaks}, initial().warmed(1)},
		{"taken over before memory is whole", standbyMutant{takesCold: true}, bounds{1, 0, 1, breaks}, following},
		{"warm before the groups have caught up", standbyMutant{takesUnread: true}, bounds{2, 2, 1, breaks | 1<<failover}, reported},
		{"a load begins from a head that the groups have not led to", standbyMutant{scansUnread: true}, bounds{2, 1, 2, 0}, resent},
		{"a load goes on across a failover", standbyMutant{scansAcrossFailover: true}, bounds{2, 2, 1, breaks | 1<<failover}, reported},
		{"released before the last group", standbyMutant{releasesEarly: true}, bounds{2, 2, 1, 1<<handOver | 1<<expire}, warmed},
		{"released before the owner stops", standbyMutant{servesReleased: true}, bounds{1, 0, 1, 1 << handOver}, initial()},
	} {
		t.Run(c.name, func(t *testing.T) { refuse(t, mutant{standbyMutant: c.m}, c.b, c.first) })
	}
}
