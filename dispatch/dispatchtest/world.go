// Package dispatchtest is the kit for tests of the dispatcher: dispatchers and operators on a memory store in virtual time, and
// faults between them and the store.
package dispatchtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/store"
)

// World is a memory store with dispatchers on it, in virtual time.
type World struct {
	*engine.Dispatcher // the first
	*operate.Operator  // beside it

	T      *testing.T           // the test
	Store  *store.Store         // without faults
	Stores []*faultyStore       // as the dispatchers have it
	D      []*engine.Dispatcher // all
	O      []*operate.Operator  // beside them
	Stops  []context.CancelFunc // of the dispatchers
	WG     sync.WaitGroup       // of what the test waits for at its end
	Seen   []*observed          // by the dispatchers
	Keys   int                  // of tasks, so far
	tokens int                  // of clients, so far
}

// Moment is the longest that one call of the store waits for callers who can go with it.
const Moment = time.Millisecond

// Setup is what a world begins with.
type Setup struct {
	Shards int // 0: 1
	// MinDelay and InFlight are those of all queues that no other rule is for; InFlight 0 is no limit to speak of.
	MinDelay time.Duration
	InFlight int
	// Standard: there are 2 shards, queues have the default settings, and no jitter is random.
	Standard bool
	// MaxWaiters and Logger are those of the dispatcher.
	MaxWaiters int
	Logger     *zap.Logger
}

// InWorld runs a test in virtual time with dispatchers that run.
func InWorld(t *testing.T, s Setup, test func(t *testing.T, w *World)) {
	t.Helper()
	if s.Standard {
		s.Shards = 2
	}
	synctest.Test(t, func(t *testing.T) {
		store, err := store.New(store.Config{Shards: s.Shards})
		if err != nil {
			t.Fatal(err)
		}
		w := &World{T: t, Store: store}
		w.Start(s)
		w.Dispatcher, w.Operator = w.D[0], w.O[0]
		synctest.Wait()
		if s.InFlight == 0 {
			s.InFlight = bounds.MaxInFlight
		}
		if !s.Standard {
			w.Rule("*", dispatch.QueueSettings{MinDelay: s.MinDelay, MaxInFlight: s.InFlight, MaxBlock: time.Hour})
		}
		defer func() {
			for _, stop := range w.Stops {
				stop()
			}
			w.WG.Wait()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, w)
	})
}

// Start adds a dispatcher.
func (w *World) Start(s Setup) {
	w.T.Helper()
	cfg := engine.Config{ID: fmt.Sprintf("d%d", len(w.D)), MaxWaiters: s.MaxWaiters, Logger: s.Logger}
	if s.Standard {
		cfg.Rand = func() float64 { return 0.5 }
	}
	d, o, store, seen := w.dispatcher(cfg)
	ctx, stop := context.WithCancel(w.T.Context())
	w.Stores, w.D, w.O, w.Stops, w.Seen = append(w.Stores, store), append(w.D, d), append(w.O, o), append(w.Stops, stop), append(w.Seen, seen)
	w.WG.Go(func() {
		if err := d.Run(ctx, o.Chores()...); err != nil {
			w.T.Errorf("Run: %v", err)
		}
	})
}

// dispatcher makes one, which does not run.
func (w *World) dispatcher(cfg engine.Config) (*engine.Dispatcher, *operate.Operator, *faultyStore, *observed) {
	w.T.Helper()
	store, seen := newFaultyStore(w.Store), &observed{}
	cfg.Store, cfg.Observer = store, seen
	d, err := engine.New(cfg)
	if err != nil {
		w.T.Fatal(err)
	}
	return d, operate.New(d), store, seen
}

// Second is an operator beside a dispatcher that does not run, whose store has faults.
func (w *World) Second(faults ...*Fault) *operate.Operator {
	w.T.Helper()
	_, o, store, _ := w.dispatcher(engine.Config{ID: "second", Rand: func() float64 { return 0.5 }})
	store.Inject(faults...)
	return o
}

