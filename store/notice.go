package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/machine"
)

// PutNotice implements [dispatch.NoticeLog].
func (s *Store) PutNotice(ctx context.Context, name string, record []byte) error {
	if name == "" || len(name) > bounds.MaxNoticeName || len(record) > bounds.MaxNoticeBytes {
		return fmt.Errorf("%w: a notice has a name of 1 to %d bytes and a record of at most %d, not %d and %d",
			dispatch.ErrInvalid, bounds.MaxNoticeName, bounds.MaxNoticeBytes, len(name), len(record))
	}
	b := &s.access
	return b.call(ctx, func() error {
		old, known := b.notices[name]
		switch {
		case known == (len(record) > 0) && bytes.Equal(old, record):
			return nil
		case !known && len(b.notices) >= bounds.MaxNotices:
			return fmt.Errorf("%w: there are %d notices, which is the limit", dispatch.ErrInvalid, bounds.MaxNotices)
		}
		kept := slices.Clone(record)
		return b.commit(bookShard, machine.SmallGroup+len(name)+len(record), false, func() {
			if len(kept) == 0 {
				delete(b.notices, name)
			} else {
				b.notices[name] = kept
			}
		}, func(out []byte) []byte {
			if len(kept) == 0 {
				return codec.RemovedText(out, codec.Notice, 0, name)
			}
			return appendNotice(out, name, kept)
		})
	})
}

// Notices implements [dispatch.NoticeLog].
func (s *Store) Notices(ctx context.Context) (notices map[string][]byte, err error) {
	b := &s.access
	err = b.call(ctx, func() error {
		notices = maps.Clone(b.notices)
		return nil
	})
	for name, record := range notices {
		notices[name] = slices.Clone(record)
	}
	return notices, err
}

func appendNotice(out []byte, name string, record []byte) []byte {
	return codec.AppendItem(out, codec.Notice, 0, func(c *codec.Codec) { noticeFields(c, &name, &record) })
}
