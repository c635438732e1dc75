package record

import (
	"encoding/binary"
	"math"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
)

// Append appends the record of a task whole, of the source with the number 0: what [Decode] reads. lockDeleted: the
// lock of its lease was deleted by hand.
func Append(b []byte, t *dispatch.Task, lockDeleted bool) []byte {
	revision, attempt, state, holder := t.Revision, t.Counters.Attempt, t.State, ""
	if state.Waiting() {
		state = dispatch.StateScheduled
	}
	if l := t.Lease; l != nil {
		// As it was before the grant.
		revision, attempt, state = revision-1, attempt-1, dispatch.StateScheduled
		holder = l.Token.Collector + "/" + l.Token.ClientToken
		b = appendLease(b, l, t.CancelRequested, lockDeleted)
		b = binary.BigEndian.AppendUint16(b, uint16(len(holder)))
	}
	b = append(b, recordVersion, byte(state), flags(t))
	b = binary.BigEndian.AppendUint32(b, revision)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = pack.Append48(pack.Append48(b, pack.Millis(t.Due)), pack.Millis(t.Created))
	b = AppendSubmission(b, &dispatch.Submission{
		Queue: t.Queue, URL: t.URL, Key: t.Key, Kind: t.Kind, Relation: t.Relation, Redirect: t.Redirect, Depth: t.Depth, Run: t.Run, Priority: t.Priority,
		FirstDue: t.FirstDue, Metadata: t.Metadata, Payload: t.Payload,
	})
	return append(appendEnd(b, t, attempt), holder...)
}

func flags(t *dispatch.Task) (flags byte) {
	for _, f := range [...]struct {
		flag byte
		has  bool
	}{
		{flagRecurring, t.Recurring},
		{flagAgain, t.AgainRequested},
		{flagDetails, len(t.Cursor)+len(t.Memo) > 0},
		{flagHistory, t.LastError != nil || len(t.History) > 0},
		{flagEnded, true},
		{flagBehind, t.Behind},
	} {
		if f.has {
			flags |= f.flag
		}
	}
	return flags
}

// appendLease appends what decodeLease reads, but for the bytes of the holder's name.
func appendLease(b []byte, l *dispatch.Lease, cancel dispatch.CancelReason, lockDeleted bool) []byte {
	b = AppendDigest(b, l.Digest)
	b = pack.Append48(pack.Append48(b, pack.Millis(l.Granted)), pack.Millis(l.Deadline))
	b = binary.BigEndian.AppendUint32(b, uint32(pack.Span(l.Duration)))
	b = binary.BigEndian.AppendUint32(b, uint32(pack.Span(l.MaxHold)))
	deleted := byte(0)
	if lockDeleted {
		deleted = 1
	}
	return append(b, byte(cancel), deleted)
}

// AppendCounters appends counters as records keep them; scripts read only cycle and attempt.
func AppendCounters(b []byte, c *dispatch.Counters, attempt uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, c.Cycle)
	b = binary.BigEndian.AppendUint32(b, attempt)
	b = binary.BigEndian.AppendUint16(b, c.Failures)
	b = append(b, c.Released, byte(min(c.Expirations, math.MaxUint8))) // no budget has more
	b = binary.BigEndian.AppendUint16(b, c.Throttled)
	return append(b, c.GivenUp, c.ExpiredCycles, c.PermanentCycles)
}

// appendEnd appends what decodeEnd reads.
func appendEnd(b []byte, t *dispatch.Task, attempt uint32) []byte {
	c := &t.Counters
	b = append(b, byte(t.Result))
	b = AppendCounters(b, c, attempt)
	b = pack.Append48(b, pack.Millis(t.SettledAt))
	return AppendDigest(b, t.LastLease)
}

// LockDeleted is where the record of a leased task has whether its lock was deleted.
const LockDeleted = 38

// AppendHistory appends a task's last error and last attempts: what decodeMore reads; nothing of neither.
func AppendHistory(b []byte, t *dispatch.Task) ([]byte, error) {
	if t.LastError == nil && len(t.History) == 0 {
		return b, nil
	}
	b, err := pack.AppendJSON(append(b, byte(len(t.History))), t.LastError)
	for i := range t.History {
		if err == nil {
			b, err = pack.AppendJSON(b, &t.History[i])
		}
	}
	return b, err
}
