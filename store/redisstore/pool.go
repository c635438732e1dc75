package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// PausePool implements [dispatch.Pools].
func (s *Store) PausePool(ctx context.Context, pool string, gate dispatch.Gate) error {
	gate.Kind = dispatch.GatePoolPaused
	until := gate.Until
	if until.IsZero() {
		until = dispatch.Forever
	}
	encoded, err := json.Marshal(gate)
	if err != nil {
		return fmt.Errorf("%w: pause of pool %.300q cannot be encoded: %w", dispatch.ErrInvalid, pool, err)
	}
	replies, err := s.scripts.RunAll(ctx, "pause pool", script.Pause, s.scripts.EveryShard(pool, pack.Millis(until), string(encoded), dispatch.MaxPausedPools))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(replies, func(r *pack.Reply) bool { return r.Integer() == 0 }) {
		return dispatch.TooManyPaused(pool)
	}
	return nil
}

// ResumePool implements [dispatch.Pools].
func (s *Store) ResumePool(ctx context.Context, pool string) error {
	_, err := s.scripts.RunAll(ctx, "resume pool", script.Pause, s.scripts.EveryShard(pool))
	return err
}

// Pool implements [dispatch.Pools].
func (s *Store) Pool(ctx context.Context, name string) (dispatch.Pool, error) {
	known, err := s.readPools(ctx, name)
	if err != nil || len(known) == 0 {
		return dispatch.Pool{Name: name}, err
	}
	return known[0], nil
}

// ListPools implements [dispatch.Pools].
func (s *Store) ListPools(ctx context.Context, after string, limit int) ([]dispatch.Pool, error) {
	limit = max(limit, 0)
	known, err := s.readPools(ctx, "", after, limit)
	return known[:min(len(known), limit)], err
}

// PausedPools implements [dispatch.Pools].
func (s *Store) PausedPools(ctx context.Context) (map[string]dispatch.Gate, error) {
	replies, err := s.scripts.RunAll(ctx, "read pauses of pools", script.Paused, s.scripts.EveryShard())
	if err != nil {
		return nil, err
	}
	paused := make(map[string]dispatch.Gate)
	for _, r := range replies {
		for r.More() {
			name, encoded := r.Text(), r.Text()
			var gate dispatch.Gate
			if err := json.Unmarshal([]byte(encoded), &gate); r.Err == nil && err != nil {
				return nil, fmt.Errorf("pool %s: pause: %w", name, err)
			}
			paused[name] = gate
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return paused, nil
}

// readPools sums what lua/pools.lua returns over all shards, ascending by name.
func (s *Store) readPools(ctx context.Context, args ...any) ([]dispatch.Pool, error) {
	replies, err := s.scripts.RunAll(ctx, "read pools", script.Pools, s.scripts.EveryShard(args...))
	if err != nil {
		return nil, err
	}
	sums := make(map[string]dispatch.Pool)
	for _, r := range replies {
		for r.More() {
			name := r.Text()
			sum := sums[name]
			sum.Name, sum.Open, sum.Waiting = name, sum.Open+r.Integer(), sum.Waiting+r.Integer()
			if gate := r.Text(); gate != "" {
				sum.Paused = new(dispatch.Gate)
				if err := json.Unmarshal([]byte(gate), sum.Paused); err != nil {
					return nil, fmt.Errorf("pool %s: pause: %w", name, err)
				}
			}
			sums[name] = sum
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	var known []dispatch.Pool
	for _, sum := range sums {
		known = append(known, sum)
	}
	slices.SortFunc(known, func(a, b dispatch.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return known, nil
}
