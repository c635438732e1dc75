package server

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// request is one of a Work stream.
type request struct {
	work   *work
	caller *auth.Caller
	*pb.WorkRequest
	came  time.Time
	bytes int // that the client holds until it is answered

	// Of one without a goroutine that waits; see gather.
	reports wire.Reports
	fetch   *engine.Standing // nil: none
	term    *term            // nil: nobody else may own the store
	admit   [3]func()        // end what was admitted: the bytes of reports, the call that they are, the fetch
	stops   []func()         // of what ends the wait

	mu      sync.Mutex        // guards what follows
	leave   func(cause error) // ends the wait of the fetch; nil: it does not wait
	givenUp bool
}

// guarded does a part of a request. A panic is an error of the stream: the goroutine is no call's.
func (r *request) guarded(part func()) {
	err := recovered(func() error {
		part()
		return nil
	})
	if err != nil {
		r.work.end(err)
		r.done()
	}
}

// giveUp ends the wait of a fetch: nobody wants its answer any more.
func (r *request) giveUp() {
	r.mu.Lock()
	r.givenUp = true
	leave := r.leave
	r.mu.Unlock()
	if leave != nil {
		leave(context.Canceled)
	}
}

// waits has leave end the wait of the fetch. It is called at once if the fetch was given up before.
func (r *request) waits(leave func(cause error)) {
	r.mu.Lock()
	r.leave = leave
	gone := r.givenUp
	r.mu.Unlock()
	if gone {
		leave(context.Canceled)
	}
}

func (r *request) isGivenUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.givenUp
}

// gather makes those calls of Work streams that no goroutine has to wait for: reports, settled together with those of others, and
// fetches that wait. Whatever else a request asks goes the way of a call: see work.run.
type gather struct{ chain *chain }

// take begins a request, or reports that it goes the way of a call, which also finds what is wrong with it.
func (g *gather) take(r *request) bool {
	c, w := g.chain, r.work
	if c.owners.shared.Load() {
		if r.term = c.owners.now.Load().local; r.term == nil {
			return false
		}
	}
	call, reports, fetch, err := r.read()
	if err != nil || call == nil || c.meet(w.ctx, r.caller, call) != nil || r.caller.Within(w.ctx, call, c.backend) != nil {
		return false
	}
	if !g.admitted(r, reports, fetch) {
		return false
	}
	d := c.backend.d()
	if fetch != nil {
		if r.fetch, err = d.Prepare(w.ctx, *fetch); err != nil || r.fetch == nil {
			r.release()
			return false
		}
	}
	if len(reports) == 0 {
		g.stand(r)
		return true
	}
	settled := func(results []engine.ReportResult, err error) { r.guarded(func() { g.settled(r, results, err) }) }
	if !d.Settle(collectorOf(call), r.reports.List, settled) {
		r.release()
		return false
	}
	return true
}

// read reads a request that nobody has to wait for; call is nil of another one.
func (r *request) read() (call proto.Message, reports []*pb.TaskReport, fetch *engine.FetchRequest, err error) {
	switch asked := r.GetCall().(type) {
	case *pb.WorkRequest_Fetch:
		if !r.work.known.Load() || asked.Fetch.GetWait() != nil || len(asked.Fetch.GetSources()) > 0 {
			return nil, nil, nil, nil
		}
		read, carried, err := wire.Fetch(asked.Fetch)
		r.reports, read.Reports = carried, nil
		return asked.Fetch, asked.Fetch.GetReports(), &read, err
	case *pb.WorkRequest_Report:
		r.reports, err = wire.Report(asked.Report)
		return asked.Report, asked.Report.GetReports(), nil, err
	default:
		return nil, nil, nil, nil
	}
}

// taskReports are the reports of the request, or those that its fetch carries.
func (r *request) taskReports() []*pb.TaskReport {
	if fetch := r.GetFetch(); fetch != nil {
		return fetch.GetReports()
	}
	return r.GetReport().GetReports()
}

func collectorOf(call proto.Message) string {
	return call.(interface{ GetCollectorId() string }).GetCollectorId() //nolint:forcetypeassert // fetches and reports have one
}