// Inject adds faults to the store of each dispatcher.
func (w *World) Inject(faults ...*Fault) {
	for _, s := range w.Stores {
		s.Inject(faults...)
	}
}

// Heal ends these faults at each dispatcher; without any, all of them.
func (w *World) Heal(faults ...*Fault) {
	for _, s := range w.Stores {
		s.Heal(faults...)
	}
}

// WithDeadline is the context of a caller who gives a call so long, and that of the call: the
// server ends it a margin ahead, because the store did not answer.
func WithDeadline(ctx context.Context, d time.Duration) (caller, call context.Context, cancel context.CancelFunc) {
	caller, end := context.WithTimeout(ctx, d)
	margin := min(max(d/10, 50*time.Millisecond), 500*time.Millisecond, d/2)
	call, stop := context.WithTimeoutCause(caller, d-margin, dispatch.ErrStoreUnavailable)
	return caller, call, func() { stop(); end() }
}

// Rule sets the rule of a pattern.
func (w *World) Rule(pattern string, settings dispatch.QueueSettings) {
	w.T.Helper()
	if _, _, err := SetRule(w.T.Context(), w, dispatch.QueueRule{Pattern: pattern, Settings: settings}, operate.AnyRules); err != nil {
		w.T.Fatalf("SetQueueRule: %v", err)
	}
}

// Unhurried lets every queue be fetched from without delay.
func (w *World) Unhurried() {
	w.T.Helper()
	settings := dispatch.DefaultQueueSettings()
	settings.MinDelay, settings.MaxInFlight = 0, 1000
	w.Rule("*", settings)
}

// Create makes a source of default priority.
func (w *World) Create(id string, change func(*dispatch.SourceSpec)) *operate.SourceView {
	w.T.Helper()
	spec := dispatch.SourceSpec{Priority: dispatch.DefaultPriority}
	if change != nil {
		change(&spec)
	}
	view, err := w.CreateSource(w.T.Context(), id, spec)
	if err != nil {
		w.T.Fatalf("create source %q: %v", id, err)
	}
	return view
}

// AddSource makes a source without seeds, whose leases last 30 s.
func (w *World) AddSource(id string, change func(*dispatch.SourceSpec)) {
	w.T.Helper()
	w.Create(id, func(s *dispatch.SourceSpec) {
		if s.LeaseDuration = 30 * time.Second; change != nil {
			change(s)
		}
	})
}

// Seeds are seeds of default priority.
func Seeds(urls ...string) []dispatch.Seed {
	var out []dispatch.Seed
	for _, u := range urls {
		out = append(out, dispatch.Seed{URL: u, Priority: dispatch.DefaultPriority})
	}
	return out
}

// MustSubmit submits tasks of default priority.
func (w *World) MustSubmit(tasks ...engine.NewTask) []engine.NewTaskResult {
	w.T.Helper()
	for i := range tasks {
		tasks[i].Priority = dispatch.DefaultPriority
	}
	results, err := w.SubmitTasks(w.T.Context(), tasks)
	if err != nil {
		w.T.Fatalf("SubmitTasks: %v", err)
	}
	return results
}

// Submit makes n tasks of a source, in a queue of their own each unless one is
// named, due after a while.
func (w *World) Submit(source, queue string, n int, after time.Duration) []dispatch.TaskID {
	w.T.Helper()
	tasks := make([]engine.NewTask, n)
	for i := range tasks {
		w.Keys++
		tasks[i] = engine.NewTask{SourceID: source, Key: fmt.Sprintf("k%d", w.Keys), Queue: queue}
		if queue == "" {
			tasks[i].Queue = fmt.Sprintf("q%d", w.Keys)
		}
		if after > 0 {
			tasks[i].Due = time.Now().Add(after)
		}
	}
	ids := make([]dispatch.TaskID, n)
	for i, r := range w.MustSubmit(tasks...) {
		if r.Err != nil || r.Code != dispatch.SubmitCreated {
			w.T.Fatalf("SubmitTasks: item %d: code %v, %v", i, r.Code, r.Err)
		}
		ids[i] = r.ID
	}
	return ids
}

