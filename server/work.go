package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/peers"
)

// maxUnanswered is how many requests of a Work stream may have no answer. The rest stays in the window of the stream.
const maxUnanswered = 1000

// mostUnread is how many answers of a stream may wait until they are sent: those of requests, reports of fetches among them, and some of
// heartbeats. A client that reads so slowly is as one that reads nothing.
const mostUnread = 2*maxUnanswered + 100

// work is a Work stream. Its heartbeats go the way of a Heartbeat stream, and its other requests that of plain calls (callOn).
// So each of them is passed to the owner by itself, and moves with the ownership as a call does.
type work struct {
	chain  *chain
	stream *decodedStream
	caller *auth.Caller
	ctx    context.Context //nolint:containedctx // of the stream
	end    context.CancelCauseFunc

	hello *pb.CollectorInfo // of the first heartbeat
	beats chan *pb.HeartbeatRequest
	room  *semaphore.Weighted // for requests without an answer

	calls sync.WaitGroup

	mu    sync.Mutex          // guards what follows
	waits map[string]*request // fetches, by client token
	ended bool                // no more requests begin

	known atomic.Bool // a heartbeat was answered: the session is the collector's

	out     sync.Mutex // guards what follows
	answers []outgoing // that are to be sent
	ending  bool       // the last is among them
	over    bool       // nothing is sent any more
	wake    chan struct{}
}

// outgoing is a response.
type outgoing struct {
	*pb.WorkResponse
	last  bool   // to its request, which then leaves its place to another one
	undo  func() // undoes it if it cannot be sent; nil: nothing has to be
	bytes int    // that the client holds until then
}

// Work serves the calls of one collector on a stream.
func (s *dispatchService) Work(stream pb.DispatchService_WorkServer) error {
	of := stream.(*grpc.GenericServerStream[pb.WorkRequest, pb.WorkResponse]).ServerStream.(*decodedStream) //nolint:forcetypeassert // every stream goes through the chain
	return of.chain.work(of)
}

