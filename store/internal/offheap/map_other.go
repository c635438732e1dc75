//go:build !unix

package offheap

// mapMemory gives none: chunks are on the heap.
func mapMemory(int) (mapped []byte, unmap func([]byte)) { return nil, nil }
