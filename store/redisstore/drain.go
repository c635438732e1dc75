package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// SetDrain implements [dispatch.Drains].
func (s *Store) SetDrain(ctx context.Context, drain dispatch.Drain) error {
	drain.Kind = dispatch.GateDrained
	until := drain.Until
	if until.IsZero() {
		until = dispatch.Forever
	}
	encoded, err := json.Marshal(&drain)
	if err != nil {
		return fmt.Errorf("%w: drain cannot be encoded: %w", dispatch.ErrInvalid, err)
	}
	r, err := s.scripts.Run(ctx, "set drain", script.Drain, script.Call{Args: []any{drain.Name(), dispatch.MaxDrains, pack.Millis(until), string(encoded)}})
	if err != nil {
		return err
	}
	if r.Integer() == 0 {
		return dispatch.TooManyDrains(&drain)
	}
	return nil
}

// DeleteDrain implements [dispatch.Drains].
func (s *Store) DeleteDrain(ctx context.Context, name string) (bool, error) {
	r, err := s.scripts.Run(ctx, "delete drain", script.Drain, script.Call{Args: []any{name}})
	if err != nil {
		return false, err
	}
	return r.Bool(), r.Err
}

// Drains implements [dispatch.Drains].
func (s *Store) Drains(ctx context.Context) ([]dispatch.Drain, error) {
	r, err := s.scripts.Run(ctx, "read drains", script.Drains, script.Call{})
	if err != nil {
		return nil, err
	}
	var drains []dispatch.Drain
	for r.More() {
		var drain dispatch.Drain
		if err := json.Unmarshal([]byte(r.Text()), &drain); err != nil {
			return nil, fmt.Errorf("decode drain: %w", err)
		}
		drains = append(drains, drain)
	}
	slices.SortFunc(drains, func(a, b dispatch.Drain) int { return strings.Compare(a.Name(), b.Name()) })
	return drains, r.Err
}
