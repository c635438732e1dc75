package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// crawlLoad submits, claims and reports until it is stopped, and holds that no task is granted twice at a time and no queue
// has more leases than its rule allows.
type crawlLoad struct {
	*crawl
	mu       sync.Mutex // guards what follows
	held     map[dispatch.TaskID]bool
	inFlight map[string]int
	faults   []string
	granted  atomic.Int64
}

// loadInFlight is how many leases a queue may have.
const loadInFlight = 2

func (l *crawlLoad) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

func (l *crawlLoad) took(g *dispatch.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[g.Task.ID] {
		l.fault("task %s was granted twice at a time", g.Task.ID)
	}
	l.held[g.Task.ID] = true
	if l.inFlight[g.Task.Queue]++; l.inFlight[g.Task.Queue] > loadInFlight {
		l.fault("queue %s has %d leases", g.Task.Queue, l.inFlight[g.Task.Queue])
	}
}

// leaves is called before a report: the store may grant the task, or another of its queue, from then on.
func (l *crawlLoad) leaves(g *dispatch.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, g.Task.ID)
	l.inFlight[g.Task.Queue]--
}

func (l *crawlLoad) claims(ctx context.Context, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 7))
	var open []dispatch.Grant
	for ctx.Err() == nil {
		reply, err := l.Claim(context.WithoutCancel(ctx), r.IntN(l.Shards()), poolOf(r.IntN(2)), 0, []dispatch.Want{want(1 + r.IntN(20))})
		if err != nil {
			return err
		}
		for _, g := range reply.Grants[0] {
			l.took(&g)
			l.granted.Add(1)
			open = append(open, g)
		}
		r.Shuffle(len(open), func(i, k int) { open[i], open[k] = open[k], open[i] })
		if err := l.report(ctx, open[:len(open)/2]); err != nil {
			return err
		}
		open = open[len(open)/2:]
	}
	return l.report(ctx, open)
}

func (l *crawlLoad) report(ctx context.Context, grants []dispatch.Grant) error {
	for i := range grants {
		l.leaves(&grants[i])
		results, err := l.Apply(context.WithoutCancel(ctx), []dispatch.Transition{done(&grants[i])})
		if err != nil {
			return err
		}
		if results[0].Code != dispatch.Applied {
			l.mu.Lock()
			l.fault("report of %s: code %d", grants[i].Task.ID, results[0].Code)
			l.mu.Unlock()
		}
	}
	return nil
}

// sweeps forgets settled tasks, as the keeper does.
func (l *crawlLoad) sweeps(ctx context.Context) error {
	for ctx.Err() == nil {
		for shard := range l.Shards() {
			if _, err := l.Expired(context.WithoutCancel(ctx), shard, 100); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *crawlLoad) submits(ctx context.Context, queues []string) error {
	for n := 0; ctx.Err() == nil; n++ {
		queue := queues[n%len(queues)]
		found, err := l.SourcesByID(context.WithoutCancel(ctx), []string{"s" + l.queues[queue][len("uid"):]})
		if err != nil {
			return err
		}
		_, version, err := l.Rules(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		gate := found[0].Gate()
		if _, err := l.Submit(context.WithoutCancel(ctx), version, []dispatch.SourceGate{gate}, []dispatch.Submission{submission(&gate, queue, fmt.Sprintf("https://%s/load/%d", queue, n))}); err != nil {
			return err
		}
	}
	return nil
}

// TestStore_Check_underLoad repairs a store while tasks are submitted, granted and reported.
func TestStore_Check_underLoad(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			t.Parallel()
			size := large
			size.shards = shards
			c := newCrawl(t, size)
			for id := range c.held { // what is in flight when its queue is lost is not known until it is repaired
				c.end(t, id, 0)
			}
			rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: loadInFlight, MaxBlock: time.Hour}}
			if _, err := c.PutRule(t.Context(), rule.Pattern, &rule, rulesVersion(t, c.Store)); err != nil {
				t.Fatal(err)
			}
			c.clock.Advance(time.Hour)
			r := rand.New(rand.NewPCG(storetest.Seed(t), 3))
			c.lose(t, r, c.keys(t, isDerived), 560)
			c.clock.Offset(time.Until(c.clock.Now()))
			l := &crawlLoad{crawl: c, held: map[dispatch.TaskID]bool{}, inFlight: map[string]int{}}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var running sync.WaitGroup
			failed := make(chan error, 5)
			for seed := range uint64(3) {
				running.Go(func() { failed <- l.claims(ctx, seed) })
			}
			queues := slices.Sorted(maps.Keys(c.queues))
			running.Go(func() { failed <- l.submits(ctx, queues) })
			running.Go(func() { failed <- l.sweeps(ctx) })
			await(t, "the first grants", func() bool { return l.granted.Load() > 20 })
			report := checked(t, c.Store, true)
			second := checked(t, c.Store, false)
			stop()
			running.Wait()
			for range cap(failed) {
				if err := <-failed; err != nil {
					t.Error(err)
				}
			}
			t.Logf("%d tasks were granted meanwhile", l.granted.Load())
			for _, fault := range l.faults {
				t.Error(fault)
			}
			if report.Left()+second.Left() > 0 {
				t.Errorf("%d findings are left, a second check finds %d", report.Left(), second.Left())
				logFindings(t, report)
				logFindings(t, second)
			}
			c.clock.Freeze()
			c.sweep(t)
			sound(t, c.Store)
			c.drain(t)
			if left := c.openTasks(t); len(left) > 0 {
				t.Errorf("%d tasks are granted to nobody", len(left))
			}
			sound(t, c.Store)
		})
	}
}
