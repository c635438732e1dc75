package protocol

import "time"

// Process names one run of a dispatcher: a random number that is drawn at its start, so that "mine" never means the same
// dispatcher before its restart.
type Process uint64

// Epoch is the value of a shard's epoch key. It names the process beside the number: after a failover that lost an epoch,
// two processes can mint the same number.
type Epoch struct {
	Number  uint64
	Process Process
}

// Record is what the owner's record says about ownership. Two equal records mean that nobody renewed in between.
type Record struct {
	Epoch    Epoch
	Beat     uint64  // rises with each renewal that is sent, confirmed or not
	Released bool    // the owner has stopped and handed over
	Standby  Process // the dispatcher that follows the owner's groups, may force a takeover and is the heir of a hand-over; zero: none
}

// Head is what a group is conditional on and what it writes. Only the owner writes it, and one pair of Epoch and Seq is always
// the same group.
type Head struct {
	Epoch     Epoch
	Seq       uint64 // rises with each group, over changes of owner too, and may have gaps
	Fence     uint64 // the last one that was minted
	Rewriting bool   // items may be older than the head: a rewrite after a failover has not ended
}

// Same reports whether two heads name the same group.
func (h Head) Same(other Head) bool { return h.Epoch == other.Epoch && h.Seq == other.Seq }

// NextEpoch returns the epoch that me acquires, where seen is the highest number that me has ever read or minted. It rises past
// seen because a failover may have put an older epoch back.
func NextEpoch(me Process, found Epoch, seen uint64) Epoch {
	return Epoch{Number: max(found.Number, seen) + 1, Process: me}
}

// NextFence returns the fence of the next grant; now is the backend's clock in microseconds, which may step.
func NextFence(last, now uint64) uint64 { return max(last+1, now) }

// MayServe reports whether the owner may answer: grants, reads and confirmations alike. The age is the time since the owner
// *sent* the last renewal that was confirmed, by its own clock. The third that is left out is for clocks of different speed.
func MayServe(age, term time.Duration) bool { return age < term*2/3 }

// MayAcquire reports whether me may try to become the owner. Watched is for how long, by its own clock, me has read this same
// record on one connection that answered throughout. A broken connection sets it to zero: the next one may lead to
// a replica that has never received the owner's last renewals.
//
// A record that names a standby is for that one first, because it has the memory. The others wait for a quarter of a term more than
// for an owner without a standby, since the standby may have died. If the record was released, the standby need not wait at all.
func MayAcquire(me Process, found Record, watched, term time.Duration) bool {
	first := found.Standby == 0 || found.Standby == me
	switch {
	case found.Epoch.Process == me, found.Released && first:
		return true
	case first:
		return watched >= term
	default:
		return watched >= term+term/4
	}
}

// Compare is the condition of a group, both for EXEC (by WATCH) and for the script: nothing else may have been written in between.
func Compare(epoch, foundEpoch Epoch, after, foundHead Head) bool {
	return epoch == foundEpoch && after.Same(foundHead)
}

// Reply is what came back after a group was sent.
type Reply uint8

// The replies to a group.
const (
	ReplyApplied Reply = iota // every command was applied; its locks' replies say which SET NX failed
	ReplyNil                  // EXEC was refused: something watched has changed, and nobody knows what
	ReplyFull                 // over maxmemory: nothing was applied
	ReplyLost                 // timeout or broken connection: the group may be applied now, later or never
)

// Step is what an owner does next about its memory and the group that it sent.
type Step uint8

// The steps of an owner.
const (
	Confirm  Step = iota // the group is kept: answer, then send the next
	ReadBack             // connect if the connection is in doubt, WATCH, read epoch and head, then decide by Line.Resolve
	Script               // send the same group by the allow-oom script, whatever it holds, and refuse commands that grow
	Resend               // the group is not kept: send it again
	Rewrite              // a failover lost writes: write everything that memory has, then delete what it lacks
	StepDown             // another epoch stands: stop answering; memory stays until the head is known under an epoch of its own
	Reload               // memory is not the latest state: drop it, acquire anew if anything was sent under this epoch, and load
)

// AfterSend returns the step that a reply to a group calls for.
func AfterSend(reply Reply) Step {
	switch reply {
	case ReplyApplied:
		return Confirm
	case ReplyFull:
		return Script
	default:
		return ReadBack
	}
}

// Line says which states of the shard the owner's memory descends from. Its zero value is a process without memory.
type Line struct {
	Loaded bool   // memory is whole: set after the epoch was read once more behind the last page
	Base   Head   // the head that memory was loaded from
	First  uint64 // the number of the owner's first epoch after that load
	Kept   Head   // the store's head as last known: the next group follows it
	Sent   Head   // of the group whose outcome is not known; zero if there is none
	Last   uint64 // the highest sequence that was given to a group, sent or not
}

// NewLine returns the line of memory that is loaded under own, from a store with this head.
func NewLine(own Epoch, found Head) Line {
	return Line{Base: found, First: own.Number, Kept: found, Last: found.Seq}
}

// Next returns the line with one more group to be sent, whose head is Sent, and whose sequence is that much higher, at least by 1. No
// sequence is used twice, because a head is taken as
// the proof of what its group wrote: a group that was given up may have been applied, or arrive late.
func (l Line) Next(own Epoch, fence, by uint64, rewriting bool) Line {
	l.Last += max(by, 1)
	l.Sent = Head{Epoch: own, Seq: l.Last, Fence: fence, Rewriting: rewriting}
	return l
}

// Confirmed returns the line after its group turned out to be kept.
func (l Line) Confirmed() Line {
	l.Kept, l.Sent = l.Sent, Head{}
	return l
}

// Rewritten returns the line that rewrites a store with an older head: its groups follow that head, by new numbers. The owner goes
// on with the rewrite until the last group is confirmed, over new epochs too, and begins again when Resolve returns Rewrite again.
func (l Line) Rewritten(found Head) Line {
	l.Kept, l.Sent = found, Head{}
	return l
}

// holds reports whether memory has everything that a store with this head has: the head is one that memory wrote, or it is the one
// that memory was loaded from, or an earlier one: of the same owner, of those before, or none since the store is empty.
func (l Line) holds(found Head, me Process) bool {
	mine := found.Epoch.Process == me && found.Epoch.Number >= l.First
	earlier := found.Epoch == l.Base.Epoch || found.Epoch.Number < l.Base.Epoch.Number
	return mine || earlier && found.Seq <= l.Base.Seq
}

// Resolve decides by the epoch and the head that were read together, after any doubt and after each acquire. The epoch own is
// the one that the owner acquired last.
func (l Line) Resolve(own, epoch Epoch, found Head) Step {
	switch {
	case epoch != own:
		return StepDown
	case !l.Loaded:
		return Reload
	case l.Sent != (Head{}) && found.Same(l.Sent):
		return Confirm
	case found.Same(l.Kept):
		return Resend
	case l.holds(found, own.Process):
		return Rewrite
	default:
		return Reload
	}
}