// NameIn is a name, of a source, a collector or a queue, whose home is one of so many shards.
func NameIn(shard, shards int, prefix string) string {
	for n := 0; ; n++ {
		if name := fmt.Sprint(prefix, n); dispatch.ShardOf(dispatch.SlotOf(name), shards) == shard {
			return name
		}
	}
}

// Ask is the fetch of a collector in session s1.
func Ask(collector, token string, wait time.Duration) engine.FetchRequest {
	return engine.FetchRequest{Collector: collector, Session: "s1", ClientToken: token, Wait: wait}
}

// Answer is the end of a fetch.
type Answer struct {
	Res *engine.FetchResult // the tasks, or why there are none
	Err error               // in place of them
	At  time.Time           // when it came
}

// GoFetch begins a fetch in the background.
func (w *World) GoFetch(ctx context.Context, d int, req engine.FetchRequest) <-chan Answer {
	ch := make(chan Answer, 1)
	w.WG.Go(func() {
		res, err := w.D[d].Fetch(ctx, req)
		ch <- Answer{res, err, time.Now()}
	})
	return ch
}

// MustFetch fetches and has at least one task.
func (w *World) MustFetch(req engine.FetchRequest) *engine.FetchResult {
	w.T.Helper()
	res, err := w.D[0].Fetch(w.T.Context(), req)
	if err != nil {
		w.T.Fatalf("Fetch: %v", err)
	}
	if len(res.Tasks) == 0 {
		w.T.Fatalf("Fetch: nothing, because %v", res.Empty)
	}
	return res
}

// Take gives c1 up to n tasks that can be had now, of these pools.
func (w *World) Take(n int, pools ...string) []dispatch.Grant {
	w.T.Helper()
	w.tokens++
	req := Ask("c1", fmt.Sprintf("t%d", w.tokens), 0)
	req.MaxTasks, req.MaxBytes, req.Pools = n, engine.MaxFetchBytes, pools
	res, err := w.Fetch(w.T.Context(), req)
	if err != nil {
		w.T.Fatalf("Fetch: %v", err)
	}
	return res.Tasks
}

// TakeOne gives c1 the one task that can be had now.
func (w *World) TakeOne() dispatch.Grant {
	w.T.Helper()
	grants := w.Take(1)
	if len(grants) != 1 {
		w.T.Fatalf("fetched %d tasks, want 1", len(grants))
	}
	return grants[0]
}

// HoldTasks gives a collector n tasks, of all shards and of these queues, if any are named.
func (w *World) HoldTasks(collector string, n int, queues ...string) (held []dispatch.Grant) {
	w.T.Helper()
	for len(held) < n {
		req := Ask(collector, "", 0)
		req.MaxTasks, req.Queues = n-len(held), queues
		held = append(held, w.MustFetch(req).Tasks...)
	}
	return held
}

// Grants gives c1 n new tasks of a queue.
func (w *World) Grants(source, queue string, n int) []dispatch.Grant {
	w.T.Helper()
	w.Submit(source, queue, n, 0)
	return w.HoldTasks("c1", n, queue)
}

// Park begins n fetches of collectors of their own, and returns when all are parked. A call of
// the store notes at most MaxRenewals of them, and may wait a moment for as many to come.
func (w *World) Park(n int, wait time.Duration) []<-chan Answer {
	w.T.Helper()
	chans := make([]<-chan Answer, n)
	for i := range n {
		chans[i] = w.GoFetch(w.T.Context(), 0, Ask(fmt.Sprintf("parked%d", i), "", wait))
	}
	time.Sleep(time.Duration(1+n/bounds.MaxRenewals) * Moment)
	synctest.Wait()
	if got := w.D[0].Parked(); got != n {
		w.T.Fatalf("%d fetches are parked, want %d", got, n)
	}
	return chans
}

