package codec

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/tidwall/btree"
	"github.com/waggle-crawl/waggle/store/machine"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// Kind is what an item is.
type Kind uint8

const (
	Store Kind = iota + 1
	Rule
	Hold
	KeptSource
	Collector
	Binding
	Audit
	Shard
	Setting
	Held
	Stray
	Source
	Queue
	Lane
	Holder
	Grant
	Used
	Task
	End
)

// Removed is added to the kind of an item that was removed: only what names it follows.
const Removed Kind = 0x80

// AppendItem appends an item: its kind, its shard, the length of its fields, and these.
func AppendItem(out []byte, kind Kind, shard int, fields func(*codec.Codec)) []byte {
	c := codec.Writer(nil)
	fields(c)
	return AppendEncoded(out, kind, shard, c.Buffer())
}

func AppendEncoded(out []byte, kind Kind, shard int, fields []byte) []byte {
	out = append(out, byte(kind))
	out = binary.AppendUvarint(out, uint64(shard))
	out = binary.AppendUvarint(out, uint64(len(fields)))
	return append(out, fields...)
}

// RemovedText appends the removal of an item that a text names.
func RemovedText(out []byte, kind Kind, shard int, name string) []byte {
	return AppendItem(out, kind|Removed, shard, func(c *codec.Codec) { codec.Text(c, 1, &name) })
}

