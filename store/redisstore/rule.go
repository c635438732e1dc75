package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// rulesChunk bounds the rules that one command writes or reads.
const rulesChunk = 500

// packSettings is a rule's settings as shards file them
// (lua/prelude/settings.lua), with the pattern that filed them.
func packSettings(rule *dispatch.QueueRule) string {
	set := &rule.Settings
	return fmt.Sprintf("%d %d %s %d %d %d %d %s",
		span(set.MinDelay), set.MaxInFlight, strconv.FormatFloat(set.DelayFactor, 'g', -1, 64), span(set.MaxDelay),
		span(set.MaxBlock), bit(set.Paused), bit(set.Deny), rule.Pattern)
}

func bit(set bool) int {
	if set {
		return 1
	}
	return 0
}

// PutRule implements [dispatch.Queues].
func (s *Store) PutRule(ctx context.Context, pattern string, rule *dispatch.QueueRule, ifVersion int64) (int64, error) {
	if rule == nil {
		return s.changeRule(ctx, "delete queue rule", pattern, ifVersion)
	}
	encoded, err := json.Marshal(rule)
	if err != nil {
		return 0, fmt.Errorf("%w: queue rule %.300q cannot be encoded: %w", dispatch.ErrInvalid, pattern, err)
	}
	return s.changeRule(ctx, "set queue rule", pattern, ifVersion, bounds.MaxQueueRules, rule.SettingsName(), packSettings(rule), string(encoded))
}

// What the script answers instead of a version.
const (
	ruleNotFound = -1
	ruleTooMany  = -2
	ruleStale    = -3
)

// changeRule changes the rules in shard 0 and tells the other shards.
func (s *Store) changeRule(ctx context.Context, op string, args ...any) (int64, error) {
	v, err := s.run(ctx, op, s.scripts.rule, call{args: args})
	if err != nil {
		return 0, err
	}
	r := readReply(v)
	version := r.integer()
	repeated := version > 0 && r.integer() == 1
	var changes []any
	for r.more() {
		changes = append(changes, r.text())
	}
	switch {
	case r.err != nil:
		return 0, r.err
	case version == ruleNotFound:
		return 0, fmt.Errorf("%w: %.300q", dispatch.ErrRuleNotFound, args[0])
	case version == ruleTooMany:
		return 0, fmt.Errorf("%w: there are %d queue rules, which is the limit", dispatch.ErrInvalid, bounds.MaxQueueRules)
	case version == ruleStale:
		return 0, fmt.Errorf("%w: the queue rules no longer have version %d", dispatch.ErrEtagMismatch, args[1])
	case repeated:
		return version, s.copyToAll(ctx, op)
	}
	var calls []call
	for shard := 1; shard < s.shards; shard++ {
		calls = append(calls, call{shard: shard, args: append([]any{version - 1, version}, changes...)})
	}
	replies, err := s.runAll(ctx, op, s.scripts.settings, calls)
	if err != nil {
		return 0, err
	}
	for i, told := range replies {
		if told != int64(1) {
			// This shard has missed an earlier change.
			if err := s.copySettings(ctx, op, calls[i].shard); err != nil {
				return 0, err
			}
		}
	}
	return version, nil
}

// Rules implements [dispatch.Queues].
func (s *Store) Rules(ctx context.Context) ([]dispatch.QueueRule, int64, error) {
	const op = "read queue rules"
	type both struct {
		rules   map[string]string
		version int64
	}
	k := s.keys.shard(0)
	found, err := read(ctx, op, func() (both, error) {
		// No transaction, of which Redis refuses even reads when it is full. Rules
		// that change in between are newer than the version: a submit by them is
		// refused as stale, and they are read again.
		pipe := s.client.Pipeline()
		version, rules := pipe.HGet(ctx, k.Shard(), "rules"), pipe.HGetAll(ctx, k.Rules())
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return both{}, err
		}
		n, err := version.Int64()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return both{rules.Val(), n}, errors.Join(err, rules.Err())
	})
	if err != nil {
		return nil, 0, err
	}
	rules := make([]dispatch.QueueRule, 0, len(found.rules))
	for pattern, kept := range found.rules {
		rule, err := decodeRule(pattern, kept)
		if err != nil {
			return nil, 0, err
		}
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b dispatch.QueueRule) int { return cmp.Compare(a.Pattern, b.Pattern) })
	return rules, found.version, nil
}

