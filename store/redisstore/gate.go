package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// lanesPerPage limits the lanes that one script of PushSource reschedules.
const lanesPerPage = 100

// gateArgs packs a gate (lua/source.lua).
func gateArgs(g *dispatch.SourceGate) []any {
	return []any{
		g.UID, g.ID, g.Version, g.Pool, g.Priority, pack.Millis(g.HeldUntil), g.Deleted,
		g.MaxOutstanding, pack.Span(g.LeaseDuration), pack.Span(g.MaxHold), g.JoinedBytes, pack.Span(g.Remember),
	}
}

// PushSource implements [dispatch.Sources]. A page is the cursor of a scan of the source's lanes.
func (s *Store) PushSource(ctx context.Context, shard int, gate dispatch.SourceGate, page string) (string, error) {
	if _, err := strconv.ParseUint(page, 10, 63); page != "" && (err != nil || page == "0") {
		return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
	}
	args := append([]any{cmp.Or(page, "0"), lanesPerPage}, gateArgs(&gate)...)
	r, err := s.scripts.Run(ctx, "push source", script.Push, script.Call{Shard: shard, Args: args})
	if err != nil {
		return "", err
	}
	next := r.Text()
	if next == "0" {
		next = ""
	}
	return next, r.Err
}

// DropTasks implements [dispatch.Sources]. The shard keeps how far it came with the source's lanes. Once a whole pass
// found nothing to end, only leased tasks are left.
func (s *Store) DropTasks(ctx context.Context, shard int, uid string, limit int, why *dispatch.Gate) (int, []dispatch.TaskID, error) {
	const op = "drop tasks"
	said, err := pack.JSON(why)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: deletion of source %s: %w", dispatch.ErrInvalid, uid, err)
	}
	limit = max(min(limit, bounds.MaxTransitions), 1)
	ended := 0
	for passes := 0; passes < 2 && ended < limit; { // the first pass may begin in the middle
		r, err := s.scripts.Run(ctx, op, script.Drop, script.Call{Shard: shard, Args: []any{uid, limit - ended, said}})
		if err != nil {
			return ended, nil, err
		}
		ended += int(r.Integer())
		if r.Bool() {
			passes++
		}
		if r.Err != nil {
			return ended, nil, r.Err
		}
		if passes == 1 && ended > 0 {
			break
		}
	}
	var leased []dispatch.TaskID
	for score, member := "", ""; len(leased) < limit; {
		args := []any{uid, limit - len(leased), score, member, limit - ended}
		r, err := s.scripts.Run(ctx, op, script.DropLeased, script.Call{Shard: shard, Args: args})
		if err != nil {
			return ended, leased, err
		}
		score, member = r.Text(), r.Text()
		ended += int(r.Integer())
		for r.More() {
			leased = append(leased, dispatch.TaskID(r.Text()))
		}
		if r.Err != nil || member == "" {
			return ended, leased, r.Err
		}
	}
	return ended, leased, nil
}

// SourceStatuses implements [dispatch.Sources].
func (s *Store) SourceStatuses(ctx context.Context, uids []string) ([]dispatch.SourceStatus, error) {
	statuses := make([]dispatch.SourceStatus, len(uids))
	for begin := 0; begin < len(uids); begin += maxReads {
		page := statuses[begin:min(begin+maxReads, len(uids))]
		if err := s.readStatuses(ctx, uids[begin:begin+len(page)], page); err != nil {
			return nil, err
		}
	}
	return statuses, nil
}

func (s *Store) readStatuses(ctx context.Context, uids []string, statuses []dispatch.SourceStatus) error {
	args := make([]any, len(uids))
	for i, uid := range uids {
		args[i] = uid
	}
	replies, err := s.scripts.RunAll(ctx, "read source statuses", script.Statuses, s.scripts.EveryShard(args...))
	if err != nil {
		return err
	}
	for _, r := range replies {
		for i := range uids {
			counts, filtered := r.Text(), r.Text()
			if r.Err != nil {
				return r.Err
			}
			if err := addCounts(&statuses[i], counts); err != nil {
				return err
			}
			addFiltered(&statuses[i], filtered)
		}
	}
	return nil
}

// CountFiltered implements [dispatch.Sources].
func (s *Store) CountFiltered(ctx context.Context, shard int, uid string, filtered dispatch.Filtered) error {
	packed := packFiltered(filtered)
	if packed == nil {
		return nil
	}
	_, err := s.scripts.Run(ctx, "count filtered links", script.Filtered, script.Call{Shard: shard, Args: []any{uid, packed}})
	return err
}

// sourceCounts is how many numbers a shard keeps of a source, packed as >i6 each
// (lua/source.lua); the last two are not for its status.
const sourceCounts = 13

// addCounts adds the counts of a source in one shard, if there are any.
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

// packFiltered packs counts by reason, >i6 each (lua/sources.lua); empty if all are 0.
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
