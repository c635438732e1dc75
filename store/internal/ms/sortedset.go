package ms

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/tidwall/btree"
	"github.com/waggle-crawl/waggle/store/machine"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
)

// Infinite is the score +inf: no instant, until someone lifts a gate.
const Infinite = math.MaxInt64

