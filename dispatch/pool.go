package dispatch

// Pool is what a store tells of one pool.
type Pool struct {
	Name string
	// Open queues can be granted from but for a pause of the pool and what no
	// claim has met yet, such as a new rule; Waiting ones hold tasks that cannot
	// be granted now.
	Open, Waiting int64
	// Paused is an operator's pause; nil when none holds.
	Paused *Gate
	// Unknown: none of its tasks waits, and no collector that was heard of says that it
	// takes them; never of [DefaultPool]. Only [Operator.PausePool] tells it.
	Unknown bool
	// Replaced is the pause that stood when it was paused anew; nil: none stood. Only
	// [Operator.PausePool] tells it.
	Replaced *Gate
}