// decodeRule reads a rule as shard 0 keeps it: the name under which its settings
// are filed, and the rule.
func decodeRule(pattern, kept string) (rule dispatch.QueueRule, err error) {
	_, encoded, _ := strings.Cut(kept, "\n")
	if err := json.Unmarshal([]byte(encoded), &rule); err != nil {
		return rule, fmt.Errorf("decode queue rule %q: %w", pattern, err)
	}
	return rule, nil
}

// SyncRules implements [dispatch.Queues]. A page is a version of the rules, and a
// pool with the queue that was looked at last in it: its score and name.
func (s *Store) SyncRules(ctx context.Context, shard int, page string, limit int) (string, error) {
	const op = "sync queue rules"
	if err := s.checkShard(shard); err != nil {
		return "", err
	}
	from := make([]string, 4) // version, pool, score and queue
	if page != "" {
		if from = strings.SplitN(page, "/", 4); len(from) < 4 {
			return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
		}
	}
	if page == "" && shard != 0 {
		if err := s.copySettings(ctx, op, shard); err != nil {
			return "", err
		}
	}
	args := []any{min(max(limit, 1), bounds.MaxTransitions), from[0], from[1], from[2], from[3]}
	v, err := s.run(ctx, op, s.scripts.replace, call{shard: shard, args: args})
	if err != nil {
		return "", err
	}
	r := readReply(v)
	next := []string{r.text(), r.text(), r.text(), r.text()}
	if next[1] == "" {
		return "", r.err
	}
	return strings.Join(next, "/"), r.err
}

// copyToAll brings every shard to the rules of shard 0.
func (s *Store) copyToAll(ctx context.Context, op string) error {
	for shard := 1; shard < s.shards; shard++ {
		if err := s.copySettings(ctx, op, shard); err != nil {
			return err
		}
	}
	return nil
}

// copySettings brings a shard to the rules of shard 0, when it has not got them.
func (s *Store) copySettings(ctx context.Context, op string, shard int) error {
	from, to := s.keys.shard(0), s.keys.shard(shard)
	versions, err := read(ctx, op, func() ([2]int64, error) {
		var versions [2]int64
		for i, k := range []shardKeys{from, to} {
			n, err := s.client.HGet(ctx, k.Shard(), "rules").Int64()
			if err != nil && !errors.Is(err, redis.Nil) {
				return versions, err
			}
			versions[i] = n
		}
		return versions, nil
	})
	if err != nil || versions[1] >= versions[0] {
		return err
	}
	settings, err := read(ctx, op, func() (map[string]string, error) { return s.client.HGetAll(ctx, from.Settings()).Result() })
	if err != nil {
		return err
	}
	if err := s.stageSettings(ctx, op, to.Settings()+":staged", settings); err != nil {
		return err
	}
	_, err = s.run(ctx, op, s.scripts.settings, call{shard: shard, args: []any{"*", versions[0]}})
	return err
}

// stageSettings writes settings beside those of a shard, to be taken as a whole.
func (s *Store) stageSettings(ctx context.Context, op, key string, settings map[string]string) error {
	_, err := read(ctx, op, func() (struct{}, error) {
		var done struct{}
		if err := s.client.Del(ctx, key).Err(); err != nil {
			return done, err
		}
		var chunk []any
		for name, packed := range settings {
			if chunk = append(chunk, name, packed); len(chunk) >= 2*rulesChunk {
				if err := s.client.HSet(ctx, key, chunk...).Err(); err != nil {
					return done, err
				}
				chunk = chunk[:0]
			}
		}
		if len(chunk) == 0 {
			return done, nil
		}
		return done, s.client.HSet(ctx, key, chunk...).Err()
	})
	return err
}
