package dispatch_test

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
	"github.com/waggle-crawl/waggle/store/memstore"
)

// world is a memory store with dispatchers on it, in virtual time.
type world struct {
	*engine.Dispatcher // the first
	*operate.Operator  // beside it

	t      *testing.T
	store  *memstore.Store // without faults
	stores []*faultyStore  // as the dispatchers have it
	d      []*engine.Dispatcher
	o      []*operate.Operator // beside them
	stops  []context.CancelFunc
	wg     sync.WaitGroup
	seen   []*observed
	keys   int // of tasks, so far
	tokens int // of clients, so far
}

// moment is the longest that one call of the store waits for callers who can go with it.
const moment = time.Millisecond

type setup struct {
	shards      int // 0: 1
	dispatchers int // 0: 1
	// Of all queues that no other rule is for.
	minDelay time.Duration
	inFlight int // 0: no limit to speak of
	// standard: there are 2 shards, queues have the default settings, and no jitter is random.
	standard   bool
	maxWaiters int
	logger     *zap.Logger
}

// inWorld runs a test in virtual time with dispatchers that run.
func inWorld(t *testing.T, s setup, test func(t *testing.T, w *world)) {
	t.Helper()
	if s.standard {
		s.shards = 2
	}
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{Shards: s.shards})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, store: store}
		for range max(s.dispatchers, 1) {
			w.start(s)
		}
		w.Dispatcher, w.Operator = w.d[0], w.o[0]
		synctest.Wait()
		if s.inFlight == 0 {
			s.inFlight = bounds.MaxInFlight
		}
		if !s.standard {
			w.rule("*", dispatch.QueueSettings{MinDelay: s.minDelay, MaxInFlight: s.inFlight, MaxBlock: time.Hour})
		}
		defer func() {
			for _, stop := range w.stops {
				stop()
			}
			w.wg.Wait()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, w)
	})
}

