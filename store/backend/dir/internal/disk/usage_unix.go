//go:build unix

package disk

import (
	"os"
	"syscall"
)

// Usage is how many bytes the files of a directory have, and of the disk those that are used or free and those that are free, as df counts
// them. What cannot be read is 0.
func Usage(dir string) (used, disk, free int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, 0, 0
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			used += info.Size()
		}
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return used, 0, 0
	}
	block := int64(stat.Bsize)                                    //nolint:unconvert // it is an int32 on some systems
	free = int64(stat.Bavail) * block                             //nolint:gosec // bytes of a disk
	return used, int64(stat.Blocks-stat.Bfree)*block + free, free //nolint:gosec // bytes of a disk
}
