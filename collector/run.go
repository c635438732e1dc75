package collector

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/proto/tracing"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// goodbyeTimeout bounds the call that reports the end of the collector.
const goodbyeTimeout = time.Second

// run is one Run of a Collector: a fetch loop, a heartbeat loop, a report loop, and goroutines that call the handler.
//
// Its lives end one after another. Fetching: when the caller's context ends, or going on is of no use. Working, that of
// handlers: when the stop timeout is over. Calling, that of everything else: when all reports are answered.
type run struct {
	cfg     Config
	session string
	handler Handler
	log     *zap.Logger
	tracer  trace.Tracer

	fetchConn   *reconnecting // its own, so that plain fetches and heartbeats each go to the dispatchers in turn
	controlConn *reconnecting
	fetches     wagglev1.DispatchServiceClient
	control     wagglev1.DispatchServiceClient

	stream atomic.Pointer[workStream] // nil: calls are plain

	fetching, working, calling life
	stopErr                    atomic.Pointer[error] // set once by stop

	metrics  *metrics
	leases   *leaseTable
	outbox   *outbox
	stats    *counters
	known    *knownLinks
	troubles *troubles // logs calls that fail

	handlers sync.WaitGroup // goroutines that call the handler

	// Signals, each a channel of capacity 1.
	beatNow       chan struct{} // a heartbeat is wanted at once
	leasesChanged chan struct{} // compute anew when the next heartbeat is due
	slotFree      chan struct{} // there may be more to fetch
}

func newRun(ctx context.Context, c *Collector, handler Handler) (*run, error) {
	cfg := c.cfg
	dial := func() (*grpc.ClientConn, error) { return cfg.dial(c.security) }
	fetchConn, err := newReconnecting(c.security.certificate, dial)
	if err != nil {
		return nil, err
	}
	controlConn, err := newReconnecting(c.security.certificate, dial)
	if err != nil {
		return nil, errors.Join(err, fetchConn.close())
	}
	log := cfg.Logger.With(zap.String("collector_id", cfg.ID))
	r := &run{
		cfg: cfg, session: c.session, handler: handler, log: log, tracer: cfg.TracerProvider.Tracer(tracing.Scope),
		fetchConn: fetchConn, controlConn: controlConn,
		fetches: wagglev1.NewDispatchServiceClient(fetchConn),
		control: wagglev1.NewDispatchServiceClient(controlConn),
		metrics: c.metrics,
		leases:  newLeaseTable(cfg.Slots),
		outbox:  newOutbox(),
		stats:   &counters{began: time.Now()},
		known:   newKnownLinks(),

		troubles: newTroubles(log),

		beatNow:       make(chan struct{}, 1),
		leasesChanged: make(chan struct{}, 1),
		slotFree:      make(chan struct{}, 1),
	}
	r.fetching = newLife(ctx)
	r.working = newLife(context.WithoutCancel(ctx))
	r.calling = newLife(context.WithoutCancel(ctx))
	return r, nil
}

// answered notes that a dispatcher has answered a call.
func (r *run) answered(call string) {
	r.stats.change(func(s *Stats) { s.LastAnswer, s.LastError = time.Now(), nil })
	r.troubles.over(call)
}

// failed notes that a call failed and is repeated after a wait; repeated if it was a repetition already. In an outage a
// failover may have set the store back, so that links it took are gone.
func (r *run) failed(call string, err error, wait time.Duration, repeated bool) {
	r.stats.change(func(s *Stats) { s.LastError = err })
	r.troubles.failed(call, err, wait, repeated)
	if isOutage(err) {
		r.known.forget()
	}
}

func (r *run) close() error { return errors.Join(r.fetchConn.close(), r.controlConn.close()) }

// stop ends fetching for good with an error for Run to return; the first one counts. When the collector was replaced,
// its leases are gone, and so is any use in finishing.
func (r *run) stop(cause error) {
	r.stopErr.CompareAndSwap(nil, &cause)
	r.fetching.end(cause)
	if errors.Is(cause, ErrReplaced) {
		r.working.end(cause)
	}
}

// stopCause is the error that ended fetching; nil when the caller's context did.
func (r *run) stopCause() error {
	if cause := r.stopErr.Load(); cause != nil {
		return *cause
	}
	return nil
}

// lost counts a lease that ended before its task was reported.
func (r *run) lost(reason wagglev1.LostReason) {
	r.stats.change(func(s *Stats) { s.Lost++ })
	r.metrics.lost.WithLabelValues(lostLabel(reason)).Inc()
}

// forget drops a lease that is over, and frees what its context holds.
func (r *run) forget(l *lease) {
	r.leases.forget(l)
	l.end(nil)
}

// goodbye reports once that this collector has ended, so that nobody waits for its silence.
func (r *run) goodbye() {
	if errors.Is(r.stopCause(), ErrReplaced) {
		return // the newer session is there
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.calling.ctx), goodbyeTimeout)
	defer cancel()
	info := r.info()
	info.Ended = true
	if _, err := r.control.RenewLease(ctx, &wagglev1.RenewLeaseRequest{Collector: info}); err != nil {
		r.log.Debug("end of the collector not reported", zap.Error(err))
	}
}

// info describes this collector.
func (r *run) info() *wagglev1.CollectorInfo {
	_, stuck := r.leases.running()
	info := &wagglev1.CollectorInfo{
		Id: r.cfg.ID, Session: r.session, Version: r.cfg.Version, Hostname: r.cfg.Hostname, Labels: r.cfg.Labels,
		Pools: r.cfg.Pools, Sources: r.cfg.Sources, Queues: r.cfg.Queues, Slots: int32(r.cfg.Slots),
		Stopping: r.fetching.ctx.Err() != nil, StuckSlots: int32(stuck),
	}
	if since, err := r.cfg.problem(); err != nil {
		info.Problem, info.ProblemDuration = problemText(err), durationpb.New(min(max(time.Since(since), 0), maxProblemDuration))
	}
	return info
}
