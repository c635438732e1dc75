package domain

import "time"

// Limit and Wait are constants whose types are not of this package.
const (
	Limit = 2
	Wait  = time.Second
)

// First closes a circle of arrows.
var First = Waiting.next()

// New counts.
func New() any { return hidden{First} }
