package wal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
)

// The format of segments and batches; store/backend/dir/FORMAT.md describes it to the byte. All numbers are little endian.
const (
	segmentMagic = "WAGGLOG\n"
	batchMagic   = "WBAT"
	version      = 1

	segmentHeader = 64 // bytes before the first batch
	batchHeader   = 36 // bytes before the first entry of a batch
	entryHeader   = 4  // bytes before each entry

	spareName     = "log-spare.waggle"
	segmentPrefix = "log-"
	segmentSuffix = ".waggle"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segmentName is the file name of the segment whose first entry has this sequence.
func segmentName(first uint64) string {
	return fmt.Sprintf("%s%020d%s", segmentPrefix, first, segmentSuffix)
}

// segmentFirsts returns the first sequences of the segments among the names of files, in order.
func segmentFirsts(names []string) []uint64 {
	var firsts []uint64
	for _, name := range names {
		first, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(name, segmentPrefix), segmentSuffix), 10, 64)
		if err == nil && name == segmentName(first) {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts
}

// encodeHeader returns the header of a segment of that many bytes, and its checksum, with which the checksums of its batches
// begin.
func encodeHeader(storeID [16]byte, first uint64, size int64) ([]byte, uint32) {
	h := make([]byte, segmentHeader)
	copy(h, segmentMagic)
	binary.LittleEndian.PutUint32(h[8:], version)
	copy(h[16:], storeID[:])
	binary.LittleEndian.PutUint64(h[32:], first)
	binary.LittleEndian.PutUint64(h[40:], uint64(size))
	sum := crc32.Checksum(h[:segmentHeader-4], castagnoli)
	binary.LittleEndian.PutUint32(h[segmentHeader-4:], sum)
	return h, sum
}

// decodeHeader checks the header of a segment and returns its store, first sequence and checksum. No crash makes a segment
// shorter than it was when it got its name.
func decodeHeader(data []byte) (storeID [16]byte, first uint64, sum uint32, err error) {
	if len(data) < segmentHeader {
		return storeID, 0, 0, fmt.Errorf("%w: %d bytes are less than the header of %d", ErrCorrupt, len(data), segmentHeader)
	}
	sum = binary.LittleEndian.Uint32(data[segmentHeader-4:])
	if string(data[:8]) != segmentMagic || sum != crc32.Checksum(data[:segmentHeader-4], castagnoli) {
		return storeID, 0, 0, fmt.Errorf("%w: the header at offset 0 is damaged", ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint32(data[8:]); v != version {
		return storeID, 0, 0, fmt.Errorf("format version %d is not %d, the only one that this release reads", v, version)
	}
	if size := binary.LittleEndian.Uint64(data[40:]); uint64(len(data)) < size {
		return storeID, 0, 0, fmt.Errorf("%w: it was cut off at offset %d of %d, and not by a crash", ErrCorrupt, len(data), size)
	}
	copy(storeID[:], data[16:])
	return storeID, binary.LittleEndian.Uint64(data[32:]), sum, nil
}

// sealBatch completes the header of a batch; its entries follow in buf. The header has a checksum of its own, so that a
// search through damaged bytes need not check a body for every magic number that a client has put into an entry.
func sealBatch(buf []byte, first, synced uint64, count int, sum uint32) {
	copy(buf, batchMagic)
	binary.LittleEndian.PutUint32(buf[4:], uint32(len(buf)-batchHeader))
	binary.LittleEndian.PutUint64(buf[8:], first)
	binary.LittleEndian.PutUint64(buf[16:], synced)
	binary.LittleEndian.PutUint32(buf[24:], uint32(count))
	binary.LittleEndian.PutUint32(buf[28:], crc32.Update(sum, castagnoli, buf[batchHeader:]))
	binary.LittleEndian.PutUint32(buf[32:], crc32.Update(sum, castagnoli, buf[:32]))
}

// parsed is a valid batch that was read.
type parsed struct {
	first, synced uint64
	count         int
	size          int64  // bytes with the header
	body          []byte // the entries
}

// hasBatchHeader reports whether data begins with the valid header of a batch.
func hasBatchHeader(data []byte, sum uint32) bool {
	return len(data) >= batchHeader && string(data[:4]) == batchMagic &&
		binary.LittleEndian.Uint32(data[32:]) == crc32.Update(sum, castagnoli, data[:32])
}

// parseBatch reads the batch at the begin of data, and reports whether there is a valid one.
func parseBatch(data []byte, sum uint32) (parsed, bool) {
	if !hasBatchHeader(data, sum) {
		return parsed{}, false
	}
	size := int64(binary.LittleEndian.Uint32(data[4:])) + batchHeader
	if size > int64(len(data)) || binary.LittleEndian.Uint32(data[28:]) != crc32.Update(sum, castagnoli, data[batchHeader:size]) {
		return parsed{}, false
	}
	return parsed{
		first:  binary.LittleEndian.Uint64(data[8:]),
		synced: binary.LittleEndian.Uint64(data[16:]),
		count:  int(binary.LittleEndian.Uint32(data[24:])),
		size:   size,
		body:   data[batchHeader:size],
	}, true
}

// entry cuts the first entry off the body of a batch.
func (p *parsed) entry() ([]byte, bool) {
	if len(p.body) < entryHeader {
		return nil, false
	}
	n := int64(binary.LittleEndian.Uint32(p.body))
	if n > int64(len(p.body)-entryHeader) {
		return nil, false
	}
	e := p.body[entryHeader : entryHeader+n]
	p.body = p.body[entryHeader+n:]
	return e, true
}

// syncedLater reports whether a batch anywhere in data was written after the entry seq was on the disk: its header says so,
// even if its body is damaged.
func syncedLater(data []byte, sum uint32, seq uint64) bool {
	for {
		at := bytes.Index(data, []byte(batchMagic))
		if at < 0 {
			return false
		}
		data = data[at:]
		if hasBatchHeader(data, sum) && binary.LittleEndian.Uint64(data[16:]) >= seq {
			return true
		}
		data = data[1:]
	}
}