// admitted lets a request in as decode and the handlers do for calls.
func (g *gather) admitted(r *request, reports []*pb.TaskReport, fetch *engine.FetchRequest) bool {
	var err error
	if len(reports) > 0 {
		if r.admit[0], err = g.chain.decode(r.work.ctx, pb.DispatchService_ReportTask_FullMethodName, r.bytes); err != nil {
			return false
		}
		if r.admit[1], err = g.chain.limits.Call(pb.DispatchService_ReportTask_FullMethodName); err != nil {
			r.release()
			return false
		}
	}
	if fetch != nil {
		if r.admit[2], err = g.chain.limits.Fetch(fetch.Collector); err != nil {
			r.release()
			return false
		}
	}
	return true
}

// settled goes on with a request whose reports were settled, or could not be.
func (g *gather) settled(r *request, results []engine.ReportResult, err error) {
	moved := r.term != nil && r.term.over.Err() != nil
	switch {
	case errors.Is(err, dispatch.ErrStoreUnavailable) && !moved:
		_ = r.work.fail(r.GetId(), g.logged(r, pb.DispatchService_ReportTask_FullMethodName, err)) // else the stream has ended
		r.done()
		return
	case err != nil:
		r.asCall() // which repeats them, and says what is wrong
		return
	}
	_ = g.logged(r, pb.DispatchService_ReportTask_FullMethodName, nil) // it was none
	resp := &pb.ReportTaskResponse{Results: r.reports.Results(results)}
	g.chain.tracer.reported(r.work.ctx, r.work.hello.GetId(), r.came, r.taskReports(), resp.GetResults())
	_ = r.work.answer(&pb.WorkResponse{Id: r.GetId(), Answer: &pb.WorkResponse_Report{Report: resp}}, r.fetch == nil) // else the stream has ended
	if r.fetch == nil {
		r.done()
		return
	}
	for i := range r.admit[:2] {
		r.admit[i]()
		r.admit[i] = nil
	}
	r.GetFetch().Reports, r.reports = nil, wire.Reports{}
	g.stand(r)
}

// stand has a fetch wait.
func (g *gather) stand(r *request) {
	endsWith := func(ctx context.Context) {
		stop := context.AfterFunc(ctx, func() { r.fetch.Leave(context.Cause(ctx)) })
		r.stops = append(r.stops, func() { stop() })
	}
	if r.term != nil {
		endsWith(r.term.over)
	}
	if r.caller != nil { // its grant may be taken while it waits
		watched, stop := r.caller.Watch(r.work.ctx)
		r.stops = append(r.stops, stop)
		endsWith(watched)
	}
	r.waits(r.fetch.Leave)
	// Its answer may have to wait for a source: others do not wait for that.
	r.fetch.Stand(func() { go r.guarded(func() { g.answer(r) }) })
}

// answer answers a fetch. One that has ended without an answer for its client goes on as a call, unless it was given up.
func (g *gather) answer(r *request) {
	w := r.work
	if !r.fetch.Answered() {
		if r.isGivenUp() {
			_ = w.fail(r.GetId(), g.logged(r, pb.DispatchService_FetchTask_FullMethodName, context.Canceled)) // the stream may have ended
			r.done()
			return
		}
		r.asCall()
		return
	}
	result, err := r.fetch.Result(w.ctx)
	if err != nil { // what it was granted is given back
		r.asCall()
		return
	}
	_ = g.logged(r, pb.DispatchService_FetchTask_FullMethodName, nil) // it was none
	g.chain.tracer.granted(w.ctx, r.GetFetch().GetCollectorId(), r.came, result)
	m := g.chain.metrics
	m.granted.Add(float64(len(result.Tasks)))
	m.fetchWait.WithLabelValues(strconv.FormatBool(len(result.Tasks) > 0)).Observe(result.Waited.Seconds())
	_ = w.handOut(r.GetId(), wire.FetchTaskResponse(result, nil), result.GiveBack) // else it is undone
	r.done()
}

// logged is 4 and 5 of a call that no handler makes; see chain.
func (g *gather) logged(r *request, method string, err error) error {
	return g.chain.logged(r.work.ctx, method, r.came, func(context.Context) error { return err })
}

// release ends what the request holds but its place on the stream.
func (r *request) release() {
	for _, stop := range r.stops {
		stop()
	}
	for i, end := range r.admit {
		if end != nil {
			end()
			r.admit[i] = nil
		}
	}
	r.stops = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave = nil
}

// done ends a request that was answered.
func (r *request) done() {
	r.release()
	r.work.left(r)
}

// asCall makes the request as a call.
func (r *request) asCall() {
	r.release()
	go r.work.run(r)
}
