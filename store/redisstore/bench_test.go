package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// benchStore is a store on a server of its own without persistence.
func benchStore(b *testing.B) *redisstore.Store {
	b.Helper()
	server := redistest.Start(b)
	s := open(b, redisstore.Config{URL: server.SocketURL()})
	openRule(b, s)
	return s
}

// BenchmarkSubmit makes tasks in batches of 100, of one queue or spread over a
// thousand.
func BenchmarkSubmit(b *testing.B) {
	for _, queues := range []int{1, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			s := benchStore(b)
			gate := sourceGate("source")
			made := 0
			for b.Loop() {
				items := make([]dispatch.Submission, 100)
				for i := range items {
					items[i] = submission(&gate, fmt.Sprintf("host-%d.example", made%queues), fmt.Sprintf("https://example/%d", made))
					made++
				}
				submit(b, s, gate, items...)
			}
			perTask(b, 100)
		})
	}
}

// benchLoad is a store with leased tasks to work on, and a look at what its
// server's main thread spends.
type benchLoad struct {
	store  *redisstore.Store
	client *redis.Client
	gate   dispatch.SourceGate
	holds  int64 // their version
	queues int
	made   int
}

func newBenchLoad(b *testing.B, queues int) *benchLoad {
	b.Helper()
	server := redistest.Start(b)
	gate := sourceGate("source")
	gate.Remember = time.Hour
	l := &benchLoad{
		store: open(b, redisstore.Config{URL: server.SocketURL()}), gate: gate, queues: queues,
		client: redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket()}),
	}
	b.Cleanup(func() {
		if err := l.client.Close(); err != nil {
			b.Errorf("close the bench's client: %v", err)
		}
	})
	openRule(b, l.store)
	return l
}

// lease makes n tasks over the queues and claims them.
func (l *benchLoad) lease(b *testing.B, n int) []dispatch.Grant {
	b.Helper()
	for made := 0; made < n; made += 100 {
		items := make([]dispatch.Submission, 100)
		for i := range items {
			items[i] = submission(&l.gate, fmt.Sprintf("host-%d.example", l.made%l.queues), fmt.Sprintf("https://example/%d", l.made))
			items[i].Payload = make([]byte, 200)
			l.made++
		}
		submit(b, l.store, l.gate, items...)
	}
	grants := make([]dispatch.Grant, 0, n)
	for len(grants) < n {
		grants = append(grants, claim(b, l.store, want(100))...)
	}
	return grants
}

// cpu is what the server's main thread has spent.
func (l *benchLoad) cpu(b *testing.B) time.Duration {
	b.Helper()
	info, err := l.client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	seconds := 0.0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.HasSuffix(name, "_main_thread") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			seconds += v
		}
	}
	return time.Duration(seconds * float64(time.Second))
}

// BenchmarkLease renews and settles leased tasks of one queue, or of a thousand,
// and reports what a task costs Redis in the cheapest round: other work on the
// machine only ever makes it dearer.
func BenchmarkLease(b *testing.B) {
	const round = 5000 // tasks that are leased at a time
	for _, queues := range []int{1, 1000} {
		for _, step := range leaseSteps() {
			for _, batch := range step.batches {
				b.Run(fmt.Sprintf("%s/queues=%d/batch=%d", step.name, queues, batch), func(b *testing.B) {
					l := newBenchLoad(b, queues)
					least := time.Duration(math.MaxInt64)
					for b.Loop() {
						b.StopTimer()
						grants := l.lease(b, round)
						before := l.cpu(b)
						b.StartTimer()
						for part := range slices.Chunk(grants, batch) {
							step.do(b, l.store, part)
						}
						b.StopTimer()
						least = min(least, l.cpu(b)-before)
						b.StartTimer()
					}
					perTask(b, round)
					b.ReportMetric(float64(least.Nanoseconds())/round, "redis-ns/task")
				})
			}
		}
	}
}

// leaseStep is something that is done to leased tasks.
type leaseStep struct {
	name    string
	batches []int
	do      func(b *testing.B, s *redisstore.Store, grants []dispatch.Grant)
}