func (c *chain) work(stream *decodedStream) error {
	ctx, end := context.WithCancelCause(stream.ctx)
	w := &work{
		chain: c, stream: stream, caller: stream.caller, ctx: ctx, end: end,
		waits: make(map[string]*request), beats: make(chan *pb.HeartbeatRequest), room: semaphore.NewWeighted(maxUnanswered),
		wake: make(chan struct{}, 1),
	}
	defer w.undoUnsent()
	defer w.calls.Wait() // none goes on when all handlers have returned, and with them the server
	defer w.giveUpFetches()
	defer end(nil)
	ended := make(chan error, 2)
	go func() { ended <- w.receive() }()
	go func() { ended <- w.beat() }()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.write()
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	w.giveUpFetches()
	w.calls.Wait()
	close(w.beats)
	if err := <-ended; err != nil {
		return err
	}
	w.finish()
	select {
	case <-written:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// greet receives the first heartbeat, which names the collector.
func (w *work) greet() (*pb.HeartbeatRequest, error) {
	first := new(pb.WorkRequest)
	if err := w.stream.RecvMsg(first); err != nil {
		return nil, err
	}
	beat := first.GetHeartbeat()
	if beat == nil {
		return nil, &dispatch.FieldError{Field: "heartbeat", Limit: "is required in the first request of a stream"}
	}
	w.hello = beat.GetCollector()
	return beat, nil
}

// pass gives a heartbeat to the Heartbeat stream.
func (w *work) pass(beat *pb.HeartbeatRequest) {
	select {
	case w.beats <- beat:
	case <-w.ctx.Done():
	}
}

// receive receives requests until the client ends its side, which is io.EOF, or the stream ends.
func (w *work) receive() error {
	hello, err := w.greet()
	if err != nil {
		return err
	}
	w.pass(hello)
	for {
		req := new(pb.WorkRequest)
		if err := w.stream.RecvMsg(req); err != nil {
			return err
		}
		if beat := req.GetHeartbeat(); beat != nil {
			w.pass(beat)
			continue
		}
		if err := w.room.Acquire(w.ctx, 1); err != nil {
			return context.Cause(w.ctx)
		}
		caller, err := w.caller.Again()
		if err != nil {
			return err
		}
		w.identify(req)
		r := &request{work: w, caller: caller, WorkRequest: req, came: time.Now()}
		if !w.enter(r) {
			return context.Cause(w.ctx)
		}
		// What it waits for, heartbeats do not wait for.
		go w.begin(r)
	}
}

// begin begins a request.
func (w *work) begin(r *request) {
	taken := true
	r.guarded(func() { taken = w.chain.gather.take(r) })
	if !taken {
		w.run(r)
	}
}

// identify gives a request the identity that it leaves to the first heartbeat.
func (w *work) identify(req *pb.WorkRequest) {
	if fetch := req.GetFetch(); fetch != nil {
		fetch.CollectorId, fetch.Session = cmp.Or(fetch.GetCollectorId(), w.hello.GetId()), cmp.Or(fetch.GetSession(), w.hello.GetSession())
		if fetch.GetLabels() == nil {
			fetch.Labels = w.hello.GetLabels()
		}
		if fetch.GetClientToken() == "" {
			fetch.ClientToken = uuid.NewString()
		}
	}
	if report := req.GetReport(); report != nil {
		report.CollectorId, report.Session = cmp.Or(report.GetCollectorId(), w.hello.GetId()), cmp.Or(report.GetSession(), w.hello.GetSession())
	}
}

// run makes a request as a call.
func (w *work) run(r *request) {
	defer w.left(r)
	if err := w.serve(r); err != nil {
		w.end(err)
	}
}

// serve makes a call, and sends its answer. Its error ends the stream.
func (w *work) serve(r *request) error {
	switch call := r.GetCall().(type) {
	case *pb.WorkRequest_Fetch:
		return w.fetch(r, call.Fetch)
	case *pb.WorkRequest_Report:
		_, err := w.report(w.ctx, r.caller, r.GetId(), call.Report, true)
		return err
	case *pb.WorkRequest_Discovered:
		resp, err := callIn[pb.SubmitDiscoveredResponse](w.ctx, w, r.caller, pb.DispatchService_SubmitDiscovered_FullMethodName, call.Discovered)
		if err != nil {
			return w.fail(r.GetId(), err)
		}
		return w.answer(&pb.WorkResponse{Id: r.GetId(), Answer: &pb.WorkResponse_Discovered{Discovered: resp}}, true)
	default:
		return w.fail(r.GetId(), statusOf(w.ctx, &dispatch.FieldError{Field: "call", Limit: "is required"}))
	}
}

// report settles reports, and reports whether they were answered. last: the request asks for nothing else.
func (w *work) report(ctx context.Context, caller *auth.Caller, id uint64, req *pb.ReportTaskRequest, last bool) (answered bool, err error) {
	resp, err := callIn[pb.ReportTaskResponse](ctx, w, caller, pb.DispatchService_ReportTask_FullMethodName, req)
	if err != nil {
		return false, w.fail(id, err)
	}
	return true, w.answer(&pb.WorkResponse{Id: id, Answer: &pb.WorkResponse_Report{Report: resp}}, last)
}

// fetch settles the reports of a fetch, and then fetches until there is an answer.
func (w *work) fetch(r *request, req *pb.FetchTaskRequest) error {
	caller, id := r.caller, r.GetId()
	if len(req.GetReports()) > 0 {
		reports := &pb.ReportTaskRequest{CollectorId: req.GetCollectorId(), Session: req.GetSession(), Reports: req.GetReports()}
		if answered, err := w.report(w.ctx, caller, id, reports, false); !answered || err != nil {
			return err
		}
		req.Reports = nil
	}
	stands := req.GetWait() == nil
	if stands {
		req.Wait = durationpb.New(bounds.MaxWait)
	}
	ctx, end := context.WithCancelCause(w.ctx)
	defer end(nil)
	r.waits(end)
	for {
		before := time.Since(r.came)
		undo := new(peers.Undo)
		resp, err := callIn[pb.FetchTaskResponse](undo.With(ctx), w, caller, pb.DispatchService_FetchTask_FullMethodName, req)
		if err != nil {
			return w.fail(id, err)
		}
		if stands && isIdle(resp.GetEmptyReason()) && pause(ctx, resp.GetRetryAfter().AsDuration()) {
			continue
		}
		resp.Waited = durationpb.New(before + resp.GetWaited().AsDuration()) // since it came, not since it was last made
		return w.handOut(id, resp, undo.Lost)
	}
}

// isIdle reports whether a fetch got nothing, and may get something if it waits.
func isIdle(reason pb.EmptyReason) bool {
	switch reason {
	case pb.EmptyReason_EMPTY_REASON_NO_TASKS, pb.EmptyReason_EMPTY_REASON_THROTTLED, pb.EmptyReason_EMPTY_REASON_HELD:
		return true
	default:
		return false
	}
}

// enter begins a request, unless the stream has ended. A fetch is in place of one with the same client token: its client has left
// that one.
func (w *work) enter(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	w.calls.Add(1)
	r.bytes = proto.Size(r.WorkRequest)
	w.hold(r.bytes)
	if token := r.GetFetch().GetClientToken(); token != "" {
		if before := w.waits[token]; before != nil {
			before.giveUp()
		}
		w.waits[token] = r
	}
	return true
}

// left ends a request.
func (w *work) left(r *request) {
	w.mu.Lock()
	if token := r.GetFetch().GetClientToken(); w.waits[token] == r {
		delete(w.waits, token)
	}
	w.mu.Unlock()
	w.hold(-r.bytes)
	w.calls.Done()
}

// hold counts bytes that the client holds from now on, or fewer if it is negative.
func (w *work) hold(bytes int) {
	if conn := peers.Of(w.ctx); conn != nil {
		conn.Hold(bytes)
	}
}

// giveUpFetches gives up those that wait. No more requests begin.
func (w *work) giveUpFetches() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, f := range w.waits {
		f.giveUp()
	}
}

// pause waits before a fetch that stands is made again, and reports whether it still stands.
func pause(ctx context.Context, wait time.Duration) bool {
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// fail answers a request with an error, unless that is one of all of them.
func (w *work) fail(id uint64, err error) error {
	st := status.Convert(err)
	answer := &pb.WorkError{Code: int32(st.Code()), Message: st.Message()}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			answer.Reason, answer.Metadata = pb.ErrorReason(pb.ErrorReason_value["ERROR_REASON_"+d.GetReason()]), d.GetMetadata()
		case *errdetails.RetryInfo:
			answer.RetryAfter = d.GetRetryDelay()
		}
	}
	if answer.GetReason() == pb.ErrorReason_ERROR_REASON_COLLECTOR_REPLACED {
		return err
	}
	return w.answer(&pb.WorkResponse{Id: id, Answer: &pb.WorkResponse_Error{Error: answer}}, true)
}

