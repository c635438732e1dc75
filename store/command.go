package store

// change is a change of a part of the store.
type change interface {
	// Room is as [machine.Command] has it.
	Room() (bytes int, grows bool)
}

// storeCommand changes all shards at once.
type storeCommand interface {
	change
	runAll(s *Store)
}
