package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/admit"
	"github.com/waggle-crawl/waggle/server/internal/relay"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// Owner is the dispatcher that owns the store.
type Owner struct {
	// Name of the dispatcher, and the address under which others reach it: host:port, or unix:PATH.
	Name, Address string
	// Epoch under which it owns the store.
	Epoch uint64
}

// term is the time for which this dispatcher owns the store.
type term struct {
	operator *operate.Operator
	epoch    uint64
	over     context.Context //nolint:containedctx // ends with the term
	end      context.CancelFunc
}

// route is where calls go now. It is replaced, never changed. With neither a term nor a link, ownership is moving.
type route struct {
	local   *term       // this dispatcher owns the store
	link    *relay.Link // another one does
	owner   Owner
	changed chan struct{} // closed when another route takes its place
}

// ownership is who owns the store, as [Server.Attach], [Server.Detach] and [Server.Follow] say.
type ownership struct {
	now    atomic.Pointer[route]
	shared atomic.Bool   // others may own the store, too
	seen   atomic.Uint64 // the highest epoch

	waited prometheus.Observer // how long calls waited
	moved  func()              // called when an owner did not take a call

	mu     sync.Mutex // guards what follows, and changes of now
	secret []byte
	links  map[*relay.Link]struct{} // that are not closed; nil once the server has ended
}

func newOwnership(waited prometheus.Observer, moved func()) *ownership {
	if moved == nil {
		moved = func() {}
	}
	w := &ownership{waited: waited, moved: moved, links: make(map[*relay.Link]struct{})}
	w.now.Store(&route{changed: make(chan struct{})})
	return w
}

const (
	// moveTimeout is how long a call waits while ownership moves.
	moveTimeout = 5 * time.Second
	// formerTimeout is how long a former owner may still answer calls that were passed to it.
	formerTimeout = time.Second
	// firstAgain is the time until the owner is tried again. It doubles with each try up to longestAgain, since all calls that were
	// parked at an owner try. A change of owner ends it.
	firstAgain, longestAgain = 50 * time.Millisecond, 800 * time.Millisecond
)

// replace puts a route in place of another one, by one who holds the lock.
func (w *ownership) replace(next *route) {
	next.changed = make(chan struct{})
	last := w.now.Swap(next)
	for epoch := next.owner.Epoch; ; {
		seen := w.seen.Load()
		if epoch <= seen || w.seen.CompareAndSwap(seen, epoch) {
			break
		}
	}
	if last.local != nil && last.local != next.local {
		last.local.end()
	}
	if last.link != nil && last.link != next.link {
		time.AfterFunc(formerTimeout, func() { w.drop(last.link) })
	}
	close(last.changed)
}

func (w *ownership) drop(link *relay.Link) {
	w.mu.Lock()
	delete(w.links, link)
	w.mu.Unlock()
	link.Close()
}

// close ends what is passed on, for good.
func (w *ownership) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for link := range w.links {
		link.Close()
	}
	w.links = nil
}

// await finds where a call goes, and waits until then while ownership moves.
func (w *ownership) await(ctx context.Context, until time.Time) (*route, error) {
	began, waits := time.Now(), false
	for {
		r := w.now.Load()
		if r.local != nil || r.link != nil {
			if waits {
				w.waited.Observe(time.Since(began).Seconds())
			}
			return r, nil
		}
		waits = true
		if err := w.pause(ctx, r, until); err != nil {
			return nil, err
		}
	}
}

var errNoOwner = fmt.Errorf("%w: no dispatcher owned it for %v", dispatch.ErrStoreUnavailable, moveTimeout)

