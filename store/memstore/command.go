package memstore

// command is one change of a part of the store.
type command interface {
	// room is about how many bytes the group of what it changes takes, and whether it adds data.
	room() (bytes int, grows bool)
}

// shardCommand changes one shard.
type shardCommand interface {
	command
	run(s *shard)
}

// storeCommand changes all shards at once.
type storeCommand interface {
	command
	runAll(s *Store)
}

// smallGroup has room for the changes of a few items, and of those that each call sweeps.
const smallGroup = 2 << 10

// changedBytes is about what a changed task takes in a group, beside its texts.
const changedBytes = 512

// drains is part of commands that change a few items and add none.
type drains struct{}

func (drains) room() (bytes int, grows bool) { return smallGroup, false }