// start adds a dispatcher.
func (w *world) start(s setup) {
	w.t.Helper()
	cfg := engine.Config{ID: fmt.Sprintf("d%d", len(w.d)), MaxWaiters: s.maxWaiters, Logger: s.logger}
	if s.standard {
		cfg.Rand = func() float64 { return 0.5 }
	}
	d, o, store, seen := w.dispatcher(cfg)
	ctx, stop := context.WithCancel(w.t.Context())
	w.stores, w.d, w.o, w.stops, w.seen = append(w.stores, store), append(w.d, d), append(w.o, o), append(w.stops, stop), append(w.seen, seen)
	w.wg.Go(func() {
		if err := d.Run(ctx, o.Chores()...); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
}

// dispatcher makes one, which does not run.
func (w *world) dispatcher(cfg engine.Config) (*engine.Dispatcher, *operate.Operator, *faultyStore, *observed) {
	w.t.Helper()
	store, seen := newFaultyStore(w.store), &observed{}
	cfg.Store, cfg.Observer = store, seen
	d, err := engine.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return d, operate.New(d), store, seen
}

// second is an operator beside a dispatcher that does not run, so that it hears no hints, and
// whose store has faults.
func (w *world) second(faults ...*fault) *operate.Operator {
	w.t.Helper()
	_, o, store, _ := w.dispatcher(engine.Config{ID: "second", Rand: func() float64 { return 0.5 }})
	store.inject(faults...)
	return o
}

// inject adds faults to the store of each dispatcher.
func (w *world) inject(faults ...*fault) {
	for _, s := range w.stores {
		s.inject(faults...)
	}
}

// heal ends these faults at each dispatcher; without any, all of them.
func (w *world) heal(faults ...*fault) {
	for _, s := range w.stores {
		s.heal(faults...)
	}
}

// deafen has hints not arrive at any dispatcher, or arrive again.
func (w *world) deafen(deaf bool) {
	for _, s := range w.stores {
		s.deaf.Store(deaf)
	}
}

// withDeadline is the context of a caller who gives a call so long, and that of the call: the
// server ends it a margin ahead, because the store did not answer.
func withDeadline(ctx context.Context, d time.Duration) (caller, call context.Context, cancel context.CancelFunc) {
	caller, end := context.WithTimeout(ctx, d)
	margin := min(max(d/10, 50*time.Millisecond), 500*time.Millisecond, d/2)
	call, stop := context.WithTimeoutCause(caller, d-margin, dispatch.ErrStoreUnavailable)
	return caller, call, func() { stop(); end() }
}

func (w *world) rule(pattern string, settings dispatch.QueueSettings) {
	w.t.Helper()
	if _, _, err := setRule(w.t.Context(), w, dispatch.QueueRule{Pattern: pattern, Settings: settings}, operate.AnyRules); err != nil {
		w.t.Fatalf("SetQueueRule: %v", err)
	}
}

// unhurried lets every queue be fetched from without delay.
func (w *world) unhurried() {
	w.t.Helper()
	settings := dispatch.DefaultQueueSettings()
	settings.MinDelay, settings.MaxInFlight = 0, 1000
	w.rule("*", settings)
}

func (w *world) create(id string, change func(*dispatch.SourceSpec)) *operate.SourceView {
	w.t.Helper()
	spec := dispatch.SourceSpec{Priority: dispatch.DefaultPriority}
	if change != nil {
		change(&spec)
	}
	view, err := w.CreateSource(w.t.Context(), id, spec)
	if err != nil {
		w.t.Fatalf("create source %q: %v", id, err)
	}
	return view
}

// source makes a source without seeds, whose leases last 30 s.
func (w *world) source(id string, change func(*dispatch.SourceSpec)) {
	w.t.Helper()
	w.create(id, func(s *dispatch.SourceSpec) {
		if s.LeaseDuration = 30 * time.Second; change != nil {
			change(s)
		}
	})
}

func seeds(urls ...string) []dispatch.Seed {
	var out []dispatch.Seed
	for _, u := range urls {
		out = append(out, dispatch.Seed{URL: u, Priority: dispatch.DefaultPriority})
	}
	return out
}

func (w *world) submitTasks(tasks ...engine.NewTask) []engine.NewTaskResult {
	w.t.Helper()
	for i := range tasks {
		tasks[i].Priority = dispatch.DefaultPriority
	}
	results, err := w.SubmitTasks(w.t.Context(), tasks)
	if err != nil {
		w.t.Fatalf("SubmitTasks: %v", err)
	}
	return results
}

// submit makes n tasks of a source, in a queue of their own each unless one is
// named, due after a while.
func (w *world) submit(source, queue string, n int, after time.Duration) []dispatch.TaskID {
	w.t.Helper()
	tasks := make([]engine.NewTask, n)
	for i := range tasks {
		w.keys++
		tasks[i] = engine.NewTask{SourceID: source, Key: fmt.Sprintf("k%d", w.keys), Queue: queue}
		if queue == "" {
			tasks[i].Queue = fmt.Sprintf("q%d", w.keys)
		}
		if after > 0 {
			tasks[i].Due = time.Now().Add(after)
		}
	}
	ids := make([]dispatch.TaskID, n)
	for i, r := range w.submitTasks(tasks...) {
		if r.Err != nil || r.Code != dispatch.SubmitCreated {
			w.t.Fatalf("SubmitTasks: item %d: code %v, %v", i, r.Code, r.Err)
		}
		ids[i] = r.ID
	}
	return ids
}

// nameIn is a name, of a source, a collector or a queue, whose home is one of so many shards.
func nameIn(shard, shards int, prefix string) string {
	for n := 0; ; n++ {
		if name := fmt.Sprint(prefix, n); dispatch.ShardOf(dispatch.SlotOf(name), shards) == shard {
			return name
		}
	}
}

func ask(collector, token string, wait time.Duration) engine.FetchRequest {
	return engine.FetchRequest{Collector: collector, Session: "s1", ClientToken: token, Wait: wait}
}

// answer is the end of a fetch.
type answer struct {
	res *engine.FetchResult
	err error
	at  time.Time
}

// fetch begins a fetch in the background.
func (w *world) fetch(ctx context.Context, d int, req engine.FetchRequest) <-chan answer {
	ch := make(chan answer, 1)
	w.wg.Go(func() {
		res, err := w.d[d].Fetch(ctx, req)
		ch <- answer{res, err, time.Now()}
	})
	return ch
}

// mustFetch fetches and has at least one task.
func (w *world) mustFetch(req engine.FetchRequest) *engine.FetchResult {
	w.t.Helper()
	res, err := w.d[0].Fetch(w.t.Context(), req)
	if err != nil {
		w.t.Fatalf("Fetch: %v", err)
	}
	if len(res.Tasks) == 0 {
		w.t.Fatalf("Fetch: nothing, because %v", res.Empty)
	}
	return res
}

// take gives c1 up to n tasks that can be had now, of one shard and of these pools.
func (w *world) take(n int, pools ...string) []dispatch.Grant {
	w.t.Helper()
	w.tokens++
	req := ask("c1", fmt.Sprintf("t%d", w.tokens), 0)
	req.MaxTasks, req.MaxBytes, req.Pools = n, engine.MaxFetchBytes, pools
	res, err := w.Fetch(w.t.Context(), req)
	if err != nil {
		w.t.Fatalf("Fetch: %v", err)
	}
	return res.Tasks
}

func (w *world) takeOne() dispatch.Grant {
	w.t.Helper()
	grants := w.take(1)
	if len(grants) != 1 {
		w.t.Fatalf("fetched %d tasks, want 1", len(grants))
	}
	return grants[0]
}

// hold gives a collector n tasks, of all shards and of these queues, if any are named.
func (w *world) hold(collector string, n int, queues ...string) (held []dispatch.Grant) {
	w.t.Helper()
	for len(held) < n {
		req := ask(collector, "", 0)
		req.MaxTasks, req.Queues = n-len(held), queues
		held = append(held, w.mustFetch(req).Tasks...)
	}
	return held
}

// grants gives c1 n new tasks of a queue.
func (w *world) grants(source, queue string, n int) []dispatch.Grant {
	w.t.Helper()
	w.submit(source, queue, n, 0)
	return w.hold("c1", n, queue)
}

// park begins n fetches of collectors of their own, and returns when all are parked. A call of
// the store notes at most MaxRenewals of them, and may wait a moment for as many to come.
func (w *world) park(n int, wait time.Duration) []<-chan answer {
	w.t.Helper()
	chans := make([]<-chan answer, n)
	for i := range n {
		chans[i] = w.fetch(w.t.Context(), 0, ask(fmt.Sprintf("parked%d", i), "", wait))
	}
	time.Sleep(time.Duration(1+n/bounds.MaxRenewals) * moment)
	synctest.Wait()
	if got := w.d[0].Parked(); got != n {
		w.t.Fatalf("%d fetches are parked, want %d", got, n)
	}
	return chans
}

// granted collects the answers that are there.
func granted(chans []<-chan answer) (tasks []dispatch.Grant, rest []<-chan answer) {
	for _, ch := range chans {
		select {
		case a := <-ch:
			if a.res != nil {
				tasks = append(tasks, a.res.Tasks...)
			}
		default:
			rest = append(rest, ch)
		}
	}
	return tasks, rest
}

// report reports as the collector of the first report.
func (w *world) report(reports ...dispatch.Report) []engine.ReportResult {
	w.t.Helper()
	results, err := w.Report(w.t.Context(), reports[0].Token.Collector, reports)
	if err != nil {
		w.t.Fatalf("Report: %v", err)
	}
	return results
}

// success is the report that the work of a grant is done.
func success(g dispatch.Grant) dispatch.Report {
	return dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{}}
}

// succeed reports the work of a grant as done, with what was discovered.
func (w *world) succeed(g dispatch.Grant, discovered ...dispatch.DiscoveredItem) engine.ReportResult {
	w.t.Helper()
	for i := range discovered {
		discovered[i].Priority = dispatch.DefaultPriority
	}
	r := success(g)
	r.Succeeded.Discovered = discovered
	return w.report(r)[0]
}

// settle makes a report that counts.
func (w *world) settle(r dispatch.Report) {
	w.t.Helper()
	if result := w.report(r)[0]; result.Code != engine.ReportOK {
		w.t.Fatalf("Report: %+v", result)
	}
}

func (w *world) task(id dispatch.TaskID) *dispatch.Task {
	w.t.Helper()
	task, err := w.Task(w.t.Context(), id)
	if err != nil {
		w.t.Fatalf("task %s: %v", id, err)
	}
	return task
}

// observed is an Observer that keeps what it saw.
type observed struct {
	mu       sync.Mutex // guards what follows
	gaveBack int
	lags     []time.Duration
	keeping  bool
}

func (*observed) Claimed(int, int, time.Duration, error) {}

func (o *observed) GaveBack(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gaveBack += n
}

func (o *observed) Requeued(lag time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lags = append(o.lags, lag)
}

func (o *observed) Keeping(leads bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keeping = leads
}

func (o *observed) read() (gaveBack int, lags []time.Duration, keeping bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gaveBack, append([]time.Duration(nil), o.lags...), o.keeping
}

// setHold holds a target for ada until then, zero for good, by the first dispatcher.
func (w *world) setHold(target dispatch.HoldTarget, until time.Time) {
	w.t.Helper()
	order := operate.HoldOrder{Name: dispatch.HoldDefault, By: "ada", Reason: "new image", Until: until, Replace: true}
	if _, err := w.o[0].SetHolds(w.t.Context(), []dispatch.HoldTarget{target}, order); err != nil {
		w.t.Fatal(err)
	}
}

// liftHold lifts what setHold set.
func (w *world) liftHold(target dispatch.HoldTarget) {
	w.t.Helper()
	did, err := w.o[0].LiftHolds(w.t.Context(), []dispatch.HoldTarget{target}, dispatch.HoldDefault, false)
	if err != nil || len(did.Changed) != 1 {
		w.t.Fatalf("lift: %+v, %v", did, err)
	}
}

// setRule replaces the rule of a pattern.
func setRule(ctx context.Context, o interface {
	SetQueueRule(context.Context, string, operate.RulesEtag, func(*dispatch.QueueRule)) (dispatch.QueueRule, operate.RulesEtag, error)
}, rule dispatch.QueueRule, ifEtag operate.RulesEtag,
) (dispatch.QueueRule, operate.RulesEtag, error) {
	return o.SetQueueRule(ctx, rule.Pattern, ifEtag, func(kept *dispatch.QueueRule) { *kept = rule })
}
