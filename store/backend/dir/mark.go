package dir

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

const (
	markName  = "mark.waggle"
	markBytes = 36
	// markEach is the time from one mark to the next while leases stand.
	markEach = time.Second
)

// mark says when the store was in use. One that is synced to the disk late, or never, makes the outage longer than it was.
type mark struct {
	boot   [16]byte      // which start of the machine it is; zero: unknown
	up     time.Duration // since then
	synced uint64        // the entries up to this one were on the disk
}

func (b *Backend) newMark() mark {
	boot, up := b.config.boot()
	return mark{boot: boot, up: up}
}

// away is how long the store was in use by nobody before now. No clock that may have been stepped is asked: without a mark
// of this start of the machine it may have been long.
func (m mark) away(now mark) time.Duration {
	if m.boot != now.boot || m.boot == [16]byte{} || now.up < m.up {
		return dispatch.OutageGrace
	}
	return now.up - m.up
}

// readMark reads the last mark; the zero value if there is none that can be read.
func (b *Backend) readMark() (m mark) {
	data, err := disk.ReadFile(b.config.fs, filepath.Join(b.config.Dir, markName), nil)
	if err != nil || len(data) != markBytes || binary.LittleEndian.Uint32(data[markBytes-4:]) != b.markSum(data) {
		return mark{}
	}
	copy(m.boot[:], data)
	m.up = time.Duration(binary.LittleEndian.Uint64(data[16:]))
	m.synced = binary.LittleEndian.Uint64(data[24:])
	return m
}

// markSum is the checksum of a mark.
func (b *Backend) markSum(data []byte) uint32 {
	return crc32.Update(crc32.Checksum(b.id[:], castagnoli), castagnoli, data[:markBytes-4])
}

// openMark opens the file of the marks for writing.
func (b *Backend) openMark() {
	path := filepath.Join(b.config.Dir, markName)
	f, err := b.config.fs.OpenWrite(path)
	if errors.Is(err, os.ErrNotExist) {
		f, err = b.config.fs.Create(path)
	}
	if err != nil {
		b.config.Logger.Warn(unmarked, zap.Error(err))
		return
	}
	b.marks = f
}

const unmarked = "cannot note that the store is in use: leases get more grace at the next start"

// writeMark writes a mark over the last one, unsynced, and returns it.
func (b *Backend) writeMark() mark {
	m := b.newMark()
	m.synced = b.log.Synced()
	data := append(make([]byte, 0, markBytes), m.boot[:]...)
	data = binary.LittleEndian.AppendUint64(data, uint64(m.up))
	data = binary.LittleEndian.AppendUint64(data, m.synced)
	data = binary.LittleEndian.AppendUint32(data, b.markSum(data[:markBytes]))
	_, err := b.marks.WriteAt(data, 0)
	if err != nil && !b.unmarked {
		b.config.Logger.Warn(unmarked, zap.Error(err))
	}
	b.unmarked = err != nil
	return m
}

// keepMark writes a mark each second while leases stand or the log has what is not synced, until ctx ends. The first group must be
// kept before: it has the grace for the time before this term, which the mark no longer shows.
func (b *Backend) keepMark(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case first := <-b.first:
		if first.Wait(ctx) != nil {
			return
		}
	}
	tick := time.NewTicker(markEach)
	defer tick.Stop()
	for {
		last := b.writeMark()
		for b.owner.Leased() || b.config.SyncEvery >= 0 && b.log.Sequence() != last.synced {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			last = b.writeMark()
		}
		select {
		case <-ctx.Done():
			return
		case <-b.busy:
		}
	}
}
