package storecopy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/storecopy"
)

func silent(storecopy.Step, int64) {}

// copyInto copies a store, and closes it.
func copyInto(t testing.TB, from, to dispatch.Store) (dispatch.Store, storecopy.Report) {
	t.Helper()
	report, err := storecopy.Copy(t.Context(), from, to, silent)
	if err != nil {
		t.Fatalf("copy %s to %s: %v", from.Kind(), to.Kind(), err)
	}
	if err := from.Close(); err != nil {
		t.Error(err)
	}
	return to, report
}

func openFile(t testing.TB, shards int, config dir.Config) *store.Store {
	t.Helper()
	config.SyncEvery = dir.SyncNever
	s, err := store.Open(t.Context(), store.Config{Shards: shards, Backend: dir.New(config)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openRedis(t testing.TB, shards int, config redis.Config) *store.Store {
	t.Helper()
	s, err := tryRedis(t, store.Config{Shards: shards}, config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryRedis(t testing.TB, config store.Config, in redis.Config) (*store.Store, error) {
	t.Helper()
	kept, err := redis.New(in)
	if err != nil {
		return nil, err
	}
	config.Backend = kept
	return store.Open(t.Context(), config)
}

// fixture is what a store was given, and what it has answered.
type fixture struct {
	t     testing.TB
	gate  dispatch.SourceGate
	items []dispatch.Submission
	held  []dispatch.Grant // of the client token "t1", the first was reported
	rules int64
}

// fill gives a store something of each kind: 40 tasks of 20 queues, of which 6 are leased, one is done, and one queue is held.
func fill(t testing.TB, s dispatch.Store) *fixture {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	now, err := s.Now(ctx)
	must(err)
	src := &dispatch.Source{
		ID: "s", UID: "u1", Version: 1, Applied: 1, Created: now, Updated: now,
		Spec: dispatch.SourceSpec{Pool: "default", Priority: 5, Remember: time.Hour, LeaseDuration: time.Minute},
	}
	must(s.PutSource(ctx, src, 0))
	f := &fixture{t: t, gate: src.Gate()}
	f.rules, err = s.PutRule(ctx, "*.delayed.example", &dispatch.QueueRule{
		Pattern: "*.delayed.example", Time: now,
		Settings: dispatch.QueueSettings{MinDelay: time.Hour, MaxInFlight: 1, MaxBlock: time.Hour},
	}, 0)
	must(err)
	for i := range 40 {
		queue := fmt.Sprintf("q%d.delayed.example", i%20)
		item := dispatch.Submission{
			SourceUID: "u1", Queue: queue, URL: "https://" + queue + "/" + strconv.Itoa(i), Key: strconv.Itoa(i), Kind: "page", Priority: 5,
			Due: now, Metadata: map[string]string{"n": strconv.Itoa(i)}, Payload: []byte("payload"),
		}
		item.ID = dispatch.NewTaskID(dispatch.Identity{Scope: "u1", Queue: item.Queue, Key: item.Key})
		f.items = append(f.items, item)
	}
	f.submit(s, dispatch.SubmitCreated)
	hold := dispatch.Hold{Target: dispatch.HoldTarget{Queue: "q19.delayed.example"}, Name: dispatch.HoldDefault, Created: now}
	_, err = s.PutHolds(ctx, dispatch.HoldChange{Set: []dispatch.Hold{hold}, Queues: dispatch.HeldQueues([]dispatch.Hold{hold})}, 0)
	must(err)
	_, err = s.Beat(ctx, dispatch.CollectorInfo{ID: "c", Session: "old"})
	must(err)
	_, err = s.Beat(ctx, dispatch.CollectorInfo{ID: "c", Session: "new", Labels: map[string]string{"a": "b"}, Slots: 3})
	must(err)
	for shard := range s.Shards() {
		f.held = append(f.held, f.claim(s, shard, "t1", 7-len(f.held))...)
	}
	if len(f.held) != 7 {
		t.Fatalf("granted %d tasks, want 7", len(f.held))
	}
	f.report(s, f.held[0], dispatch.Applied)
	for shard := range s.Shards() { // a token of which nothing is held any more
		for _, g := range f.claim(s, shard, "t2", 1) {
			f.report(s, g, dispatch.Applied)
		}
	}
	return f
}

func (f *fixture) submit(s dispatch.Store, want dispatch.SubmitCode) {
	f.t.Helper()
	results, err := s.Submit(f.t.Context(), f.rules, []dispatch.SourceGate{f.gate}, f.items)
	if err != nil {
		f.t.Fatal(err)
	}
	for i, r := range results {
		if r.Code != want {
			f.t.Errorf("task %d: submitted with the code %d, want %d", i, r.Code, want)
		}
	}
}

func (f *fixture) claim(s dispatch.Store, shard int, token string, most int) []dispatch.Grant {
	f.t.Helper()
	_, holds, _, err := s.Holds(f.t.Context(), -1)
	if err != nil {
		f.t.Fatal(err)
	}
	poll := dispatch.Poll{Collector: "c", Session: "new", ClientToken: token, Call: token + strconv.Itoa(shard)}
	reply, err := s.Claim(f.t.Context(), shard, "default", holds, []dispatch.Want{{Poll: poll, Max: most}}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return reply.Grants[0]
}

func (f *fixture) report(s dispatch.Store, g dispatch.Grant, want dispatch.ApplyCode) {
	f.t.Helper()
	results, err := s.Apply(f.t.Context(), []dispatch.Transition{{
		ID: g.Task.ID, Token: g.Token.Digest(), Revision: g.Task.Revision, Result: dispatch.ResultSucceeded, State: dispatch.StateDone,
		Counters: dispatch.Counters{Cycle: 1}, Settled: true, Shrink: true, SourceSuccess: true, Remember: time.Hour, Memo: []byte("etag"),
	}})
	if err != nil {
		f.t.Fatal(err)
	}
	if results[0].Code != want {
		f.t.Errorf("report of task %s: code %d, want %d", g.Task.ID, results[0].Code, want)
	}
}

// check holds a copy to what its original has answered.
func (f *fixture) check(s dispatch.Store) {
	f.t.Helper()
	ctx := f.t.Context()
	f.submit(s, dispatch.SubmitExists)
	polled := func(session, token, call string) dispatch.PollState {
		state, err := s.BeginPoll(ctx, dispatch.Poll{Collector: "c", Session: session, ClientToken: token, Call: call})
		if err != nil {
			f.t.Fatal(err)
		}
		return state
	}
	if state := polled("new", "t1", "again"); !state.Used || !slices.Equal(tokens(state.Replay), tokens(f.held[1:])) {
		f.t.Errorf("a repeated fetch got %q, want %q", tokens(state.Replay), tokens(f.held[1:]))
	}
	if state := polled("old", "t9", "k"); !state.Replaced {
		f.t.Errorf("the replaced session got %+v", state)
	}
	if state := polled("new", "t2", "k"); !state.Used || len(state.Replay) > 0 {
		f.t.Errorf("the used token got %+v", state)
	}
	for shard := range s.Shards() {
		if n, err := s.GiveBack(ctx, shard, "c", "t1", "again"); n != 0 || err != nil {
			f.t.Errorf("a grant whose calls are not known was given back: %d, %v", n, err)
		}
	}
	highest := f.held[6].Token.Fence
	for _, g := range f.held[1:] {
		renewed, err := s.Renew(ctx, []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token, Cursor: []byte("here")}})
		if err != nil || renewed[0].Lost != dispatch.LostNone {
			f.t.Errorf("renewal of %s: %+v, %v", g.Task.ID, renewed, err)
		}
	}
	granted := 0
	for shard := range s.Shards() {
		for _, g := range f.claim(s, shard, "t3", 100) {
			granted++
			if g.Token.Fence <= highest {
				f.t.Errorf("fence %d is not above %d", g.Token.Fence, highest)
			}
			if g.Task.Queue == "q19.delayed.example" {
				f.t.Error("a held queue was granted from")
			}
			if slices.ContainsFunc(f.held, func(was dispatch.Grant) bool { return was.Task.Queue == g.Task.Queue }) {
				f.t.Errorf("queue %s was granted from before its delay", g.Task.Queue)
			}
			f.report(s, g, dispatch.Applied)
		}
	}
	if granted == 0 {
		f.t.Error("nothing was granted")
	}
	f.report(s, f.held[0], dispatch.ApplyAlready)
	f.report(s, f.held[1], dispatch.Applied)
	f.held = append(f.held[1:2:2], f.held[2:]...)
}

func tokens(grants []dispatch.Grant) (tokens []string) {
	for _, g := range grants {
		tokens = append(tokens, g.Token.String())
	}
	slices.Sort(tokens)
	return tokens
}

// A copy with another number of shards keeps the contract.
func TestCopy_shards(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4, 64} {
		t.Run(strconv.Itoa(shards), func(t *testing.T) {
			t.Parallel()
			server, prefix := shared.Server(t)
			from := openFile(t, 0, dir.Config{Dir: t.TempDir()})
			f := fill(t, from)
			inRedis := openRedis(t, shards, redis.Config{URL: server.URL(), Prefix: prefix, CopyOf: "file"})
			now, there := copyInto(t, from, inRedis)
			if misfits := inRedis.Check(); len(misfits) > 0 {
				t.Errorf("the copy in redis does not fit together: %v", misfits)
			}
			other := openRedis(t, 3, redis.Config{URL: server.URL(), Prefix: prefix + "-2", CopyOf: "redis"})
			now, again := copyInto(t, now, other)
			now, back := copyInto(t, now, openFile(t, 2, dir.Config{Dir: t.TempDir(), CopyOf: "redis"}))
			if there.To.Hash != back.To.Hash || there.To.Hash != again.To.Hash || there.To.Tasks != 40 || there.To.Leased != 6 {
				t.Errorf("copied\n%s, then\n%s, and back\n%s", there.To, again.To, back.To)
			}
			f.check(now)
			if err := now.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// In Redis a copy keeps the contract, too.
func TestCopy_intoRedis(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		t.Run(strconv.Itoa(shards), func(t *testing.T) {
			t.Parallel()
			server, prefix := shared.Server(t)
			from := openFile(t, 0, dir.Config{Dir: t.TempDir()})
			f := fill(t, from)
			now, _ := copyInto(t, from, openRedis(t, shards, redis.Config{URL: server.URL(), Prefix: prefix, CopyOf: "file"}))
			f.check(now)
			if err := now.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// cutting is a store whose import is cut off after some batches.
type cutting struct {
	dispatch.Store
	left int
}

var errCut = errors.New("cut off")

func (c *cutting) Import(ctx context.Context, batch *dispatch.PortableBatch) error {
	if c.left--; c.left < 0 {
		return errCut
	}
	return c.Store.Import(ctx, batch)
}

// A copy that was cut off anywhere is no store until the same copy has been repeated.
func TestCopy_interrupted(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	from := openFile(t, 0, dir.Config{Dir: t.TempDir()})
	fill(t, from)
	path := t.TempDir()
	file := func(of string) (dispatch.Store, error) {
		return portable(store.Open(t.Context(), store.Config{Backend: dir.New(dir.Config{Dir: path, CopyOf: of, SyncEvery: dir.SyncNever})}))
	}
	inRedis := func(of string) (dispatch.Store, error) {
		return portable(tryRedis(t, store.Config{Shards: 2}, redis.Config{URL: server.URL(), Prefix: prefix, CopyOf: of}))
	}
	for name, open := range map[string]func(string) (dispatch.Store, error){"file": file, "redis": inRedis} {
		cuts := 0
		for ended := false; !ended; cuts++ {
			to, err := open("the original")
			if err != nil {
				t.Fatal(err)
			}
			_, err = storecopy.Copy(t.Context(), from, &cutting{to, cuts}, silent)
			if ended = err == nil; !ended && !errors.Is(err, errCut) {
				t.Fatalf("%s, cut after %d batches: %v", name, cuts, err)
			}
			if err := to.Close(); err != nil {
				t.Fatal(err)
			}
			for of, want := range map[string]string{"": "unfinished copy of the original", "another": "unfinished copy of the original"} {
				s, err := open(of)
				switch {
				case ended && of == "" && err == nil:
					err = s.Close()
					if err != nil {
						t.Error(err)
					}
				case ended && err != nil && strings.Contains(err.Error(), "already"):
				case !ended && errors.Is(err, dispatch.ErrStoreMismatch) && strings.Contains(err.Error(), want):
				default:
					t.Errorf("%s, cut after %d batches, ended %v: opened for a copy of %q: %v", name, cuts, ended, of, err)
				}
			}
		}
		if cuts < 5 {
			t.Errorf("%s: cut off %d times only", name, cuts)
		}
	}
	if err := from.Close(); err != nil {
		t.Error(err)
	}
}

func portable[S dispatch.Store](s S, err error) (dispatch.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// A copy of what has changed since it began, or that ends with its context, is not finished.
func TestCopy_changed(t *testing.T) {
	t.Parallel()
	from := openFile(t, 0, dir.Config{Dir: t.TempDir()})
	f := fill(t, from)
	to := openFile(t, 0, dir.Config{Dir: t.TempDir(), CopyOf: "the original"})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := storecopy.Copy(ctx, from, to, func(storecopy.Step, int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := storecopy.Copy(t.Context(), from, &cutting{to, 6}, silent); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	f.report(from, f.held[1], dispatch.Applied)
	if _, err := storecopy.Copy(t.Context(), from, to, silent); !errors.Is(err, storecopy.ErrDiffer) {
		t.Errorf("what was copied has changed: %v", err)
	}
	if err := errors.Join(from.Close(), to.Close()); err != nil {
		t.Error(err)
	}
}

// copiedTasks is how many tasks BenchmarkCopy copies without $WAGGLE_COPY_TASKS.
const copiedTasks = 10_000

// BenchmarkCopy copies tasks of 10,000 queues from a directory to Redis and back, and compares each time.
func BenchmarkCopy(b *testing.B) {
	tasks := copiedTasks
	if text := os.Getenv("WAGGLE_COPY_TASKS"); text != "" {
		var err error
		if tasks, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		b.StopTimer()
		from := openFile(b, 0, dir.Config{Dir: b.TempDir()})
		f := fill(b, from)
		for begin := 0; begin < tasks; begin += 1000 {
			f.items = f.items[:0]
			for i := begin; i < begin+1000; i++ {
				queue := fmt.Sprintf("host%d.example", i%10_000)
				item := dispatch.Submission{
					SourceUID: "u1", Queue: queue, URL: "https://" + queue + "/articles/" + strconv.Itoa(i), Kind: "page", Priority: 5,
					Depth: 2, Due: time.Now().Add(time.Duration(i) * time.Millisecond),
				}
				item.Key = item.URL
				item.ID = dispatch.NewTaskID(dispatch.Identity{Scope: "u1", Queue: queue, Key: item.Key})
				f.items = append(f.items, item)
			}
			f.submit(from, dispatch.SubmitCreated)
		}
		server, prefix := shared.Server(b)
		inRedis := openRedis(b, 0, redis.Config{URL: server.URL(), Prefix: prefix, CopyOf: "file"})
		back := openFile(b, 0, dir.Config{Dir: b.TempDir(), CopyOf: "redis"})
		b.StartTimer()
		now, there := copyInto(b, from, inRedis)
		now, again := copyInto(b, now, back)
		b.StopTimer()
		b.ReportMetric(there.Took.Seconds(), "s-to-redis")
		b.ReportMetric(again.Took.Seconds(), "s-to-file")
		b.Logf("to redis\n%s\n%s\nto file\n%s\n%s", there.From, there.To, again.From, again.To)
		if there.From.Hash != again.To.Hash {
			b.Error("the hashes differ")
		}
		if err := now.Close(); err != nil {
			b.Error(err)
		}
		b.StartTimer()
	}
}
