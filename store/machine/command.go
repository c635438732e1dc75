package machine

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/tidwall/btree"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// Command is one change of a part of the store.
type Command interface {
	// Room is about how many bytes the group of what it changes takes, and whether it adds data.
	Room() (bytes int, grows bool)
}

// SmallGroup has room for the changes of a few items, and of those that each call sweeps.
const SmallGroup = 2 << 10

// ChangedBytes is about what a changed task takes in a group, beside its texts.
const ChangedBytes = 512

// Drains is part of commands that change a few items and add none.
type Drains struct{}

func (Drains) room() (bytes int, grows bool) { return SmallGroup, false }

