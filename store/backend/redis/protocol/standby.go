package protocol

import "time"

// MayForce reports whether me may acquire at once from an owner that has not released the record and may still be in its term. Me
// is the standby in the record, its stream to the owner of epoch gone broke, and after that the owner's port refused a connection.
// The owner knows that the stream broke: see MayAnswer.
//
// Tried is the number of the last epoch that me has tried to force. There is one try an epoch: acquire compares the whole record,
// so if it fails then the owner has renewed, and lives.
//
// Gone is zero while a stream is open, and after the connection to Redis broke: a failover may have brought back a record
// that names me, which the owner has replaced since.
func MayForce(me Process, found Record, gone Epoch, tried uint64) bool {
	return found.Standby == me && found.Epoch == gone && gone.Number > tried && !found.Released
}

// MayAnswer reports whether the owner may answer: grants, reads and confirmations alike. It is MayServe for an owner with a
// standby. Doubt begins when the stream of any standby breaks, named by the record or not, because the standby may force from then
// on. It ends when a renewal is confirmed that was sent after the break and does not name the standby of a broken stream.
func MayAnswer(age, term time.Duration, doubt bool) bool { return !doubt && MayServe(age, term) }

// Following is how far the memory of a standby is. The owner sends it each group before Redis has it, and again when the group is
// sent again, so a group that was received may never be kept. The standby holds it until it knows.
type Following struct {
	Has  Head // memory is the state of the store with this head
	Next Head // of the group that was received and is not applied; zero if there is none
}

// Applied is what a standby does with the group that it holds.
type Applied uint8

// What a standby does with the group that it holds.
const (
	Hold      Applied = iota // nothing is applied
	ApplyHeld                // the group that is held was kept: apply it
	DropHeld                 // the group that is held was not kept, and never will be: drop it
	Behind                   // groups are missing: memory is of no use, so load
)

// Receive returns what to do when a group arrives that follows the head after: first with the one that is held, and then the new one is
// held. Behind drops both. A rewrite is not followed: it is a store of two ages until its end.
func (f Following) Receive(after, head Head) (Following, Applied) {
	holds := f.Next != Head{}
	switch {
	case head.Rewriting:
		return Following{}, Behind
	case after.Same(f.Has) && (!holds || head.Same(f.Next)):
		return Following{Has: f.Has, Next: head}, Hold
	case after.Same(f.Has):
		return Following{Has: f.Has, Next: head}, DropHeld
	case holds && after.Same(f.Next):
		return Following{Has: f.Next, Next: head}, ApplyHeld
	default:
		return Following{}, Behind
	}
}

// Takeover returns what makes memory the state of the store with the head that was found: Hold if it is that already, ApplyHeld, or
// Behind. A standby asks it
//
//   - after it has acquired, with the head that was read together with its own epoch: its line is then NewLine with Loaded set, and
//     if it is behind it loads;
//   - at the begin of a stream, with the last head that the owner has kept: if it is not behind, memory of an earlier stream will do;
//   - before the first page of a load and behind the last one, with the head that was read then: while it is behind, it reads the head again.
func (f Following) Takeover(found Head) Applied {
	switch {
	case found.Rewriting:
		return Behind
	case found.Same(f.Has):
		return Hold
	case f.Next != Head{} && found.Same(f.Next):
		return ApplyHeld
	default:
		return Behind
	}
}
