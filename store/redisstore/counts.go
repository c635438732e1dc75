package redisstore

import (
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
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
	n := pack.Read48(packed)
	st.Counts = st.Counts.Add(dispatch.StateCounts{Scheduled: n[0], Ready: n[1], Leased: n[2], Done: n[3], Dead: n[4], Canceled: n[5]})
	st.Limited += n[7] // n[6] is what the limit of the source counts
	st.FailuresInARow += n[8]
	if t := pack.Instant(n[9]); t.After(st.LastSuccess) {
		st.LastSuccess = t
	}
	if t := pack.Instant(n[10]); t.After(st.LastFailure) {
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
		b = pack.Append48(b, n)
	}
	return b
}

// addFiltered adds what packFiltered has packed.
func addFiltered(st *dispatch.SourceStatus, packed string) {
	counts := pack.Read48(packed)
	for reason := range min(len(counts), len(st.Filtered)) {
		st.Filtered[reason] += counts[reason]
	}
}