// Granted collects the answers that are there.
func Granted(chans []<-chan Answer) (tasks []dispatch.Grant, rest []<-chan Answer) {
	for _, ch := range chans {
		select {
		case a := <-ch:
			if a.Res != nil {
				tasks = append(tasks, a.Res.Tasks...)
			}
		default:
			rest = append(rest, ch)
		}
	}
	return tasks, rest
}

// MustReport reports as the collector of the first report.
func (w *World) MustReport(reports ...dispatch.Report) []engine.ReportResult {
	w.T.Helper()
	results, err := w.Report(w.T.Context(), reports[0].Token.Collector, reports)
	if err != nil {
		w.T.Fatalf("Report: %v", err)
	}
	return results
}

// Success is the report that the work of a grant is done.
func Success(g dispatch.Grant) dispatch.Report {
	return dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{}}
}

// Succeed reports the work of a grant as done, with what was discovered.
func (w *World) Succeed(g dispatch.Grant, discovered ...dispatch.DiscoveredItem) engine.ReportResult {
	w.T.Helper()
	for i := range discovered {
		discovered[i].Priority = dispatch.DefaultPriority
	}
	r := Success(g)
	r.Succeeded.Discovered = discovered
	return w.MustReport(r)[0]
}

// Settle makes a report that counts.
func (w *World) Settle(r dispatch.Report) {
	w.T.Helper()
	if result := w.MustReport(r)[0]; result.Code != engine.ReportOK {
		w.T.Fatalf("Report: %+v", result)
	}
}

// MustTask reads a task.
func (w *World) MustTask(id dispatch.TaskID) *dispatch.Task {
	w.T.Helper()
	task, err := w.Task(w.T.Context(), id)
	if err != nil {
		w.T.Fatalf("task %s: %v", id, err)
	}
	return task
}

// observed is an Observer that keeps what it saw.
type observed struct {
	mu       sync.Mutex // guards what follows
	gaveBack int
	lags     []time.Duration
}

// Claimed is not kept.
func (*observed) Claimed(int, int, time.Duration, error) {}

// Granted is not kept.
func (*observed) Granted(string, time.Time, [][]dispatch.Grant) {}

// ClockStepped is not kept.
func (*observed) ClockStepped(time.Duration) {}

// Ended is not kept.
func (*observed) Ended([]engine.End) {}

// GaveBack counts grants.
func (o *observed) GaveBack(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gaveBack += n
}

// Requeued keeps the lag.
func (o *observed) Requeued(lag time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lags = append(o.lags, lag)
}

// Read is what was seen so far.
func (o *observed) Read() (gaveBack int, lags []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gaveBack, append([]time.Duration(nil), o.lags...)
}

// SetHold holds a target for ada until then, zero for good, by the first dispatcher.
func (w *World) SetHold(target dispatch.HoldTarget, until time.Time) {
	w.T.Helper()
	order := operate.HoldOrder{Name: dispatch.HoldDefault, By: "ada", Reason: "new image", Until: until, Replace: true}
	if _, err := w.O[0].SetHolds(w.T.Context(), []dispatch.HoldTarget{target}, order); err != nil {
		w.T.Fatal(err)
	}
}

// LiftHold lifts what SetHold set.
func (w *World) LiftHold(target dispatch.HoldTarget) {
	w.T.Helper()
	did, err := w.O[0].LiftHolds(w.T.Context(), []dispatch.HoldTarget{target}, dispatch.HoldDefault, false)
	if err != nil || len(did.Changed) != 1 {
		w.T.Fatalf("lift: %+v, %v", did, err)
	}
}

// SetRule replaces the rule of a pattern.
func SetRule(ctx context.Context, o interface {
	SetQueueRule(context.Context, string, operate.RulesEtag, func(*dispatch.QueueRule)) (dispatch.QueueRule, operate.RulesEtag, error)
}, rule dispatch.QueueRule, ifEtag operate.RulesEtag,
) (dispatch.QueueRule, operate.RulesEtag, error) {
	return o.SetQueueRule(ctx, rule.Pattern, ifEtag, func(kept *dispatch.QueueRule) { *kept = rule })
}

