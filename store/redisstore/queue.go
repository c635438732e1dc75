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

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
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
	_, calls := s.byHome(len(names), []any{"names"}, func(i int) (string, []any) { return names[i], []any{names[i]} })
	replies, err := s.runAll(ctx, "read queues", s.scripts.queues, calls)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*dispatch.Queue, len(names))
	for _, reply := range replies {
		queues, _, err := s.readQueues(ctx, reply)
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
	// The name itself, then all below it: names like example-x.com lie between.
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
	for shard := range s.shards {
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
		v, err := s.run(ctx, "list queues", s.scripts.queues, call{shard: shard, args: args})
		if err != nil {
			return nil, err
		}
		queues, last, err := s.readQueues(ctx, v)
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

// queueState is a queue as a script describes it.
type queueState struct {
	queue                      *dispatch.Queue
	next, block                time.Time
	cause                      *dispatch.BlockCause
	operators                  []heldUntil // block and pause
	pausedPattern, denyPattern string
}

// heldUntil is a gate that ends at an instant, [dispatch.Forever] when it does not.
type heldUntil struct {
	until time.Time
	gate  dispatch.Gate
}

// readQueues reads what lua/queues.lua returns; last is where a list goes on.
func (s *Store) readQueues(ctx context.Context, v any) (queues []*dispatch.Queue, last string, err error) {
	r := readReply(v)
	now := instant(r.integer())
	last = r.text()
	all := r.array()
	var states []*queueState
	for all.more() {
		one := all.array()
		st, err := readQueue(one)
		if err != nil {
			return nil, "", err
		}
		all.join(one)
		states = append(states, st)
	}
	if r.join(all); r.err != nil {
		return nil, "", r.err
	}
	rules, err := s.rulesOf(ctx, states)
	if err != nil {
		return nil, "", err
	}
	for _, st := range states {
		st.gates(now, rules)
		queues = append(queues, st.queue)
	}
	return queues, last, nil
}

func readQueue(r *reply) (*queueState, error) {
	q := &dispatch.Queue{Name: r.text()}
	st := &queueState{queue: q, next: instant(r.integer()), block: instant(r.integer())}
	q.BlockStep = int(r.integer())
	var gates []string
	for range 2 {
		st.operators = append(st.operators, heldUntil{until: instant(r.integer())})
		gates = append(gates, r.text())
	}
	q.Leased, q.Waiting = r.integer(), r.integer()
	if pools := r.text(); pools != "" {
		q.Pools = strings.Split(pools, ",")
	}
	q.SettingsName = r.text()
	settings := strings.Fields(r.text())
	st.pausedPattern, st.denyPattern = r.text(), r.text()
	q.QueueDelay = time.Duration(r.integer()) * time.Millisecond
	cause := r.text()
	if r.err != nil {
		return nil, r.err
	}
	for i, gate := range gates {
		if gate == "" {
			continue
		}
		if err := json.Unmarshal([]byte(gate), &st.operators[i].gate); err != nil {
			return nil, fmt.Errorf("queue %s: gate of an operator: %w", q.Name, err)
		}
	}
	var err error
	if st.cause, err = parseCause(cause); err != nil {
		return nil, fmt.Errorf("queue %s: cause of its block: %w", q.Name, err)
	}
	if q.Settings, err = parseSettings(settings); err != nil {
		return nil, fmt.Errorf("queue %s: %w", q.Name, err)
	}
	return st, nil
}

// parseCause reads what is behind an automatic block; nil where that is not known.
func parseCause(text string) (*dispatch.BlockCause, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // not to be known is no error
	}
	id, failure, _ := strings.Cut(text, "\n")
	cause := &dispatch.BlockCause{Task: dispatch.TaskID(id)}
	return cause, json.Unmarshal([]byte(failure), &cause.Failure)
}

// parseSettings reads the settings of a queue as scripts have them.
func parseSettings(fields []string) (set dispatch.QueueSettings, err error) {
	if len(fields) < 7 {
		return set, fmt.Errorf("settings %q have %d fields, not 7", fields, len(fields))
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
	set.Paused, set.Deny = fields[5] == "1", fields[6] == "1"
	return set, errors.Join(append(errs, err)...)
}

// rulesOf reads the rules that pause or deny queues, by pattern.
func (s *Store) rulesOf(ctx context.Context, states []*queueState) (map[string]dispatch.QueueRule, error) {
	var patterns []string
	for _, st := range states {
		for _, pattern := range []string{st.pausedPattern, st.denyPattern} {
			if pattern != "" && !slices.Contains(patterns, pattern) {
				patterns = append(patterns, pattern)
			}
		}
	}
	rules := make(map[string]dispatch.QueueRule, len(patterns))
	if len(patterns) == 0 {
		return rules, nil
	}
	kept, err := read(ctx, "read queue rules", func() ([]any, error) {
		return s.client.HMGet(ctx, s.keys.shard(0).Rules(), patterns...).Result()
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	for i, v := range kept {
		text, ok := v.(string)
		if !ok {
			continue
		}
		if rules[patterns[i]], err = decodeRule(patterns[i], text); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// gates fills in the gates that hold the queue now, and from when it can be
// granted from.
func (st *queueState) gates(now time.Time, rules map[string]dispatch.QueueRule) {
	q := st.queue
	add := func(g dispatch.Gate) { q.Gates = append(q.Gates, g) }
	ofRule := func(kind dispatch.GateKind, pattern string) {
		rule := rules[pattern]
		add(rule.Gate(kind))
	}
	var latest time.Time
	forever := false
	for _, timed := range append([]heldUntil{
		{st.next, q.Settings.MinDelayGate(st.next, q.QueueDelay)},
		{st.block, dispatch.Gate{Kind: dispatch.GateHostBlocked, Until: st.block, Cause: st.cause}},
	}, st.operators...) {
		if !timed.until.After(now) {
			continue
		}
		add(timed.gate)
		if timed.until.After(latest) {
			latest = timed.until
		}
		forever = forever || !timed.until.Before(dispatch.Forever)
	}
	if q.Settings.Paused {
		ofRule(dispatch.GateQueuePaused, st.pausedPattern)
	}
	if q.Settings.Deny {
		ofRule(dispatch.GateQueueDenied, st.denyPattern)
	}
	full := q.Leased >= int64(q.Settings.MaxInFlight)
	if full {
		add(q.Settings.MaxInFlightGate(q.Leased))
	}
	if !forever && !full && !q.Settings.Paused && !q.Settings.Deny {
		q.NextGrant = latest
	}
}
