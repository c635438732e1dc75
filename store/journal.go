package store

import (
	"context"
	"encoding/binary"
)

// Journal keeps what the commands of a [Store] change, so that another one can be made of it ([Loader]). Every change of a store
// is a command; one that changes nothing that is kept has no group.
type Journal interface {
	// Reserve makes room for a group of about n bytes. It is called before the command takes effect; an error refuses the
	// command. grows: the command adds data, and must leave room for those that end work, remove data or stop something.
	Reserve(n int, grows bool) error
	// Append takes a group in the reserved room, and returns what waits until the group is durable. Groups are appended in the
	// order in which the commands take effect. A nil group only gives the room back.
	Append(group []byte, reserved int) Commit
}

// Commit is a group on its way to be durable.
type Commit interface {
	// Wait returns nil when the group and all before it are durable.
	Wait(ctx context.Context) error
}

// durable returns when what a call has seen is durable.
func durable(ctx context.Context, seen Commit) error {
	if seen == nil {
		return nil
	}
	return seen.Wait(ctx)
}

// A group begins with the instant of its command, in microseconds since 1970, the lowest byte first. Items follow: those that the
// command has changed, as they are now, or the parts of them that have changed, and those that it has removed.
const groupHead = 8

func beginGroup(buf []byte, micros uint64) []byte {
	return binary.LittleEndian.AppendUint64(buf, micros)
}
