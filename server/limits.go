package server

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// limits decides which calls are let in. It sheds submits and reads first, then
// fetches. What keeps or settles leases is refused only for the bytes of its own kind
// that are in hand.
type limits struct {
	policies map[string]class
	attached atomic.Bool // there is a dispatcher to call
	// most calls of a class at once; 0: no bound.
	most [classes]int
	// busy is how many calls may be at work before submits are shed.
	busy         int
	perCollector int
	rates        [classes]*rate.Limiter // nil: no bound
	line         *submitLine
	reports      *inHand
	renewals     *inHand

	working atomic.Int64 // calls let in, parked fetches not among them
	running [classes]atomic.Int64
	shed    *prometheus.CounterVec // by class

	mu      sync.Mutex     // guards fetches
	fetches map[string]int // parked, by collector id
}

func newLimits(cfg *Config) *limits {
	l := &limits{
		policies:     methodPolicies(),
		busy:         cfg.Busy,
		perCollector: cfg.MaxFetchesPerCollector,
		fetches:      make(map[string]int),
		shed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waggle_shed_calls_total",
			Help: "Calls refused for load or rate, by class of method.",
		}, []string{"class"}),
	}
	l.line, l.reports, l.renewals = newSubmitLine(l), newInHand(l), newInHand(l)
	l.most[classFetch] = cfg.MaxFetches
	l.most[classSubmit] = cfg.MaxSubmits
	l.most[classRead] = cfg.MaxReads
	l.most[classSteer] = cfg.MaxSteers
	for c, perSecond := range map[class]float64{
		classFetch:  cfg.FetchesPerSecond,
		classSubmit: cfg.SubmitsPerSecond,
		classRead:   cfg.ReadsPerSecond,
	} {
		if perSecond > 0 {
			l.rates[c] = rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond)))
		}
	}
	for c := range classes {
		l.shed.WithLabelValues(class(c).String())
	}
	return l
}

// stream lets a stream in, or refuses it. It does not count as a call at work:
// streams are open for hours, and each of their messages is counted by the
// handler.
func (l *limits) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if _, err := l.classOf(info.FullMethod); err != nil {
		return err
	}
	return handler(srv, stream)
}

// classOf fails closed: what is not in the table is not served, and of the rest only
// probes before there is a dispatcher.
func (l *limits) classOf(method string) (class, error) {
	c, ok := l.policies[method]
	if !ok {
		return 0, &refusal{code: codes.PermissionDenied, text: "no policy lets this method be called", pairs: []string{"method", method}}
	}
	if c != classProbe && !l.attached.Load() {
		return 0, errNotOpen
	}
	return c, nil
}

// errNotOpen refuses calls before there is a dispatcher.
var errNotOpen = fmt.Errorf("%w: it was not reached since this dispatcher began", dispatch.ErrStoreUnavailable)

// admit lets the request of a call be decoded, of so many bytes, or refuses it for load or
// rate. Large submits wait in their line first. Unless leave is nil, it is called once the
// call is answered.
func (l *limits) admit(ctx context.Context, method string, bytes int) (leave func(), err error) {
	c, err := l.classOf(method)
	if err != nil {
		return nil, err
	}
	switch c {
	case classFetch, classProbe:
		// The handler of fetches asks by itself; see fetch.
		return nil, nil
	case classSubmit, classRead:
		if l.working.Load() >= int64(l.busy) {
			return nil, l.refuse(c, method, l.busy)
		}
	case classHold, classSteer:
	}
	if err := l.withinRate(c, method); err != nil {
		return nil, err
	}
	switch method {
	case pb.TaskService_SubmitTasks_FullMethodName:
		return l.line.enter(ctx, method, bytes)
	case pb.DispatchService_ReportTask_FullMethodName:
		return l.reports.enter(method, bytes)
	case pb.DispatchService_RenewLease_FullMethodName:
		return l.renewals.enter(method, bytes)
	}
	return nil, nil
}

// enter lets a call that was admitted run, or refuses it: too many of its class do.
func (l *limits) enter(method string) (admission, error) {
	c, err := l.classOf(method)
	if err != nil || c == classFetch || c == classProbe {
		return admission{}, err
	}
	if n := l.running[c].Add(1); l.most[c] > 0 && n > int64(l.most[c]) {
		l.running[c].Add(-1)
		return admission{}, l.refuse(c, method, l.most[c])
	}
	return l.work(c), nil
}

// admission is a call at work, until it leaves; the zero value is one that is not
// counted.
type admission struct {
	limits *limits
	class  class
}

func (a admission) leave() {
	if a.limits != nil {
		a.limits.working.Add(-1)
		a.limits.running[a.class].Add(-1)
	}
}

// work counts a call at work. Its running count was raised already.
func (l *limits) work(c class) admission {
	l.working.Add(1)
	return admission{l, c}
}

// hold counts a piece of work on leases, which is never refused for load.
func (l *limits) hold() (done func()) {
	l.running[classHold].Add(1)
	return l.work(classHold).leave
}

// fetch lets a fetch of a collector park, or refuses it.
func (l *limits) fetch(collector string) (leave func(), err error) {
	const method = pb.DispatchService_FetchTask_FullMethodName
	if l.working.Load() >= 2*int64(l.busy) {
		return nil, l.refuse(classFetch, method, 2*l.busy)
	}
	if err := l.withinRate(classFetch, method); err != nil {
		return nil, err
	}
	if n := l.running[classFetch].Add(1); n > int64(l.most[classFetch]) {
		l.running[classFetch].Add(-1)
		return nil, l.tooManyWaiters(l.most[classFetch])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fetches[collector] >= l.perCollector {
		l.running[classFetch].Add(-1)
		return nil, l.tooManyWaiters(l.perCollector, "collector_id", collector)
	}
	l.fetches[collector]++
	return func() { l.leaveFetch(collector) }, nil
}

func (l *limits) leaveFetch(collector string) {
	l.running[classFetch].Add(-1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fetches[collector]--; l.fetches[collector] <= 0 {
		delete(l.fetches, collector)
	}
}

func (l *limits) withinRate(c class, method string) error {
	limiter := l.rates[c]
	if limiter == nil || limiter.Allow() {
		return nil
	}
	l.shed.WithLabelValues(c.String()).Inc()
	return &refusal{
		code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_RATE_LIMITED,
		text:  "more calls in a second than are allowed",
		pairs: []string{"limit", strconv.FormatFloat(float64(limiter.Limit()), 'g', -1, 64), "method", method},
		retry: time.Second,
	}
}

func (l *limits) refuse(c class, method string, limit int) error {
	l.shed.WithLabelValues(c.String()).Inc()
	return &refusal{
		code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_RATE_LIMITED,
		text:  "more calls at once than are allowed",
		pairs: []string{"limit", strconv.Itoa(limit), "method", method},
		retry: time.Second,
	}
}

// refuseBytes refuses a call for the bytes of it and of others.
func (l *limits) refuseBytes(c class, method, text string, limit, bytes int) error {
	l.shed.WithLabelValues(c.String()).Inc()
	return &refusal{
		code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_RATE_LIMITED,
		text:  text,
		pairs: []string{"limit", strconv.Itoa(limit), "bytes", strconv.Itoa(bytes), "method", method},
		retry: time.Second,
	}
}

func (l *limits) tooManyWaiters(limit int, pairs ...string) error {
	l.shed.WithLabelValues(classFetch.String()).Inc()
	return &refusal{
		code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS,
		text:  "too many parked fetches",
		pairs: append([]string{"limit", strconv.Itoa(limit)}, pairs...),
		retry: retryWaiters,
	}
}
