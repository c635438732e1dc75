package server

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// gather makes calls of Work streams for which nobody waits: reports that are settled together with those of others, and fetches that
// wait. Whatever else a request asks goes the way of a call: see work.run.
type gather struct {
	chain *chain

	mu    sync.Mutex  // guards what follows
	ended []*gathered // fetches that have their answer
	hands bool        // somebody hands them out
}

// gathered is a request under way.
type gathered struct {
	work    *work
	caller  *auth.Caller
	req     *pb.WorkRequest
	reports wire.Reports
	fetch   *engine.Standing // nil: none
	token   string           // of the fetch
	came    time.Time
	term    *term       // nil: nobody else may own the store
	reset   func()      // of what was admitted
	stop    func() bool // of what ends the wait with the term; nil: nothing does

	mu      sync.Mutex        // guards what follows
	leave   func(cause error) // ends the wait; nil: it has not begun
	givenUp bool
}

func (i *gathered) giveUp() { i.abandon(context.Canceled) }

// abandon ends the wait of the fetch.
func (i *gathered) abandon(cause error) {
	i.mu.Lock()
	i.givenUp = i.givenUp || errors.Is(cause, context.Canceled)
	leave := i.leave
	i.mu.Unlock()
	if leave != nil {
		leave(cause)
	}
}

// abandoned reports whether nobody wants the answer of the fetch.
func (i *gathered) abandoned() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.givenUp
}

// take begins a request, or reports that it goes the way of a call, which also finds what is wrong with it.
func (g *gather) take(w *work, caller *auth.Caller, req *pb.WorkRequest) bool {
	c, term := g.chain, (*term)(nil)
	if c.owners.shared.Load() {
		if term = c.owners.now.Load().local; term == nil {
			return false
		}
	}
	item := &gathered{work: w, caller: caller, req: req, term: term, came: time.Now()}
	var call proto.Message
	var reported []*pb.TaskReport
	var fetch engine.FetchRequest
	var err error
	var collector string
	method := pb.DispatchService_ReportTask_FullMethodName
	if asked := req.GetFetch(); asked != nil {
		if !w.known.Load() || asked.GetWait() != nil || len(asked.GetSources()) > 0 {
			return false
		}
		fetch, item.reports, err = wire.Fetch(asked)
		call, reported, collector = asked, asked.GetReports(), asked.GetCollectorId()
	} else if report := req.GetReport(); report != nil {
		item.reports, err = wire.Report(report)
		call, reported, collector = report, report.GetReports(), report.GetCollectorId()
	} else {
		return false
	}
	d := c.backend.d()
	if err != nil || c.meet(w.ctx, caller, call) != nil || caller.Within(w.ctx, call, c.backend) != nil {
		return false
	}
	if !g.admit(item, method, reported, fetch) {
		return false
	}
	if req.GetFetch() != nil {
		fetch.Reports = nil
		if item.fetch, err = d.Prepare(w.ctx, fetch); item.fetch == nil || err != nil {
			item.reset()
			return false
		}
		item.token = fetch.ClientToken
		w.enter(item.token, item)
		if term != nil {
			item.stop = context.AfterFunc(term.over, func() { item.abandon(errInterrupted) })
		}
	}
	w.calls.Add(1)
	if len(item.reports.List) == 0 {
		g.stand(item)
		return true
	}
	settled := func(results []engine.ReportResult, err error) { g.settled(item, results, err) }
	if !d.Settle(collector, item.reports.List, settled) {
		item.end()
		w.calls.Done()
		return false
	}
	return true
}

// admit lets a request in as decode and the handlers do for calls.
func (g *gather) admit(item *gathered, method string, reports []*pb.TaskReport, fetch engine.FetchRequest) bool {
	var leave []func()
	item.reset = func() {
		for _, f := range leave {
			f()
		}
	}
	if len(reports) > 0 {
		size := 0
		for _, report := range reports {
			size += proto.Size(report)
		}
		done, err := g.chain.decode(item.work.ctx, method, size)
		if err != nil {
			return false
		}
		leave = append(leave, done)
	}
	if item.req.GetFetch() != nil {
		done, err := g.chain.limits.Fetch(fetch.Collector)
		if err != nil {
			item.reset()
			return false
		}
		leave = append(leave, done)
	}
	return true
}

// settled goes on with a request whose reports were settled, or could not be.
func (g *gather) settled(item *gathered, results []engine.ReportResult, err error) {
	if err != nil {
		item.asCall() // which repeats them, and says what is wrong
		return
	}
	resp := &pb.ReportTaskResponse{Results: item.reports.Results(results)}
	_ = item.work.answer(&pb.WorkResponse{Id: item.req.GetId(), Answer: &pb.WorkResponse_Report{Report: resp}}, item.fetch == nil) // else the stream has ended
	if item.fetch == nil {
		item.done()
		return
	}
	item.req.GetFetch().Reports = nil
	g.stand(item)
}

// stand has a fetch wait.
func (g *gather) stand(item *gathered) {
	leave := item.fetch.Stand(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ended = append(g.ended, item)
		if !g.hands {
			g.hands = true
			g.chain.workers.do(g.handOut)
		}
	})
	item.mu.Lock()
	item.leave = leave
	gone := item.givenUp || item.term != nil && item.term.over.Err() != nil // before it stood
	item.mu.Unlock()
	if gone {
		leave(context.Canceled)
	}
}

// handOut sends the answers of fetches, until there are no more.
func (g *gather) handOut() {
	for {
		g.mu.Lock()
		batch := g.ended
		if g.ended = nil; len(batch) == 0 {
			g.hands = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		for _, item := range batch {
			g.answer(item)
		}
	}
}

// answer answers a fetch. One that has ended without tasks goes on as a call, unless it was given up.
func (g *gather) answer(item *gathered) {
	w := item.work
	if !item.fetch.Granted() {
		if item.abandoned() {
			_ = w.fail(item.req.GetId(), status.FromContextError(context.Canceled).Err()) // the stream may have ended
			item.done()
			return
		}
		item.asCall()
		return
	}
	result, err := item.fetch.Result(w.ctx)
	if err != nil { // what it was granted is given back
		item.asCall()
		return
	}
	m := g.chain.metrics
	m.granted.Add(float64(len(result.Tasks)))
	m.fetchWait.WithLabelValues(strconv.FormatBool(true)).Observe(result.Waited.Seconds())
	resp := wire.FetchTaskResponse(result, nil)
	_ = w.handOut(item.req.GetId(), resp, result.GiveBack) // else it is undone
	item.done()
}

// end ends what the request holds.
func (i *gathered) end() {
	if i.stop != nil {
		i.stop()
	}
	if i.fetch != nil {
		i.work.leave(i.token, i)
	}
	i.reset()
}

// done ends a request that was answered.
func (i *gathered) done() {
	i.end()
	i.work.calls.Done()
}

// asCall makes the request as a call.
func (i *gathered) asCall() {
	i.end()
	i.work.chain.workers.do(func() { i.work.run(i.caller, i.req, i.came) })
}
