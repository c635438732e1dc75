package engine

import "runtime"

// deepStack is how much stack a call of a store takes, about, in bytes.
const deepStack = 12 << 10

// growStack makes room on the stack of a goroutine that has just begun and is to call a store. A stack that grows on the
// way down is copied, with all that points into it, again at each doubling: a tenth of what a busy dispatcher does.
//
//go:noinline
func growStack() {
	var room [deepStack]byte
	runtime.KeepAlive(&room)
}
