package collector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// goodbyeTimeout bounds the call that tells that the collector has ended.
const goodbyeTimeout = time.Second

// handlerGrace is how long a handler may take to return once its context has ended for draining.
const handlerGrace = 5 * time.Second

// run is one Run of a Collector: a fetch loop, a heartbeat loop, a report loop, and goroutines that call the handler.
//
// Its lives end one after another. Fetching: when the caller's context ends, or going on is of no use. Working, that of
// handlers: when the drain timeout is over. Calling, that of everything else: when all reports are answered.
type run struct {
	cfg     Config
	session string
	handler Handler
	log     *zap.Logger

	fetchConn   *grpc.ClientConn
	controlConn *grpc.ClientConn // its own, so that parked fetches never hold up a heartbeat
	fetches     wagglev1.DispatchServiceClient
	control     wagglev1.DispatchServiceClient

	fetching, working, calling life
	stopErr                    atomic.Pointer[error] // set once by stop

	leases *leaseTable
	outbox *outbox
	stats  *counters
	known  *knownLinks
	// troubles are told of calls that fail; answered is their other end.
	troubles *troubles
	// attendance watches controlConn, which makes the fewer calls.
	attendance *attendance

	handlers sync.WaitGroup // goroutines that call the handler
	granted  chan *lease    // to one of them that has nothing to do

	// introduced is closed once the first heartbeat is over: dispatchers know by it whether operators drain collectors with
	// these labels, and say so.
	introduced chan struct{}

	// turnedAway says that a fetch was answered DRAINING, and not yet whether operators or the dispatcher's stop are why: a
	// beat sent from now on tells.
	turnedAway atomic.Bool

	// Signals, each a channel of capacity 1.
	beatNow       chan struct{} // a heartbeat is wanted at once
	leasesChanged chan struct{} // reckon anew when the next heartbeat is due
	slotFree      chan struct{} // there may be more to fetch
}

// life is a context and what ends it.
type life struct {
	ctx context.Context //nolint:containedctx // loops and handlers outlive the call that began them, each for its own time
	end context.CancelCauseFunc
}

func newLife(parent context.Context) life {
	ctx, end := context.WithCancelCause(parent)
	return life{ctx: ctx, end: end}
}

func newRun(ctx context.Context, cfg Config, session string, handler Handler) (*run, error) {
	fetchConn, err := dial(cfg)
	if err != nil {
		return nil, err
	}
	log := cfg.Logger.With(zap.String("collector_id", cfg.ID))
	attendance := newAttendance(log)
	controlConn, err := dial(cfg, grpc.WithStatsHandler(attendance))
	if err != nil {
		return nil, errors.Join(err, fetchConn.Close())
	}
	r := &run{
		cfg: cfg, session: session, handler: handler,
		log: log, attendance: attendance,
		fetchConn: fetchConn, controlConn: controlConn,
		fetches: wagglev1.NewDispatchServiceClient(fetchConn),
		control: wagglev1.NewDispatchServiceClient(controlConn),
		leases:  newLeaseTable(cfg.Slots),
		outbox:  newOutbox(),
		stats:   newCounters(time.Now()),
		known:   newKnownLinks(time.Now()),
		granted: make(chan *lease),

		introduced:    make(chan struct{}),
		beatNow:       make(chan struct{}, 1),
		leasesChanged: make(chan struct{}, 1),
		slotFree:      make(chan struct{}, 1),
	}
	r.troubles = newTroubles(r.log)
	r.fetching = newLife(ctx)
	r.working = newLife(context.WithoutCancel(ctx))
	r.calling = newLife(context.WithoutCancel(ctx))
	return r, nil
}

// answered notes that a dispatcher has answered a call.
func (r *run) answered(call string) {
	r.stats.answered()
	r.troubles.over(call)
}

// failed notes that a call failed and is repeated after a wait; or was a repetition already. In an outage the store may have gone back to an earlier
// time, as a failover does; then what was taken before may be gone.
func (r *run) failed(call string, err error, wait time.Duration, repeated bool) {
	r.stats.failed(err)
	r.troubles.failed(call, err, wait, repeated)
	if isOutage(err) {
		r.known.forget()
	}
}

func (r *run) close() error {
	r.attendance.close()
	return errors.Join(r.fetchConn.Close(), r.controlConn.Close())
}

// work runs the loops and drains.
func (r *run) work() error {
	var loops sync.WaitGroup
	loops.Go(newHeartbeat(r).loop)
	loops.Go(r.reportLoop)

	r.fetchLoop()
	r.stats.setDraining()
	r.outbox.sendAll()
	signal(r.beatNow) // tell that this collector drains
	unclean := r.drain()

	r.working.end(ErrDraining)
	r.calling.end(ErrDraining)
	loops.Wait()
	r.dropLate(time.Now().Add(storeGrace)) // all
	r.goodbye()
	return errors.Join(r.stopCause(), unclean)
}

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

// drain waits for handlers and reports, each for its time.
func (r *run) drain() error {
	handlersDone := make(chan struct{})
	go func() {
		r.handlers.Wait()
		close(handlersDone)
	}()
	limit := r.cfg.DrainTimeout
	if limit < 0 {
		limit = 0
	}
	if !waitFor(handlersDone, r.working.ctx.Done(), limit) {
		r.working.end(ErrDraining)
	}
	var unclean error
	if !waitFor(handlersDone, nil, handlerGrace) {
		running, _ := r.leases.running()
		unclean = fmt.Errorf("%w: %d handlers did not return within %s of the end of their context", ErrUnclean, running, handlerGrace)
	}
	if errors.Is(r.stopCause(), ErrReplaced) {
		return unclean // nobody takes our reports any more
	}
	if !waitFor(r.outbox.whenEmpty(), nil, r.cfg.ReportTimeout) {
		return errors.Join(unclean, fmt.Errorf("%w: %d reports not answered within %s", ErrUnclean, r.outbox.size(), r.cfg.ReportTimeout))
	}
	return unclean
}

// waitFor waits for done; it returns false when the time is over, or when stop is closed, before that.
func waitFor(done, stop <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-stop:
	case <-timer.C:
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// signal wakes whoever waits on a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
