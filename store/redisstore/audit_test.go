package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// auditSteps of the model for each seed: what is not in step with the records shows
// soon, since all is looked at every thirty steps or so.
const auditSteps = 5_000

// TestModel_audit holds the counts, sets and indexes of each shard against its
// records while the model works on it. The answers that the model compares do not
// show all of them: a count that is too high starves a queue only later, and an entry
// that is left behind costs memory alone.
func TestModel_audit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	clock := server.Clock()
	clock.Freeze()
	client := redisClient(t, server.URL())
	for n := range uint64(2) {
		seed := storetest.Seed(t) + n
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			audited := new(auditedStore)
			store := func(t *testing.T, opts storetest.Options) storetest.Instance {
				t.Helper()
				prefix := fmt.Sprint("audit", seed)
				s := open(t, redisstore.Config{URL: server.SocketURL(), Prefix: prefix, Shards: opts.Shards})
				*audited = auditedStore{Store: s, client: client, prefix: prefix}
				i := instance(t, s, clock, client, prefix)
				i.Store = audited
				return i
			}
			storetest.Model(t, store, storetest.ModelConfig{Steps: auditSteps, Seed: seed, KeepRecords: true})
			if err := audited.audit(t.Context()); err != nil {
				t.Errorf("after the last step with WAGGLE_SEED=%d: %v", seed, err)
			}
		})
	}
}

// auditedStore is audited whenever it is asked what it counts; and before some of the
// submissions, so that the operation that broke something is among the last that the
// model shows.
type auditedStore struct {
	*redisstore.Store
	client  *redis.Client
	prefix  string
	submits int
}

// auditEvery so many submissions, which are a sixth of the model's operations.
const auditEvery = 5

// Submit fails when the audit finds something, and so does the model.
func (s *auditedStore) Submit(
	ctx context.Context, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission,
) ([]dispatch.SubmitResult, error) {
	if s.submits++; s.submits%auditEvery == 0 {
		if err := s.audit(ctx); err != nil {
			return nil, err
		}
	}
	return s.Store.Submit(ctx, rules, gates, items)
}

// Stats is audited as Submit.
func (s *auditedStore) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	if err := s.audit(ctx); err != nil {
		return dispatch.StoreStats{}, err
	}
	return s.Store.Stats(ctx)
}

// audit looks at all shards.
func (s *auditedStore) audit(ctx context.Context) error {
	for shard := range s.Shards() {
		image, err := readShard(ctx, s.client, fmt.Sprintf("%s:{%d}:", s.prefix, shard))
		if err != nil {
			return err
		}
		if found := auditShard(image); len(found) > 0 {
			return fmt.Errorf("%w %d:\n%s", errAudit, shard, strings.Join(found, "\n"))
		}
	}
	return nil
}

var errAudit = errors.New("audit of shard")

// audit is one look at a shard.
type audit struct {
	*shardImage
	found []string
}

// auditShard names what in a shard contradicts its records.
func auditShard(image *shardImage) []string {
	a := &audit{shardImage: image}
	a.checkKeys()
	a.checkTasks()
	a.checkLanes()
	a.checkSettled()
	a.checkQueues()
	a.checkSettings()
	a.checkPools()
	a.checkSources()
	a.checkKept()
	a.checkNamed()
	a.checkLeases()
	a.checkLocks()
	a.checkHeld()
	a.checkUsed()
	slices.Sort(a.found)
	return a.found
}

func (a *audit) say(format string, args ...any) {
	a.found = append(a.found, fmt.Sprintf(format, args...))
}
