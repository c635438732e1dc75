package store

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/tidwall/btree"
	"github.com/waggle-crawl/waggle/store/machine"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// shardCommand changes one shard.
type shardCommand interface {
	machine.Command
	run(s *machine.Shard)
}

// storeCommand changes all shards at once.
type storeCommand interface {
	machine.Command
	runAll(s *Store)
}