// answer has a response sent that nothing undoes.
func (w *work) answer(resp *pb.WorkResponse, last bool) error {
	return w.send(outgoing{WorkResponse: resp, last: last})
}

// handOut has the answer of a fetch sent.
func (w *work) handOut(id uint64, resp *pb.FetchTaskResponse, undo func()) error {
	return w.send(outgoing{WorkResponse: &pb.WorkResponse{Id: id, Answer: &pb.WorkResponse_Fetch{Fetch: resp}}, last: true, undo: undo})
}

// sent ends what an answer holds.
func (w *work) sent(a outgoing) {
	w.hold(-a.bytes)
	if a.last {
		w.room.Release(1)
	}
}

// send has a response sent, and does not wait for that. If it is not sent, it is undone.
func (w *work) send(a outgoing) error {
	a.bytes = proto.Size(a.WorkResponse)
	w.hold(a.bytes)
	w.out.Lock()
	defer w.out.Unlock()
	if w.over {
		w.undo([]outgoing{a})
		return context.Cause(w.ctx)
	}
	if w.answers = append(w.answers, a); len(w.answers) > mostUnread {
		w.end(errUnread)
	}
	w.signal()
	return nil
}

// signal wakes the writer; the caller holds the lock.
func (w *work) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// finish lets the writer end once it has sent everything.
func (w *work) finish() {
	w.out.Lock()
	defer w.out.Unlock()
	w.ending = true
	w.signal()
}