func leaseSteps() []leaseStep {
	return []leaseStep{
		{"renew", []int{10, 500}, func(b *testing.B, s *redisstore.Store, grants []dispatch.Grant) {
			b.Helper()
			renewals := make([]dispatch.Renewal, len(grants))
			for i := range grants {
				renewals[i] = dispatch.Renewal{ID: grants[i].Task.ID, Token: grants[i].Token}
			}
			if _, err := s.Renew(b.Context(), renewals); err != nil {
				b.Fatal(err)
			}
		}},
		{"settle", []int{1, 10, 100}, func(b *testing.B, s *redisstore.Store, grants []dispatch.Grant) {
			b.Helper()
			transitions := make([]dispatch.Transition, len(grants))
			for i := range grants {
				transitions[i] = done(&grants[i])
				transitions[i].SourceSuccess = true
			}
			if _, err := s.Apply(b.Context(), transitions); err != nil {
				b.Fatal(err)
			}
		}},
		{"succeed", []int{1, 10, 100}, succeed},
		{"read and settle", []int{1, 10, 100}, func(b *testing.B, s *redisstore.Store, grants []dispatch.Grant) {
			b.Helper()
			ids := make([]dispatch.TaskID, len(grants))
			transitions := make([]dispatch.Transition, len(grants))
			for i := range grants {
				ids[i], transitions[i] = grants[i].Task.ID, done(&grants[i])
				transitions[i].SourceSuccess = true
			}
			if _, _, err := s.Tasks(b.Context(), ids, false); err != nil {
				b.Fatal(err)
			}
			if _, err := s.Now(b.Context()); err != nil {
				b.Fatal(err)
			}
			if _, err := s.Apply(b.Context(), transitions); err != nil {
				b.Fatal(err)
			}
		}},
	}
}

// BenchmarkRequeue sweeps leases that ran out together and requeues them, as the
// keeper does, and reports what a task costs Redis in the cheapest round.
func BenchmarkRequeue(b *testing.B) {
	const round = 5000
	for _, queues := range []int{1, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			l := newBenchLoad(b, queues)
			policy := dispatch.Policy{Rand: func() float64 { return 0 }}
			least := time.Duration(math.MaxInt64)
			for b.Loop() {
				b.StopTimer()
				l.lease(b, round)
				l.expire(b, round)
				before := l.cpu(b)
				b.StartTimer()
				for left := round; left > 0; {
					left -= requeue(b, l.store, policy)
				}
				b.StopTimer()
				least = min(least, l.cpu(b)-before)
				for left := round; left > 0; left -= 100 { // they make room for the next round
					succeed(b, l.store, claim(b, l.store, want(100)))
				}
				b.StartTimer()
			}
			perTask(b, round)
			b.ReportMetric(float64(least.Nanoseconds())/round, "redis-ns/task")
		})
	}
}

// expire lets all leases run out now: it moves their deadlines, as a step of the
// clock does.
func (l *benchLoad) expire(b *testing.B, n int) {
	b.Helper()
	keys := key.Prefix(redisstore.DefaultPrefix).Shard(0)
	past := time.Now().Add(-time.Second).UnixMilli()
	var deadline [8]byte
	binary.BigEndian.PutUint64(deadline[:], uint64(past))
	pipe := l.client.Pipeline()
	for cursor, listed := "", 0; listed == 0 || cursor != ""; {
		leases, next, err := l.store.ListLeases(b.Context(), cursor, n)
		if err != nil {
			b.Fatal(err)
		}
		for _, t := range leases {
			pipe.SetRange(b.Context(), keys.Task(t.ID), 23, string(deadline[2:]))
		}
		cursor, listed = next, listed+len(leases)
	}
	for _, member := range l.client.ZRange(b.Context(), keys.Leases(), 0, -1).Val() {
		pipe.ZAdd(b.Context(), keys.Leases(), redis.Z{Score: float64(past), Member: member})
	}
	pipe.HSet(b.Context(), keys.Keeper(), "swept", time.Now().UnixMilli())
	if _, err := pipe.Exec(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// requeue ends one page of leases that ran out.
func requeue(b *testing.B, s *redisstore.Store, policy dispatch.Policy) int {
	b.Helper()
	spec := dispatch.DefaultSpec()
	sweep, err := s.Expired(b.Context(), 0, bounds.MaxExpired)
	if err != nil {
		b.Fatal(err)
	}
	transitions := make([]dispatch.Transition, len(sweep.Expired))
	for i, t := range sweep.Expired {
		transitions[i] = policy.Expire(t, spec, sweep.Now)
	}
	results, err := s.Apply(b.Context(), transitions)
	if err != nil || len(results) == 0 || results[0].Code != dispatch.Applied {
		b.Fatal(err, results)
	}
	return len(results)
}

// succeed settles tasks.
func succeed(b *testing.B, s *redisstore.Store, grants []dispatch.Grant) {
	b.Helper()
	successes := make([]dispatch.Transition, len(grants))
	for i := range grants {
		successes[i] = unread(&grants[i])
	}
	results, err := s.Apply(b.Context(), successes)
	if err != nil || len(results) == 0 || results[0].Code != dispatch.Applied {
		b.Fatal(err, results)
	}
}

// perTask reports the time of one task of a batch.
func perTask(b *testing.B, batch int) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/task")
}
