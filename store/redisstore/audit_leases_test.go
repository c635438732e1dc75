package redisstore_test

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// checkLeases holds that a sweep finds each lease and each orphan in time (P5): the lease index
// has leases at most at their deadlines, and nothing of which there is no record. That it has
// each of them is what checkTasks holds.
func (a *audit) checkLeases() {
	members := make(map[string]*taskImage, len(a.tasks))
	for _, t := range a.tasks {
		members[t.member()], members[t.orphan()] = t, t
	}
	for member, at := range a.zset("leases") {
		switch t := members[member]; {
		case t == nil:
			a.say("the lease index has %s, which has no record", member)
		case t.Lease != nil && at > float64(t.Lease.Deadline.UnixMilli()):
			a.say("task %s, leased to %d, is in the lease index at %.0f", t.ID, t.Lease.Deadline.UnixMilli(), at)
		}
	}
}

// lockLate is how many ms later than its lease a lock may end: each time that a Cluster moves it
// to another node costs some.
const lockLate = 20

// checkLocks holds that the lock of a lease ends with it, and that no lock of a lease which has
// ended is left; others have set further locks by hand.
func (a *audit) checkLocks() {
	for id, value := range a.strings["lock"] {
		t, end := a.tasks[dispatch.TaskID(id)], a.ends["lock"][id]
		switch {
		case t == nil:
			if strings.Count(value, "/") == 2 && !strings.HasPrefix(value, "other/") {
				a.say("task %s is under the lock %s, and has no record", id, value)
			}
		case t.Lease != nil && value == t.Lease.Token.String():
			if late := end.Milliseconds() - t.Lease.Deadline.UnixMilli(); late < 0 || late > lockLate {
				a.say("the lock of task %s, leased to %d, ends at %d", id, t.Lease.Deadline.UnixMilli(), end.Milliseconds())
			}
		case strings.HasSuffix(value, "/"+strconv.FormatUint(t.LastLease.Fence, 10)):
			a.say("task %s is under the lock %s of the lease that ended last", id, value)
		}
	}
}

// checkHeld holds that the end of a session finds what it held: of each grant, by the
// client token, how many tasks are held and which were granted, as Held of internal/key says;
// and nothing of a grant of which nothing is held, which would stay for ever (P10).
func (a *audit) checkHeld() {
	held := a.held()
	for h, ids := range held {
		fields := a.hashes["held"][h.collector]
		one, isOne := fields["/"+h.token]
		many, isMany := fields[h.token+"/"]
		count, isCounted := fields[h.token]
		switch {
		case isOne && len(ids) == 1 && !isMany && !isCounted:
			many = one
		case !isOne && isMany && count == strconv.Itoa(len(ids)):
		default:
			a.say("%s holds %d tasks of grant %s, noted are one %q, %q of many %q", h.collector, len(ids), h.token, one, count, many)
		}
		noted, err := unpackNote(many)
		if err != nil {
			a.say("%s holds %d tasks of grant %s: %v", h.collector, len(ids), h.token, err)
		}
		granted := grantedIDs(noted)
		for _, id := range ids {
			if !slices.Contains(granted, id) {
				a.say("%s holds task %s of grant %s, noted are %q", h.collector, id, h.token, noted)
			}
		}
	}
	for collector, fields := range a.hashes["held"] {
		for field := range fields {
			if len(held[holder{collector, strings.Trim(field, "/")}]) == 0 {
				a.say("%s holds nothing of the grant of %s", collector, field)
			}
		}
	}
}

// holder is who holds what a client token was granted.
type holder struct{ collector, token string }

// held is what each holds.
func (a *audit) held() map[holder][]dispatch.TaskID {
	held := make(map[holder][]dispatch.TaskID)
	for id, t := range a.tasks {
		if t.State == dispatch.StateLeased {
			h := holder{t.Lease.Token.Collector, t.Lease.Token.ClientToken}
			held[h] = append(held[h], id)
		}
	}
	return held
}

// checkUsed holds that none of the client tokens which are remembered as used was granted
// anything (P7).
func (a *audit) checkUsed() {
	held := make(map[string]holder)
	for h := range a.held() {
		digest := binary.BigEndian.AppendUint64(nil, dispatch.HolderDigest(h.collector, h.token))
		held[string(digest)] = h
	}
	a.eachNoted("used", dispatch.TokenMemory, func(step int64, digest string) {
		for _, id := range a.held()[held[digest]] {
			if granted := dispatch.TokenStep(a.tasks[id].Lease.Granted); step-1 <= granted && granted <= step+1 {
				a.say("%v was used in step %d, and was granted task %s in step %d", held[digest], step, id, granted)
			}
		}
	})
	a.eachNoted("polled", redisstore.PollStep, func(int64, string) {})
}

// eachNoted gives the client tokens that are noted by steps of time, and holds that each is
// noted by a digest and each step ends.
func (a *audit) eachNoted(kind string, length time.Duration, each func(step int64, digest string)) {
	for name, digests := range a.zsets[kind] {
		step, err := strconv.ParseInt(name, 10, 64)
		if err != nil {
			a.say("client tokens are noted as %s in step %q: %v", kind, name, err)
		}
		want := time.Duration(step+2)*length + 24*time.Hour
		if end := a.ends[kind][name]; end != want {
			a.say("what was %s in step %d ends at %v, want %v", kind, step, end, want)
		}
		for digest := range digests {
			if len(digest) != 8 {
				a.say("of a client token that was %s in step %d, %q is noted", kind, step, digest)
			}
			each(step, digest)
		}
	}
}

// grantedIDs reads the ids of a grant, of which those that follow in one queue are
// without their slot (lua/grant.lua).
func grantedIDs(noted string) []dispatch.TaskID {
	var ids []dispatch.TaskID
	slot := ""
	for id := range strings.FieldsSeq(noted) {
		if of, suffix, whole := strings.Cut(id, "-"); whole {
			slot, id = of, suffix
		}
		ids = append(ids, dispatch.TaskID(slot+"-"+id))
	}
	return ids
}
