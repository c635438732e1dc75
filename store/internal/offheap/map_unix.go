//go:build unix

package offheap

import "golang.org/x/sys/unix"

// mapMemory gives memory that no file has; nil: the system has none.
func mapMemory(bytes int) (mapped []byte, unmap func([]byte)) {
	mapped, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil
	}
	return mapped, func(b []byte) { _ = unix.Munmap(b) }
}
