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
	t     *testing.T
	store *memstore.Store
	spies []*spy
	d     []*engine.Dispatcher
	o     []*operate.Operator // beside them
	stops []context.CancelFunc
	wg    sync.WaitGroup
	seen  []*observed
	keys  int // of tasks, so far
}

type setup struct {
	shards      int
	dispatchers int // 0: 1
	minDelay    time.Duration
	inFlight    int // 0: no limit to speak of
	maxWaiters  int
	logger      *zap.Logger
	wrap        func(dispatch.Store) dispatch.Store // nil: the memory store as it is
}

// inWorld runs a test in virtual time with dispatchers that run.
func inWorld(t *testing.T, s setup, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{Shards: s.shards})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, store: store}
		for range max(s.dispatchers, 1) {
			w.start(s)
		}
		synctest.Wait()
		if s.inFlight == 0 {
			s.inFlight = bounds.MaxInFlight
		}
		w.rule("*", dispatch.QueueSettings{MinDelay: s.minDelay, MaxInFlight: s.inFlight, MaxBlock: time.Hour})
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
	var store dispatch.Store = w.store
	if s.wrap != nil {
		store = s.wrap(store)
	}
	sp := newSpy(store)
	seen := &observed{}
	d, err := engine.New(engine.Config{
		Store: sp, ID: fmt.Sprintf("d%d", len(w.d)), MaxWaiters: s.maxWaiters, Logger: s.logger, Observer: seen,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	o := operate.New(d)
	w.spies, w.d, w.o, w.stops, w.seen = append(w.spies, sp), append(w.d, d), append(w.o, o), append(w.stops, stop), append(w.seen, seen)
	w.wg.Go(func() {
		if err := d.Run(ctx, o.Chores()...); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
}

func (w *world) rule(pattern string, settings dispatch.QueueSettings) {
	w.t.Helper()
	if _, _, err := w.o[0].SetQueueRule(w.t.Context(), dispatch.QueueRule{Pattern: pattern, Settings: settings}, operate.AnyRules); err != nil {
		w.t.Fatalf("SetQueueRule: %v", err)
	}
}

// source makes a source without seeds.
func (w *world) source(id string, change func(*dispatch.SourceSpec)) {
	w.t.Helper()
	spec := dispatch.SourceSpec{LeaseDuration: 30 * time.Second, Priority: dispatch.DefaultPriority}
	if change != nil {
		change(&spec)
	}
	if _, err := w.o[0].CreateSource(w.t.Context(), id, spec); err != nil {
		w.t.Fatalf("CreateSource: %v", err)
	}
}

// submit makes n tasks of a source, in a queue of their own each unless one is
// named, due after a while.
func (w *world) submit(source, queue string, n int, after time.Duration) []dispatch.TaskID {
	w.t.Helper()
	tasks := make([]engine.NewTask, n)
	for i := range tasks {
		w.keys++
		name := w.keys
		tasks[i] = engine.NewTask{
			SourceID: source, Key: fmt.Sprintf("k%d", name), Queue: queue, Priority: dispatch.DefaultPriority,
		}
		if queue == "" {
			tasks[i].Queue = fmt.Sprintf("q%d", name)
		}
		if after > 0 {
			tasks[i].Due = time.Now().Add(after)
		}
	}
	results, err := w.d[0].SubmitTasks(w.t.Context(), tasks)
	if err != nil {
		w.t.Fatalf("SubmitTasks: %v", err)
	}
	ids := make([]dispatch.TaskID, n)
	for i, r := range results {
		if r.Err != nil || r.Code != dispatch.SubmitCreated {
			w.t.Fatalf("SubmitTasks: item %d: code %v, %v", i, r.Code, r.Err)
		}
		ids[i] = r.ID
	}
	return ids
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

// park begins n fetches of collectors of their own, and returns when all are
// parked.
func (w *world) park(n int, wait time.Duration) []<-chan answer {
	w.t.Helper()
	chans := make([]<-chan answer, n)
	for i := range n {
		chans[i] = w.fetch(w.t.Context(), 0, ask(fmt.Sprintf("parked%d", i), "", wait))
	}
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

func (w *world) succeed(g dispatch.Grant) {
	w.t.Helper()
	w.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{}})
}

func (w *world) report(r dispatch.Report) {
	w.t.Helper()
	results, err := w.d[0].Report(w.t.Context(), r.Token.Collector, []dispatch.Report{r})
	if err != nil || results[0].Code != engine.ReportOK {
		w.t.Fatalf("Report: %+v, %v", results, err)
	}
}

// observed is an Observer that keeps what it saw.
type observed struct {
	mu       sync.Mutex
	claims   int
	gaveBack int
	lags     []time.Duration
	keeping  bool
}

func (o *observed) Claimed(_, _ int, _ time.Duration, _ error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claims++
}

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
