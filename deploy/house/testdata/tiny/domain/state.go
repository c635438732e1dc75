// Package domain has names to count: 2 constants, 1 variable, 3 types, 1 function and 1 method.
package domain

// State is an enum.
type State int

// The states do not count.
const (
	Waiting State = iota
	Done
	Last = Limit - 1 + Done
)

// String counts; next does not, nor does that of hidden.
func (s State) String() string { return [...]string{"waiting", "done"}[s] }

func (s State) next() State { return s + 1 }

type hidden struct{ State }

func (hidden) String() string { return "" }
