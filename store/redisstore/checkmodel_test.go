package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// checkedSteps of the model: what is not in step with the records shows soon, since all is
// checked every thirty steps or so.
const checkedSteps = 5_000

// TestModel_check holds that a check finds nothing in a store while the model works on it. The
// answers that the model compares do not show all that may be wrong: a count that is too high
// starves a queue only later, and an entry that is left behind costs memory alone.
func TestModel_check(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	clock := server.Clock()
	clock.Freeze()
	client := redisClient(t, server.URL())
	seed, s := storetest.Seed(t), new(checkedStore)
	store := func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		*s = checkedStore{Store: open(t, redisstore.Config{URL: server.SocketURL(), Prefix: "check", Shards: opts.Shards})}
		i := instance(t, s.Store, clock, client, "check")
		i.Store = s
		return i
	}
	storetest.Model(t, store, storetest.ModelConfig{Steps: checkedSteps, Seed: seed})
	if err := s.check(t.Context()); err != nil {
		t.Errorf("after the last step with WAGGLE_SEED=%d: %v", seed, err)
	}
	for _, name := range client.Keys(t.Context(), "check:*").Val() {
		if kind := kindOf(name); kind != "used" && kind != "polled" {
			continue
		}
		if ttl := client.PTTL(t.Context(), name).Val(); ttl <= 0 || ttl > 25*time.Hour {
			t.Errorf("with WAGGLE_SEED=%d, the client tokens of %s are forgotten in %v", seed, name, ttl)
		}
	}
}

// checkedStore is checked whenever it is asked what it counts; and before some of the
// submissions, so that the operation that broke something is among the last that the
// model shows.
type checkedStore struct {
	*redisstore.Store
	submits int
}

// checkEvery so many submissions, which are a sixth of the model's operations.
const checkEvery = 5

// Submit fails when a check finds something, and so does the model.
func (s *checkedStore) Submit(
	ctx context.Context, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission,
) ([]dispatch.SubmitResult, error) {
	if s.submits++; s.submits%checkEvery == 0 {
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
	return s.Store.Submit(ctx, rules, gates, items)
}

// Stats is checked as Submit.
func (s *checkedStore) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	if err := s.check(ctx); err != nil {
		return dispatch.StoreStats{}, err
	}
	return s.Store.Stats(ctx)
}

func (s *checkedStore) check(ctx context.Context) error {
	report, err := s.Check(ctx, false)
	if err != nil {
		return err
	}
	if report.Left() > 0 {
		return fmt.Errorf("%w: %+v", errFound, report.Kinds)
	}
	return nil
}

var errFound = errors.New("a check finds")