// write sends responses, until the stream ends. A client that reads nothing for a while ends it.
func (w *work) write() {
	unread := time.AfterFunc(sendTimeout, func() { w.end(errUnread) })
	defer unread.Stop()
	for {
		unread.Stop()
		select {
		case <-w.wake:
		case <-w.ctx.Done():
			return
		}
		w.out.Lock()
		batch, last := w.answers, w.ending
		w.answers = nil
		w.out.Unlock()
		for i, a := range batch {
			unread.Reset(sendTimeout)
			if err := w.stream.SendMsg(a.WorkResponse); err != nil {
				w.end(err)
				w.undo(batch[i:])
				return
			}
			w.sent(a)
		}
		if last {
			return
		}
	}
}

// undoUnsent undoes what was not sent when the stream has ended.
func (w *work) undoUnsent() {
	w.out.Lock()
	defer w.out.Unlock()
	w.over = true
	w.undo(w.answers)
	w.answers = nil
}

func (w *work) undo(unsent []outgoing) {
	for _, a := range unsent {
		if a.undo != nil {
			a.undo()
		}
		w.sent(a)
	}
}

// beat serves the heartbeats, as those of a Heartbeat stream.
func (w *work) beat() error {
	of := w.chain.methods[pb.DispatchService_Heartbeat_FullMethodName]
	stream := &decodedStream{&workBeats{w.stream.ServerStream, w}, w.ctx, w.caller, w.chain, w.stream.line}
	return w.chain.atOwner(of.service, stream, of.info, of.stream)
}

// workBeats are the heartbeats of a Work stream.
type workBeats struct {
	grpc.ServerStream

	work *work
}

// Context is the stream's.
func (b *workBeats) Context() context.Context { return b.work.ctx }

// RecvMsg receives the next heartbeat into an envelope.
func (b *workBeats) RecvMsg(to any) error {
	select {
	case beat, ok := <-b.work.beats:
		if !ok {
			return io.EOF
		}
		data, err := proto.Marshal(beat)
		if err != nil {
			return err
		}
		to.(*envelope).put(data, nil) //nolint:forcetypeassert // see decodedStream
		return nil
	case <-b.work.ctx.Done():
		return context.Cause(b.work.ctx)
	}
}

// SendMsg sends the answer to a heartbeat, or what is pushed.
func (b *workBeats) SendMsg(m any) error {
	b.work.known.Store(true)
	return b.work.answer(&pb.WorkResponse{Answer: &pb.WorkResponse_Heartbeat{Heartbeat: m.(*pb.HeartbeatResponse)}}, false) //nolint:forcetypeassert // of the method
}

// callIn makes a call that came on a stream, and decodes an answer that another dispatcher gave.
func callIn[Response any](ctx context.Context, w *work, caller *auth.Caller, method string, req proto.Message) (*Response, error) {
	resp, err := w.chain.callOn(ctx, caller, method, req)
	if err != nil {
		return nil, err
	}
	if passed, ok := resp.(*encoded); ok {
		if resp, err = passed.message(); err != nil {
			return nil, err
		}
	}
	return resp.(*Response), nil //nolint:forcetypeassert // of the method
}
