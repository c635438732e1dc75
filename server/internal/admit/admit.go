// Package admit decides which calls are let in. policy.go has the class of each method; a method without one is
// refused. Load sheds submits and reads first, then fetches. What keeps or settles leases is refused only for the
// bytes of its own kind that are not answered yet.
package admit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

const (
	// bytesInHand is how many bytes of reports may be decoded and not answered yet, and of beats: far more than are while
	// the store answers, and little enough to be kept while it does not. Each kind has a share of its own, which no other
	// load takes.
	bytesInHand = 64 << 20
	// submitBytesAtWork is how many bytes of large submits are at work at once: some ten thousand tasks, or one request as
	// large as may be. Fewer leave the nodes of a Cluster without work.
	submitBytesAtWork = 4 << 20
	// SmallRequest is how large a request may be that waits for no other: who submits few tasks does not come behind those
	// who submit thousands.
	SmallRequest = 32 << 10
	// longestAtWork is how long a large submit counts as at work: behind those that a store does not answer, others may
	// come through.
	longestAtWork = 2 * time.Second
	// lineMargin is how long ahead of its caller's deadline a submit stops waiting, so that its refusal arrives in time; at
	// most a tenth of what is left.
	lineMargin = 500 * time.Millisecond
	// retry is how long callers are asked to wait before they repeat a call that was refused.
	retry = time.Second
)

// Config bounds the calls of each class; see the fields of the server's config.
type Config struct {
	// At once.
	Fetches, FetchesPerCollector, Submits, Reads, Steers int
	// Busy is how many calls may be at work before submits and reads are shed; at twice as many, fetches are.
	Busy int
	// Calls a second; 0: no bound.
	SubmitsPerSecond, FetchesPerSecond, ReadsPerSecond float64
}

// Limits lets calls in, or refuses them. A leave function that it gives is called once, when the call is answered.
type Limits struct {
	// Shed counts refused calls by class.
	Shed *prometheus.CounterVec

	open         atomic.Bool
	most         [classes]int // calls at once; 0: no bound
	busy         int
	perCollector int
	rates        [classes]*rate.Limiter // nil: no bound

	working atomic.Int64 // calls let in, parked fetches not among them
	running [classes]atomic.Int64

	reports, beats, submits *semaphore.Weighted // bytes
	largeSubmits            atomic.Int64        // at work, or waiting for it

	mu      sync.Mutex     // guards fetches
	fetches map[string]int // parked, by collector id
}

// New makes limits that let nothing in but probes, until [Limits.Open].
func New(cfg Config) *Limits {
	l := &Limits{
		Shed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waggle_shed_calls_total", Help: "Calls refused for load or rate, by class of method.",
		}, []string{"class"}),
		most: [classes]int{classFetch: cfg.Fetches, classSubmit: cfg.Submits, classRead: cfg.Reads, classSteer: cfg.Steers},
		busy: cfg.Busy, perCollector: cfg.FetchesPerCollector,
		reports: semaphore.NewWeighted(bytesInHand), beats: semaphore.NewWeighted(bytesInHand),
		submits: semaphore.NewWeighted(submitBytesAtWork),
		fetches: make(map[string]int),
	}
	for c, perSecond := range map[class]float64{
		classFetch: cfg.FetchesPerSecond, classSubmit: cfg.SubmitsPerSecond, classRead: cfg.ReadsPerSecond,
	} {
		if perSecond > 0 {
			l.rates[c] = rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond)))
		}
	}
	for _, name := range classNames {
		l.Shed.WithLabelValues(name)
	}
	return l
}

// Open lets calls in from now on: there is a dispatcher to call.
func (l *Limits) Open() { l.open.Store(true) }

// Methods are the full names of all methods that may be called.
func Methods() []string { return slices.Collect(maps.Keys(policies)) }

// IsProbe reports whether a method only watches the server: health and reflection.
func IsProbe(method string) bool { return policies[method] == classProbe }

// Keeps reports whether a method keeps or settles leases.
func Keeps(method string) bool {
	c, known := policies[method]
	return known && c == classHold
}

// Reads reports whether a method only looks.
func Reads(method string) bool { return policies[method] == classRead }

