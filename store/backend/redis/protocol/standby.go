package protocol

// MayForce reports whether me may acquire at once, from an owner that has not released the record and whose term may go on. Gone is the
// owner whose stream to me broke and whose port has refused a connection since. The owner knows of the break, and answers
// nothing until a renewal is confirmed that it sent after that.
//
// Gone is zero while a stream is open, and after the connection to Redis broke: the next one may lead to a replica whose record
// names me although the owner has replaced it. Tried is the number of the last epoch that me has tried to force. There is
// one try an epoch: acquire compares the whole record, so it fails only if the owner has renewed, and lives.
func MayForce(me Process, found Record, gone Epoch, tried uint64) bool {
	return found.Standby == me && found.Epoch == gone && gone.Number > tried && !found.Released
}

// Following says which state of the store the memory of a standby is. The owner sends each group before Redis has it, and again when
// the group is sent again. So a group that was received may never be kept, and the standby holds it until it knows.
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
	Behind                   // groups are missing: drop memory and load
)

// Receive returns what to do with the group that is held when the next one arrives, which follows the head after. Then the new one
// is held. Behind drops both. A rewrite is not followed: until its end the store has items of two ages.
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
// Behind if it cannot be. A standby asks it
//
//   - after it has acquired, with the head that it read together with its epoch. Its line is then NewLine with Loaded set;
//   - at the begin of a stream, with the head that the owner has kept: unless it is Behind, memory of an earlier stream is still warm;
//   - at the begin and at the end of a load, with the head that it read: while it is Behind, the standby reads the head again.
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
