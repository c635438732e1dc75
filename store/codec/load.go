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

// CutItem takes the first item; ok is false if it is not complete.
func CutItem(buf []byte) (kind Kind, shard int, fields, rest []byte, ok bool) {
	if len(buf) == 0 {
		return 0, 0, nil, nil, false
	}
	number, n := binary.Uvarint(buf[1:])
	if n <= 0 {
		return 0, 0, nil, nil, false
	}
	length, m := binary.Uvarint(buf[1+n:])
	if m <= 0 || length > uint64(len(buf)-1-n-m) {
		return 0, 0, nil, nil, false
	}
	fields = buf[1+n+m:]
	return Kind(buf[0]), int(number), fields[:length], fields[length:], true
}

