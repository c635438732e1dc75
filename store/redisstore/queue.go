package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// maxQueuePage bounds the queues that one script describes.
const maxQueuePage = 200

// reverseLabels turns www.example.com into com.example.www.
func reverseLabels(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// QueuesNamed implements [dispatch.Queues].
func (s *Store) QueuesNamed(ctx context.Context, names []string) ([]*dispatch.Queue, error) {
	calls := s.scripts.ByName(len(names), []any{"names"}, func(i int) (string, []any) { return names[i], []any{names[i]} })
	replies, err := s.scripts.RunAll(ctx, "read queues", script.Queues, calls)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*dispatch.Queue, len(names))
	for _, reply := range replies {
		queues, _, err := readQueues(reply)
		if err != nil {
			return nil, err
		}
		for _, queue := range queues {
			found[queue.Name] = queue
		}
	}
	queues := make([]*dispatch.Queue, len(names))
	for i, name := range names {
		queues[i] = found[name]
	}
	return queues, nil
}

// ListQueues implements [dispatch.Queues].
func (s *Store) ListQueues(ctx context.Context, suffix, after string, limit int) ([]*dispatch.Queue, error) {
	limit = max(limit, 0)
	begin := "-"
	if after != "" {
		begin = "(" + reverseLabels(after)
	}
	if suffix == "" {
		return s.rangeQueues(ctx, begin, "+", limit)
	}
	// The name itself, then all below it: names like example-x.com are between.
	name := reverseLabels(suffix)
	var found []*dispatch.Queue
	var err error
	if after == "" || reverseLabels(after) < name {
		if found, err = s.rangeQueues(ctx, "["+name, "["+name, limit); err != nil {
			return nil, err
		}
	}
	if below := name + "."; after == "" || reverseLabels(after) < below {
		begin = "[" + below
	}
	rest, err := s.rangeQueues(ctx, begin, "("+name+"/", limit-len(found)) // "/" comes right after "."
	return append(found, rest...), err
}

// rangeQueues lists at most limit queues of a range of reversed names, merged
// over all shards.
func (s *Store) rangeQueues(ctx context.Context, from, to string, limit int) ([]*dispatch.Queue, error) {
	var found []*dispatch.Queue
	for shard := range s.scripts.Shards {
		of, err := s.rangeOfShard(ctx, shard, from, to, limit)
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
	slices.SortFunc(found, func(a, b *dispatch.Queue) int {
		return strings.Compare(reverseLabels(a.Name), reverseLabels(b.Name))
	})
	return found[:min(len(found), limit)], nil
}

func (s *Store) rangeOfShard(ctx context.Context, shard int, from, to string, limit int) ([]*dispatch.Queue, error) {
	var found []*dispatch.Queue
	for len(found) < limit {
		args := []any{"range", from, to, min(limit-len(found), maxQueuePage)}
		r, err := s.scripts.Run(ctx, "list queues", script.Queues, script.Call{Shard: shard, Args: args})
		if err != nil {
			return nil, err
		}
		queues, last, err := readQueues(r)
		if err != nil {
			return nil, err
		}
		found = append(found, queues...)
		if last == "" {
			break
		}
		from = "(" + last
	}
	return found, nil
}

// readQueues decodes the answer of lua/queues.lua; last is where a list continues.
func readQueues(r *pack.Reply) (queues []*dispatch.Queue, last string, err error) {
	now := r.Time()
	last = r.Text()
	all := r.Array()
	for all.More() {
		one := all.Array()
		queue, err := readQueue(one, now)
		if err != nil {
			return nil, "", err
		}
		all.Join(one)
		queues = append(queues, queue)
	}
	r.Join(all)
	return queues, last, r.Err
}

func readQueue(r *pack.Reply, now time.Time) (*dispatch.Queue, error) {
	q := &dispatch.Queue{Name: r.Text()}
	next, held := r.Time(), r.Time()
	block := dispatch.Gate{Kind: dispatch.GateHostBlocked, By: dispatch.HoldWaggle, Until: r.Time()}
	q.BlockStep, block.Time = int(r.Integer()), r.Time()
	q.Leased, q.Waiting = r.Integer(), r.Integer()
	if pools := r.Text(); pools != "" {
		q.Pools = strings.Split(pools, ",")
	}
	q.SettingsName = r.Text()
	settings := strings.Fields(r.Text())
	q.QueueDelay = r.Duration()
	cause := r.Text()
	if r.Err != nil {
		return nil, r.Err
	}
	var err error
	if block.Cause, err = parseCause(cause); err != nil {
		return nil, fmt.Errorf("queue %s: cause of its block: %w", q.Name, err)
	}
	if q.Settings, err = parseSettings(settings); err != nil {
		return nil, fmt.Errorf("queue %s: %w", q.Name, err)
	}
	addGates(q, []dispatch.Gate{q.Settings.MinDelayGate(next, q.QueueDelay), block}, held, now)
	return q, nil
}

// addGates fills in the closed gates, and the time of the next possible grant.
func addGates(q *dispatch.Queue, gates []dispatch.Gate, held, now time.Time) {
	latest := held
	for _, gate := range gates {
		if !gate.Until.After(now) {
			continue
		}
		q.Gates = append(q.Gates, gate)
		if gate.Until.After(latest) {
			latest = gate.Until
		}
	}
	full := q.Leased >= int64(q.Settings.MaxInFlight)
	if full {
		q.Gates = append(q.Gates, q.Settings.MaxInFlightGate(q.Leased))
	}
	if !full && latest.After(now) && latest.Before(dispatch.Forever) {
		q.NextGrant = latest
	}
}

// parseCause reads the cause of an automatic block; nil: not known.
func parseCause(text string) (*dispatch.BlockCause, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // not to be known is no error
	}
	id, failure, _ := strings.Cut(text, "\n")
	cause := &dispatch.BlockCause{Task: dispatch.TaskID(id)}
	return cause, json.Unmarshal([]byte(failure), &cause.Failure)
}

// parseSettings reads the settings of a queue in the format of the scripts.
func parseSettings(fields []string) (set dispatch.QueueSettings, err error) {
	if len(fields) < 5 {
		return set, fmt.Errorf("settings %q have %d fields, not 5", fields, len(fields))
	}
	var errs []error
	integer := func(i int) int64 {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		errs = append(errs, err)
		return n
	}
	set.MinDelay = time.Duration(integer(0)) * time.Millisecond
	set.MaxInFlight = int(integer(1))
	set.DelayFactor, err = strconv.ParseFloat(fields[2], 64)
	set.MaxDelay = time.Duration(integer(3)) * time.Millisecond
	set.MaxBlock = time.Duration(integer(4)) * time.Millisecond
	return set, errors.Join(append(errs, err)...)
}

// Unblock implements [dispatch.Queues].
func (s *Store) Unblock(ctx context.Context, queue string) (bool, error) {
	r, err := s.scripts.Run(ctx, "unblock queue", script.Unblock, script.Call{Shard: s.scripts.ShardOf(queue), Args: []any{queue}})
	if err != nil {
		return false, err
	}
	blocked := r.Bool()
	return blocked, r.Err
}
