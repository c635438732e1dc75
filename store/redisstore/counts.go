package redisstore

import (
	"encoding/binary"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
)

// sourceCounts is how many numbers a shard keeps of a source, packed as >i6 each
// (lua/prelude/lane.lua).
const sourceCounts = 11

// addCounts adds what one shard has counted of a source; nothing where it has not.
func addCounts(st *dispatch.SourceStatus, packed string) error {
	if packed == "" {
		return nil
	}
	if len(packed) != 6*sourceCounts {
		return fmt.Errorf("unexpected counts of a source: %d bytes, not %d", len(packed), 6*sourceCounts)
	}
	var n [sourceCounts]int64
	for i := range n {
		var b [8]byte
		copy(b[:], packed[6*i:6*i+6])
		n[i] = int64(binary.BigEndian.Uint64(b[:])) >> 16
	}
	st.Counts = st.Counts.Add(dispatch.StateCounts{Scheduled: n[0], Ready: n[1], Leased: n[2], Done: n[3], Dead: n[4], Canceled: n[5]})
	st.Limited += n[7] // n[6] is what the limit of the source counts
	st.FailuresInARow += n[8]
	if t := instant(n[9]); t.After(st.LastSuccess) {
		st.LastSuccess = t
	}
	if t := instant(n[10]); t.After(st.LastFailure) {
		st.LastFailure = t
	}
	return nil
}

// packFiltered packs counts by reason, >i6 each (lua/parts/filtered.lua); nothing
// when there are none.
func packFiltered(filtered dispatch.Filtered) []byte {
	if filtered == (dispatch.Filtered{}) {
		return nil
	}
	b := make([]byte, 0, 6*len(filtered))
	for _, n := range filtered {
		b = append48(b, n)
	}
	return b
}

// addFiltered adds what packFiltered has packed.
func addFiltered(st *dispatch.SourceStatus, packed string) {
	h := header{[]byte(packed)}
	for reason := range st.Filtered {
		if len(h.b) >= 6 {
			st.Filtered[reason] += int64(h.uint(6))
		}
	}
}