// TakesTurn reports whether the calls of a method wait for others of their address. Fetches park and probes are cheap;
// large submits wait in a line of their own.
func TakesTurn(method string) bool {
	switch policies[method] {
	case classHold, classRead, classSteer:
		return true
	default:
		return false
	}
}

// Stream lets a stream in, or refuses it. It does not count as a call at work: streams are open for hours, and each of
// their messages is counted.
func (l *Limits) Stream(method string) error {
	_, err := l.classOf(method)
	return err
}

// classOf fails closed: what is not in the table is not served, and of the rest only probes before there is a
// dispatcher.
func (l *Limits) classOf(method string) (class, error) {
	c, ok := policies[method]
	if !ok {
		return 0, &wire.Refusal{Code: codes.PermissionDenied, Text: "no policy lets this method be called", Pairs: []string{"method", method}}
	}
	if c != classProbe && !l.open.Load() {
		return 0, fmt.Errorf("%w: it was not reached since this dispatcher began", dispatch.ErrStoreUnavailable)
	}
	return c, nil
}

// Decode lets the request of a call be decoded, of so many bytes, or refuses it for load or rate. Large submits wait
// for each other first.
func (l *Limits) Decode(ctx context.Context, method string, bytes int) (leave func(), err error) {
	c, err := l.classOf(method)
	if err != nil {
		return nil, err
	}
	switch c {
	case classFetch, classProbe:
		return noop, nil // see Fetch
	case classSubmit, classRead:
		if l.working.Load() >= int64(l.busy) {
			return nil, l.tooMany(c, method, l.busy)
		}
	case classHold, classSteer:
	}
	if err := l.withinRate(c, method); err != nil {
		return nil, err
	}
	switch method {
	case pb.TaskService_SubmitTasks_FullMethodName:
		return l.largeSubmit(ctx, method, bytes)
	case pb.DispatchService_ReportTask_FullMethodName:
		return l.Reports(method, bytes)
	case pb.DispatchService_RenewLease_FullMethodName:
		return l.inHand(l.beats, method, bytes)
	}
	return noop, nil
}

func noop() {}

// Call lets a call that was decoded run, or refuses it: too many of its class do.
func (l *Limits) Call(method string) (leave func(), err error) {
	c, err := l.classOf(method)
	if err != nil {
		return nil, err
	}
	if c == classFetch || c == classProbe {
		return noop, nil
	}
	if n := l.running[c].Add(1); l.most[c] > 0 && n > int64(l.most[c]) {
		l.running[c].Add(-1)
		return nil, l.tooMany(c, method, l.most[c])
	}
	l.working.Add(1)
	return func() { l.working.Add(-1); l.running[c].Add(-1) }, nil
}

