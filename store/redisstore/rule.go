package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// packSettings is a rule's settings in the format of the shards (lua/rule.lua), with the rule's pattern.
func packSettings(rule *dispatch.QueueRule) string {
	set := &rule.Settings
	return fmt.Sprintf("%d %d %s %d %d %s",
		pack.Span(set.MinDelay), set.MaxInFlight, strconv.FormatFloat(set.DelayFactor, 'g', -1, 64), pack.Span(set.MaxDelay),
		pack.Span(set.MaxBlock), rule.Pattern)
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

// changeRule changes the rules in shard 0 and then in the other shards.
func (s *Store) changeRule(ctx context.Context, op string, args ...any) (int64, error) {
	r, err := s.scripts.Run(ctx, op, script.Rule, script.Call{Args: args})
	if err != nil {
		return 0, err
	}
	version := r.Integer()
	repeated := version > 0 && r.Bool()
	var changes []any
	for r.More() {
		changes = append(changes, r.Text())
	}
	switch {
	case r.Err != nil:
		return 0, r.Err
	case version == ruleNotFound:
		return 0, fmt.Errorf("%w: %.300q", dispatch.ErrRuleNotFound, args[0])
	case version == ruleTooMany:
		return 0, fmt.Errorf("%w: there are %d queue rules, which is the limit", dispatch.ErrInvalid, bounds.MaxQueueRules)
	case version == ruleStale:
		return 0, fmt.Errorf("%w: the queue rules no longer have version %d", dispatch.ErrEtagMismatch, args[1])
	case repeated:
		return version, s.copyToAll(ctx, op)
	}
	return version, s.tellShards(ctx, op, settings, version-1, version, changes)
}

// Rules implements [dispatch.Queues].
func (s *Store) Rules(ctx context.Context) ([]dispatch.QueueRule, int64, error) {
	const op = "read queue rules"
	// Rules that change in between are newer than the version: a submit by them is refused as
	// stale, and they are read again.
	version, err := s.sharedVersion(ctx, op, settings, 0)
	if err != nil {
		return nil, 0, err
	}
	found, err := script.Retry(ctx, op, func() (map[string]string, error) { return s.client.HGetAll(ctx, s.keys.Shard(0).Rules()).Result() })
	if err != nil {
		return nil, 0, err
	}
	rules := make([]dispatch.QueueRule, 0, len(found))
	for pattern, kept := range found {
		rule, err := decodeRule(pattern, kept)
		if err != nil {
			return nil, 0, err
		}
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b dispatch.QueueRule) int { return cmp.Compare(a.Pattern, b.Pattern) })
	return rules, version, nil
}

// sharedVersion is the version that a shard has.
func (s *Store) sharedVersion(ctx context.Context, op string, what shared, shard int) (int64, error) {
	return script.Retry(ctx, op, func() (int64, error) { return s.client.Get(ctx, s.keys.Shard(shard).Version(what.version)).Int64() })
}

// decodeRule reads a rule of shard 0: the name of its settings, and the rule.
func decodeRule(pattern, kept string) (rule dispatch.QueueRule, err error) {
	_, kept, _ = strings.Cut(kept, "\n") // the name of its settings
	_, encoded, _ := strings.Cut(kept, "\n")
	if err := json.Unmarshal([]byte(encoded), &rule); err != nil {
		return rule, fmt.Errorf("decode queue rule %q: %w", pattern, err)
	}
	return rule, nil
}

// SyncRules implements [dispatch.Queues]. A page is a version of the settings, and the last queue read.
func (s *Store) SyncRules(ctx context.Context, shard int, page string, limit int) (string, error) {
	const op = "sync queue rules"
	version, last, ok := strings.Cut(page, "/")
	if _, err := strconv.ParseInt(version, 10, 64); page != "" && (!ok || err != nil) {
		return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
	}
	if page == "" && shard > 0 && shard < s.scripts.Shards {
		for _, what := range []shared{settings, heldQueues} {
			if err := s.copyShared(ctx, op, what, shard); err != nil {
				return "", err
			}
		}
	}
	args := []any{min(max(limit, 1), bounds.MaxTransitions), version, last}
	r, err := s.scripts.Run(ctx, op, script.Replace, script.Call{Shard: shard, Args: args})
	if err != nil {
		return "", err
	}
	if version, last = r.Text(), r.Text(); version == "" {
		return "", r.Err
	}
	return version + "/" + last, r.Err
}

// copyToAll copies the rules of shard 0 to every shard.
func (s *Store) copyToAll(ctx context.Context, op string) error {
	for shard := 1; shard < s.scripts.Shards; shard++ {
		if err := s.copyShared(ctx, op, settings, shard); err != nil {
			return err
		}
	}
	return nil
}
