package filestore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/waggle-crawl/waggle/store/filestore/internal/disk"
)

// On has the store's files on another disk, in segments of that many bytes.
func (c Config) On(fs disk.FS, segmentBytes int64) Config {
	c.fs, c.segmentBytes = fs, segmentBytes
	return c
}

// Booted has the machine of the store started as boot says.
func (c Config) Booted(boot func() ([16]byte, time.Duration)) Config {
	c.boot = boot
	return c
}

// Kill ends the store without a last snapshot, as the death of its process would: what was not written is lost.
func (s *Store) Kill() error {
	var err error
	s.closing.Do(func() {
		close(s.stop)
		s.loops.Wait()
		err = errors.Join(s.Store.Close(), s.release())
	})
	return err
}

// MakeSnapshot makes a snapshot, and returns its size.
func (s *Store) MakeSnapshot() (int64, error) {
	err := s.snapshot(nil)
	return s.snapshots.bytes, err
}

// SealSnapshot gives the header of a snapshot the checksum that it must have.
func SealSnapshot(content []byte) {
	binary.LittleEndian.PutUint32(content[snapshotHeader-4:], crc32.Checksum(content[:snapshotHeader-4], castagnoli))
}
