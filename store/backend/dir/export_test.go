package dir

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

// On has the store's files on another disk, in segments of that many bytes.
func (c Config) On(fs disk.FS, segmentBytes int64) Config {
	c.fs, c.segmentBytes = fs, segmentBytes
	return c
}

// Snapshotting has a snapshot made whenever the log has grown by that many bytes, at least.
func (c Config) Snapshotting(bytes int64) Config {
	c.snapshotBytes = bytes
	return c
}

// Booted has the machine of the store started as boot says.
func (c Config) Booted(boot func() ([16]byte, time.Duration)) Config {
	c.boot = boot
	return c
}

// Kill gives up the directory without a last snapshot, as the death of the process would: what was not written is lost.
func (b *Backend) Kill() error {
	var err error
	b.releasing.Do(func() {
		b.end()
		err = b.release()
	})
	return err
}

// MakeSnapshot makes a snapshot, and returns its size.
func (b *Backend) MakeSnapshot(ctx context.Context) (int64, error) {
	err := b.snapshot(ctx, true)
	return b.snapshots.bytes, err
}

// SealSnapshot gives the header of a snapshot the checksum that it must have.
func SealSnapshot(content []byte) {
	binary.LittleEndian.PutUint32(content[snapshotHeader-4:], crc32.Checksum(content[:snapshotHeader-4], castagnoli))
}