// pause waits until a route has changed, or until then, which is an error.
func (w *ownership) pause(ctx context.Context, r *route, until time.Time) error {
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	select {
	case <-r.changed:
		return nil
	case <-late.C:
		return errNoOwner
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// again waits before the owner of a route is tried again, after so many tries.
func (w *ownership) again(ctx context.Context, r *route, tries int, until time.Time) error {
	w.moved()
	soon := time.Now().Add(min(firstAgain<<min(tries, 10), longestAgain, max(time.Until(until), firstAgain)))
	if err := w.pause(ctx, r, soon); !errors.Is(err, errNoOwner) {
		return err
	}
	if time.Now().After(until) {
		return errNoOwner
	}
	return nil
}

// passing is a unary call of a store that several dispatchers share. It goes to the owner, which may be this dispatcher, and moves
// with the ownership. What the owner answers is the answer, with its status: it is neither decoded nor made anew.
type passing struct {
	chain   *chain
	whole   context.Context //nolint:containedctx // of the call, with the deadline of its caller
	caller  *auth.Caller
	method  string
	e       *envelope
	here    func() grpc.UnaryHandler // serves it here, once it is decoded
	request []byte                   // as it is passed on
}

// outcome is what became of one try of a call.
type outcome int

const (
	answered    outcome = iota
	notDone             // nothing of it was done
	interrupted         // it may have been done: ownership moved meanwhile
)

// owned is a handler that has the owner make a call. While ownership moves it waits. A call that may have been done is repeated
// once if that is harmless (P7).
func (c *chain) owned(whole context.Context, caller *auth.Caller, method string, e *envelope, here func() grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, _ any) (any, error) {
		p := &passing{chain: c, whole: whole, caller: caller, method: method, e: e, here: here, request: e.raw}
		if p.isFetch() {
			if err := p.prepareFetch(); err != nil {
				return nil, err
			}
		}
		return p.run(ctx)
	}
}

func (p *passing) isFetch() bool { return p.method == pb.DispatchService_FetchTask_FullMethodName }

// run tries until the call is answered.
func (p *passing) run(ctx context.Context) (any, error) {
	repeated, until := false, time.Now().Add(moveTimeout)
	for tries := 0; ; tries++ {
		r, err := p.chain.owners.await(ctx, until)
		if err != nil {
			return nil, err
		}
		var resp any
		var became outcome
		if r.local != nil {
			resp, became, err = p.serve(ctx, r)
		} else {
			resp, became, err = p.pass(r) //nolint:contextcheck // it goes by the deadline of the caller, as the owner does
		}
		switch {
		case became == answered:
			return resp, err
		case became == interrupted && (repeated || !repeats(p.method)):
			return nil, errors.Join(err, errInterrupted)
		case became == interrupted:
			repeated, until = true, time.Now().Add(moveTimeout)
		}
		if err := p.chain.owners.again(ctx, r, tries, until); err != nil {
			return nil, err
		}
	}
}

// errInterrupted is of a call that is not repeated.
var errInterrupted error = &wire.Refusal{
	Code: codes.Unavailable, Reason: pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, Retry: time.Second,
	Text: "the owner of the store changed while the call ran: it may have been done, or not",
}

// clientTokenField is the number of FetchTaskRequest.client_token.
const clientTokenField = 3

// prepareFetch gives a fetch a client token if it has none, so that it can be repeated.
func (p *passing) prepareFetch() error {
	if err := p.e.unpack(); err != nil {
		return err
	}
	req := p.e.message.(*pb.FetchTaskRequest) //nolint:forcetypeassert // of the method
	if err := p.caller.Covers(req); err != nil {
		return err
	}
	if req.GetClientToken() == "" {
		req.ClientToken = uuid.NewString()
		p.request = protowire.AppendTag(p.request[:len(p.request):len(p.request)], clientTokenField, protowire.BytesType)
		p.request = protowire.AppendString(p.request, req.GetClientToken())
	}
	return nil
}

// serve makes the call here.
func (p *passing) serve(ctx context.Context, r *route) (any, outcome, error) {
	if err := p.e.unpack(); err != nil {
		return nil, answered, err
	}
	resp, moved, err := r.local.during(ctx, p.method, func(ctx context.Context) (any, error) { return p.here()(ctx, p.e.message) })
	if moved {
		return nil, interrupted, nil
	}
	return resp, answered, err
}

// during makes a call while the term lasts: with the term it ends, if it may be repeated. It was interrupted if it has failed by that.
func (t *term) during(
	ctx context.Context, method string, call func(context.Context) (any, error),
) (resp any, interrupted bool, err error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if repeats(method) {
		stop := context.AfterFunc(t.over, func() { cancel(errInterrupted) }) //nolint:contextcheck // the end of the term
		defer stop()
	}
	resp, err = call(within)
	return resp, t.over.Err() != nil && ctx.Err() == nil && isMove(resp, err), err
}

// isMove reports whether an answer of a dispatcher that is not the owner any more is due to that.
func isMove(resp any, err error) bool {
	if fetched, ok := resp.(*pb.FetchTaskResponse); ok && err == nil {
		return fetched.GetEmptyReason() == pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING
	}
	if err == nil {
		return false
	}
	st, _ := wire.Status(nil, err, "")
	switch st.Code() {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	default:
		return false
	}
}

// repeats reports whether a call may be made twice.
func repeats(method string) bool {
	return admit.Keeps(method) || admit.Reads(method) || method == pb.DispatchService_FetchTask_FullMethodName
}
