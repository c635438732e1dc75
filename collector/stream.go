package collector

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// workStream is an open Work stream with a goroutine that reads it. Only the loop that beats sends heartbeats; any
// goroutine makes other calls.
type workStream struct {
	client grpc.BidiStreamingClient[wagglev1.WorkRequest, wagglev1.WorkResponse]
	life
	conn     *sharedConn
	opened   time.Time
	messages chan *wagglev1.HeartbeatResponse // answers to beats, and what is pushed between them
	broken   chan struct{}                    // closed when the stream is over; then err says why
	err      error

	leaving atomic.Bool   // the dispatcher wants the stream replaced
	left    chan struct{} // closed when no beats go over it any more

	sending sync.Mutex // held while a request is sent

	mu      sync.Mutex // guards what follows
	last    uint64     // id of a request
	waiting map[uint64]chan *wagglev1.WorkResponse
	lingers bool // it ends with the last call
}

// openStream opens a stream that lasts no longer than the life does.
func openStream(life life, service wagglev1.DispatchServiceClient) (*workStream, error) {
	client, err := service.Work(life.ctx)
	if err != nil {
		life.end(err)
		return nil, err
	}
	s := &workStream{
		client: client, life: life, opened: time.Now(), waiting: make(map[uint64]chan *wagglev1.WorkResponse),
		messages: make(chan *wagglev1.HeartbeatResponse), broken: make(chan struct{}), left: make(chan struct{}),
	}
	go s.read()
	return s, nil
}

// read passes responses on until the stream is over.
func (s *workStream) read() {
	defer close(s.broken)
	for {
		response, err := s.client.Recv()
		if err == nil {
			if s.pass(response) {
				continue
			}
		}
		if cause := context.Cause(s.ctx); errors.Is(cause, errSilent) || err == nil {
			err = cause // not the cancellation that it caused
		}
		s.err = err
		s.end(err)
		return
	}
}

// pass gives a response to who waits for it. It returns false if the stream has ended.
func (s *workStream) pass(response *wagglev1.WorkResponse) bool {
	if message := response.GetHeartbeat(); message != nil {
		select {
		case s.messages <- message:
			return true
		case <-s.left:
			return true
		case <-s.ctx.Done():
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.waiting[response.GetId()] <- response: // it has room for all that a call is answered
	default: // nobody waits for it
	}
	return true
}

// beat sends a beat. If the stream is over, it returns the stream's error.
func (s *workStream) beat(beat *wagglev1.HeartbeatRequest) error {
	return s.send(&wagglev1.WorkRequest{Call: &wagglev1.WorkRequest_Heartbeat{Heartbeat: beat}})
}

func (s *workStream) send(request *wagglev1.WorkRequest) error {
	s.sending.Lock()
	err := s.client.Send(request)
	s.sending.Unlock()
	if err != nil {
		s.end(err)
		<-s.broken // the reader has the true error
		return s.err
	}
	return nil
}

// errBroken is of a call whose stream ended before its answer came.
var errBroken = status.Error(codes.Unavailable, "the stream ended")

// call makes a call, and gives what it is answered to take, until that returns true. The error is that of the call, errBroken, or the
// cause of the end of ctx.
func (s *workStream) call(ctx context.Context, request *wagglev1.WorkRequest, take func(*wagglev1.WorkResponse) bool) error {
	answers := make(chan *wagglev1.WorkResponse, 2) // reports and fetch
	s.mu.Lock()
	s.last++
	request.Id = s.last
	s.waiting[request.Id] = answers
	s.mu.Unlock()
	defer s.called(request.GetId())
	if s.send(request) != nil {
		return errBroken
	}
	for {
		select {
		case answer := <-answers:
			if failed := answer.GetError(); failed != nil {
				if codes.Code(failed.GetCode()) == codes.Canceled { // a fetch that waited when this stream was left
					return errBroken
				}
				return statusOf(failed).Err()
			}
			if take(answer) {
				return nil
			}
		case <-s.broken:
			if len(answers) > 0 {
				continue // it came before the end
			}
			return errBroken
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return status.FromContextError(ctx.Err()).Err() // as of a plain call
			}
			return context.Cause(ctx)
		}
	}
}

// overStream makes a call over the stream. Otherwise there is none, or it ended first: then it is made as a plain call.
func (r *run) overStream(ctx context.Context, request *wagglev1.WorkRequest, take func(*wagglev1.WorkResponse) bool) (answered bool, err error) {
	stream := r.stream.Load()
	if stream == nil || stream.leaving.Load() {
		return false, nil
	}
	if stream.conn != r.controlConn.latest() {
		signal(r.beatNow) // the next stream shows the new certificate
	}
	err = stream.call(ctx, request, take)
	return !errors.Is(err, errBroken), err
}

// called ends a call.
func (s *workStream) called(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.waiting, id); s.lingers && len(s.waiting) == 0 {
		s.end(context.Canceled)
	}
}

// leave ends the stream once its calls are answered, for which they have a while. A fetch that waits is given up.
func (s *workStream) leave() {
	close(s.left)
	time.AfterFunc(callTimeout, func() { s.end(context.Canceled) })
	go func() { // a call may wait until it is sent
		s.sending.Lock()
		defer s.sending.Unlock()
		_ = s.client.CloseSend() // it may have ended
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lingers = true; len(s.waiting) == 0 {
		s.end(context.Canceled)
	}
}

// statusOf is the status of a call that failed, as a plain call would have it.
func statusOf(failed *wagglev1.WorkError) *status.Status {
	st := status.New(codes.Code(failed.GetCode()), failed.GetMessage())
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Domain: errorDomain, Reason: strings.TrimPrefix(failed.GetReason().String(), "ERROR_REASON_"), Metadata: failed.GetMetadata(),
	}}
	if failed.GetRetryAfter() != nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: failed.GetRetryAfter()})
	}
	if with, err := st.WithDetails(details...); err == nil {
		return with
	}
	return st
}

// close ends the stream and waits for its reader.
func (s *workStream) close() {
	s.end(context.Canceled)
	<-s.broken
}