// Wanted is a spec with seeds that come back each hour.
func Wanted(id string, urls ...string) operate.NamedSpec {
	return operate.NamedSpec{ID: id, Spec: dispatch.SourceSpec{
		Priority: dispatch.DefaultPriority, Seeds: Seeds(urls...), Schedule: dispatch.Schedule{Every: time.Hour},
	}}
}

// MustApply applies specs of sources.
func (w *World) MustApply(validateOnly bool, specs ...operate.NamedSpec) []operate.SpecResult {
	w.T.Helper()
	results, err := w.ApplySources(w.T.Context(), specs, validateOnly)
	if err != nil || len(results) != len(specs) {
		w.T.Fatalf("%d results, %v", len(results), err)
	}
	return results
}

// LeaseBeats are beats for the leases of grants.
func LeaseBeats(grants []dispatch.Grant) []engine.LeaseBeat {
	beats := make([]engine.LeaseBeat, len(grants))
	for i, g := range grants {
		beats[i] = engine.LeaseBeat{ID: g.Task.ID, Token: g.Token.String()}
	}
	return beats
}

// As is the fetch of a collector that has labels.
func As(req engine.FetchRequest, labels map[string]string) engine.FetchRequest {
	req.Labels = labels
	return req
}

// MustBeat tells a dispatcher of a collector, and answers whether it is held.
func (w *World) MustBeat(d int, id string, labels map[string]string) (held bool) {
	w.T.Helper()
	result, err := w.D[d].Beat(w.T.Context(), dispatch.CollectorInfo{ID: id, Session: "s1", Labels: labels}, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	if want := engine.MaxRetryAfter; result.Held && result.Next != want {
		w.T.Errorf("the next beat of a held collector is wanted in %v, want %v", result.Next, want)
	}
	return result.Held
}

// European are the labels of a collector.
var European = map[string]string{"region": "eu", "disk": "ssd"}

// PutRule sets a rule as somebody else does, whose dispatcher has not told the shards yet.
func (w *World) PutRule(r *dispatch.QueueRule) {
	w.T.Helper()
	_, version, err := w.Store.Rules(w.T.Context())
	if err == nil {
		_, err = w.Store.PutRule(w.T.Context(), r.Pattern, r, version)
	}
	if err != nil {
		w.T.Error(err)
	}
}

// Change gives a source a new version and adds a queue rule, so that the dispatcher must read both again.
func (w *World) Change(id string) {
	w.T.Helper()
	sources, err := w.Store.SourcesByID(w.T.Context(), []string{id})
	if err != nil || sources[0] == nil {
		w.T.Fatalf("source %q: %v", id, err)
	}
	next := *sources[0]
	next.Version++
	if err := w.Store.PutSource(w.T.Context(), &next, next.Version-1); err != nil {
		w.T.Fatal(err)
	}
	w.PutRule(&dispatch.QueueRule{Pattern: "changed.example", Settings: dispatch.DefaultQueueSettings(), Time: time.Now()})
}

// MustView reads the view of a source.
func (w *World) MustView(id string) *operate.SourceView {
	w.T.Helper()
	view, err := w.Source(w.T.Context(), id)
	if err != nil {
		w.T.Fatal(err)
	}
	return view
}

// Kinds are the kinds of gates.
func Kinds(gates []dispatch.Gate) (out []dispatch.GateKind) {
	for _, gate := range gates {
		out = append(out, gate.Kind)
	}
	return out
}

// Reasons of failures, one of each scope.
const (
	TaskReason      dispatch.FailureReason = 5
	HostReason      dispatch.FailureReason = 103
	CollectorReason dispatch.FailureReason = 201
	URLReason       dispatch.FailureReason = 301
)
