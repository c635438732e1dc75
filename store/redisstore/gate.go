package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// lanesPerPage limits the lanes that one script of PushSource reschedules.
const lanesPerPage = 100

// gateArgs packs a gate (lua/parts/gate.lua).
func gateArgs(g *dispatch.SourceGate) []any {
	return []any{
		g.UID, g.ID, g.Version, g.Pool, g.Priority, pack.Millis(g.HeldUntil), g.Deleted,
		g.MaxOutstanding, pack.Span(g.LeaseDuration), pack.Span(g.MaxHold), g.JoinedBytes, pack.Span(g.Remember),
	}
}

// PushSource implements [dispatch.Sources]. A page is the number of the last lane that was rescheduled.
func (s *Store) PushSource(ctx context.Context, shard int, gate dispatch.SourceGate, page string) (string, error) {
	after := int64(0)
	if page != "" {
		n, err := strconv.ParseInt(page, 10, 64)
		if err != nil || n < 1 {
			return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
		}
		after = n
	}
	args := append([]any{after, lanesPerPage}, gateArgs(&gate)...)
	r, err := s.scripts.Run(ctx, "push source", script.Push, script.Call{Shard: shard, Args: args})
	if err != nil {
		return "", err
	}
	if next := r.Integer(); next > 0 {
		return strconv.FormatInt(next, 10), r.Err
	}
	return "", r.Err
}

// DropTasks implements [dispatch.Sources]. It continues after the last lane of the previous call, and starts again at
// the first lane when there is nothing more.
func (s *Store) DropTasks(ctx context.Context, shard int, uid string, limit int, why *dispatch.Gate) (int, []dispatch.TaskID, error) {
	said, err := pack.JSON(why)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: deletion of source %s: %w", dispatch.ErrInvalid, uid, err)
	}
	limit = max(min(limit, bounds.MaxTransitions), 1)
	ended, last, again := 0, int64(-1), true
	var leased []dispatch.TaskID
	var lane, score, after string // how far its leased tasks were looked at
	for {
		args := []any{uid, last, limit - ended, limit - len(leased), lane, score, after, said}
		r, err := s.scripts.Run(ctx, "drop tasks", script.Drop, script.Call{Shard: shard, Args: args})
		if err != nil {
			return ended, leased, err
		}
		ended += int(r.Integer())
		last = r.Integer()
		more := r.Bool()
		for ids := r.Array(); ids.More(); {
			leased = append(leased, dispatch.TaskID(ids.Text()))
		}
		lane, score, after = r.Text(), r.Text(), r.Text()
		if r.Err != nil {
			return ended, leased, r.Err
		}
		switch {
		case ended >= limit || len(leased) >= limit:
			return ended, leased, nil
		case more:
		case again && ended == 0 && len(leased) == 0:
			again, last = false, 0
		default:
			return ended, leased, nil
		}
	}
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
	found, err := script.Pipeline(ctx, "read source statuses", s.client, s.scripts.Shards*len(uids), func(pipe redis.Pipeliner, i int) *redis.SliceCmd {
		return pipe.HMGet(ctx, s.keys.Shard(i/len(uids)).SourceGate(uids[i%len(uids)]), "counts", "filtered")
	})
	if err != nil {
		return err
	}
	for i, cmd := range found {
		r := pack.Read(cmd.Val())
		counts, filtered := r.Text(), r.Text()
		if r.Err != nil {
			return r.Err
		}
		if err := addCounts(&statuses[i%len(uids)], counts); err != nil {
			return err
		}
		addFiltered(&statuses[i%len(uids)], filtered)
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
// (lua/prelude/lane.lua).
const sourceCounts = 11

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

// packFiltered packs counts by reason, >i6 each (lua/parts/filtered.lua); empty if all are 0.
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
