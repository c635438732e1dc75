package redis

import (
	"github.com/waggle-crawl/waggle/dispatch"
)

// Ownership implements [backend.Owned].
func (b *Backend) Ownership() dispatch.Ownership {
	s := b.Stats()
	return dispatch.Ownership{Owning: s.Owned > 0, Epoch: s.Epoch, Groups: int64(s.Groups), GroupBytes: int64(s.GroupBytes), GroupTime: s.GroupTime}
}
