// Package offheap keeps many small values outside of the heap: the collector of garbage neither walks them nor lets the heap grow to
// twice their size.
package offheap

import (
	"encoding/binary"
	"runtime"
)

const (
	blockBytes = 128
	linkBytes  = 4 // of a block: the number of the next one
	roomBytes  = blockBytes - linkBytes
	// chunkBlocks are mapped at once: the system gives memory to those that are used.
	chunkBlocks = 2048
)

// Values keeps values in blocks, so that one that grows leaves no hole. The zero Values is empty. It is not safe for use by several
// goroutines; its memory goes back to the system when nothing refers to it any more.
type Values struct {
	chunks []*chunk
	free   uint32 // the first of the blocks that are free; 0: none
	unused uint32 // blocks from this number on were never used; 0: none was
}

type chunk struct{ bytes []byte }

// Ref is a value that is kept; the zero Ref is an empty one.
type Ref struct {
	first uint32 // block
	bytes uint32
}

// Len is how many bytes the value has.
func (r Ref) Len() int { return int(r.bytes) }

// Put keeps a value in the place of an old one, which is gone then.
func (v *Values) Put(old Ref, value []byte) Ref {
	v.Free(old)
	ref := Ref{bytes: uint32(len(value))} //nolint:gosec // small
	var link []byte
	for len(value) > 0 {
		number := v.take()
		if link == nil {
			ref.first = number
		} else {
			binary.LittleEndian.PutUint32(link, number)
		}
		b := v.block(number)
		link = b[:linkBytes]
		binary.LittleEndian.PutUint32(link, 0)
		value = value[copy(b[linkBytes:], value):]
	}
	runtime.KeepAlive(v)
	return ref
}

// Append appends a value to out.
func (v *Values) Append(out []byte, ref Ref) []byte {
	for number, left := ref.first, int(ref.bytes); left > 0; left -= roomBytes {
		b := v.block(number)
		out = append(out, b[linkBytes:linkBytes+min(left, roomBytes)]...)
		number = binary.LittleEndian.Uint32(b)
	}
	runtime.KeepAlive(v)
	return out
}

// Free gives up a value.
func (v *Values) Free(ref Ref) {
	if ref.bytes == 0 {
		return
	}
	last := ref.first
	for {
		next := binary.LittleEndian.Uint32(v.block(last))
		if next == 0 {
			break
		}
		last = next
	}
	binary.LittleEndian.PutUint32(v.block(last), v.free)
	v.free = ref.first
}

// take gives the number of a block to use; there is no block 0.
func (v *Values) take() uint32 {
	if number := v.free; number != 0 {
		v.free = binary.LittleEndian.Uint32(v.block(number))
		return number
	}
	v.unused = max(v.unused, 1)
	number := v.unused
	if v.unused++; int(number) >= len(v.chunks)*chunkBlocks {
		v.chunks = append(v.chunks, newChunk())
	}
	return number
}

func (v *Values) block(number uint32) []byte {
	at := int(number%chunkBlocks) * blockBytes
	return v.chunks[number/chunkBlocks].bytes[at : at+blockBytes : at+blockBytes]
}

// newChunk maps a chunk; where the system has no such memory it takes it from the heap.
func newChunk() *chunk {
	mapped, unmap := mapMemory(chunkBlocks * blockBytes)
	if mapped == nil {
		return &chunk{make([]byte, chunkBlocks*blockBytes)}
	}
	c := &chunk{mapped}
	runtime.AddCleanup(c, unmap, mapped)
	return c
}