// Fetch lets a fetch of a collector park, or refuses it.
func (l *Limits) Fetch(collector string) (leave func(), err error) {
	const method = pb.DispatchService_FetchTask_FullMethodName
	if l.working.Load() >= 2*int64(l.busy) {
		return nil, l.tooMany(classFetch, method, 2*l.busy)
	}
	if err := l.withinRate(classFetch, method); err != nil {
		return nil, err
	}
	if n := l.running[classFetch].Add(1); n > int64(l.most[classFetch]) {
		l.running[classFetch].Add(-1)
		return nil, l.tooManyFetches(l.most[classFetch])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fetches[collector] >= l.perCollector {
		l.running[classFetch].Add(-1)
		return nil, l.tooManyFetches(l.perCollector, "collector_id", collector)
	}
	l.fetches[collector]++
	return func() { l.leaveFetch(collector) }, nil
}

func (l *Limits) leaveFetch(collector string) {
	l.running[classFetch].Add(-1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fetches[collector]--; l.fetches[collector] <= 0 {
		delete(l.fetches, collector)
	}
}

// Beat lets a message of a stream of heartbeats be answered, of so many bytes, or refuses it.
func (l *Limits) Beat(bytes int) (leave func(), err error) {
	const method = pb.DispatchService_Heartbeat_FullMethodName
	release, err := l.inHand(l.beats, method, bytes)
	if err != nil {
		return nil, err
	}
	done, err := l.Call(method)
	if err != nil {
		release()
		return nil, err
	}
	return func() { done(); release() }, nil
}

// Reports lets reports of so many bytes be settled, or refuses them: nothing of them was done then.
func (l *Limits) Reports(method string, bytes int) (leave func(), err error) {
	return l.inHand(l.reports, method, bytes)
}

// inHand counts the bytes of a request until it is answered. One that is larger than all that may be in hand is so
// alone.
func (l *Limits) inHand(of *semaphore.Weighted, method string, bytes int) (leave func(), err error) {
	weight := int64(min(bytes, bytesInHand))
	if !of.TryAcquire(weight) {
		return nil, l.refuse(classHold, pb.ErrorReason_ERROR_REASON_RATE_LIMITED, "more bytes of such calls are in hand than are allowed",
			"limit", strconv.Itoa(bytesInHand), "bytes", strconv.Itoa(bytes), "method", method)
	}
	return func() { of.Release(weight) }, nil
}

// largeSubmit keeps large submits from being decoded and prepared all at once: with two hundred calls of a thousand
// tasks a heartbeat waited half a second for its turn, and they took 400 MB. Those beyond submitBytesAtWork wait as the
// bytes that they came in as, in the order in which they came in; there are no more of them than may run at once. One as
// large as all that may be at work is at work alone. Only SubmitTasks waits so: of collectors the leases run, and
// operators are few.
func (l *Limits) largeSubmit(ctx context.Context, method string, bytes int) (leave func(), err error) {
	if bytes <= SmallRequest {
		return noop, nil
	}
	most := l.most[classSubmit]
	if n := l.largeSubmits.Add(1); n > int64(most) {
		l.largeSubmits.Add(-1)
		return nil, l.tooMany(classSubmit, method, most)
	}
	waiting, stop := ctx, context.CancelFunc(noop)
	if deadline, ok := ctx.Deadline(); ok {
		waiting, stop = context.WithDeadline(ctx, deadline.Add(-min(lineMargin, time.Until(deadline)/10)))
	}
	defer stop()
	weight := int64(min(bytes, submitBytesAtWork))
	if err := l.submits.Acquire(waiting, weight); err != nil {
		l.largeSubmits.Add(-1)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for other submits: %w", err)
		}
		return nil, l.refuse(classSubmit, pb.ErrorReason_ERROR_REASON_RATE_LIMITED,
			"other large submits took all the time that the call's deadline left: give it more, or submit fewer at once",
			"limit", strconv.Itoa(submitBytesAtWork), "bytes", strconv.Itoa(bytes), "method", method)
	}
	release := sync.OnceFunc(func() { l.submits.Release(weight) })
	timer := time.AfterFunc(longestAtWork, release)
	return func() {
		timer.Stop()
		release()
		l.largeSubmits.Add(-1)
	}, nil
}

func (l *Limits) withinRate(c class, method string) error {
	limiter := l.rates[c]
	if limiter == nil || limiter.Allow() {
		return nil
	}
	return l.refuse(c, pb.ErrorReason_ERROR_REASON_RATE_LIMITED, "more calls in a second than are allowed",
		"limit", strconv.FormatFloat(float64(limiter.Limit()), 'g', -1, 64), "method", method)
}

func (l *Limits) tooMany(c class, method string, limit int) error {
	return l.refuse(c, pb.ErrorReason_ERROR_REASON_RATE_LIMITED, "more calls at once than are allowed", "limit", strconv.Itoa(limit), "method", method)
}

func (l *Limits) tooManyFetches(limit int, pairs ...string) error {
	return l.refuse(classFetch, pb.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS, "too many parked fetches",
		append([]string{"limit", strconv.Itoa(limit)}, pairs...)...)
}

// refuse counts a refused call; pairs are names and values.
func (l *Limits) refuse(c class, reason pb.ErrorReason, text string, pairs ...string) error {
	l.Shed.WithLabelValues(classNames[c]).Inc()
	return &wire.Refusal{Code: codes.ResourceExhausted, Reason: reason, Text: text, Pairs: pairs, Retry: retry}
}
