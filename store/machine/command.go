package machine

// Command is one change of a shard. Its fields that begin a struct are what is asked for, those behind a blank line the answer.
type Command interface {
	// Room is about how many bytes the group of what it changes takes, and whether it adds data.
	Room() (bytes int, grows bool)
	// Run makes the change. It is called by [Shard.Perform].
	Run(s *Shard)
}

// SmallGroup has room for the changes of a few items, and of those that each call sweeps.
const SmallGroup = 2 << 10

// ChangedBytes is about what a changed task takes in a group, beside its texts.
const ChangedBytes = 512

// Drains is part of commands that change a few items and add none.
type Drains struct{}

// Room implements [Command].
func (Drains) Room() (bytes int, grows bool) { return SmallGroup, false }
