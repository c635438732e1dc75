package collector

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// fetchStreamAge is how long fetches go through one stream. The next goes to another dispatcher, if there are several:
// so one that joins gets its share.
const fetchStreamAge = time.Minute

// fetchStream is what fetches go through, one at a time: a stream to one dispatcher, replaced when it is over, or old.
type fetchStream struct {
	run    *run
	stream *stream[wagglev1.StreamingFetchTaskRequest, wagglev1.StreamingFetchTaskResponse] // nil while there is none
	opened time.Time
}

// exchange makes a fetch and waits for its answer, for as long as ctx allows.
func (f *fetchStream) exchange(ctx context.Context, fetch *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
	for {
		used, err := f.ready(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := f.ask(ctx, fetch)
		if err == nil {
			return answer, nil
		}
		f.close()
		if !used || ctx.Err() != nil || !isEnded(err) {
			return nil, err
		}
	}
}

// ready sees to a stream to use, and says whether it was used before.
func (f *fetchStream) ready(ctx context.Context) (used bool, err error) {
	switch {
	case f.stream == nil:
	case f.stream.over():
		f.close()
	case time.Since(f.opened) < fetchStreamAge:
		return true, nil
	default:
		f.stream.finish()
		f.stream = nil
	}
	life := newLife(f.run.calling.ctx) //nolint:contextcheck // a stream outlives the fetch that opens it
	stop := context.AfterFunc(ctx, func() { life.end(context.Cause(ctx)) })
	client, err := f.run.fetches.StreamingFetchTask(life.ctx, grpc.WaitForReady(true)) //nolint:contextcheck // as above
	stop()
	if err != nil {
		life.end(err)
		if ctx.Err() != nil { // as a call would tell of a deadline
			err = status.Errorf(status.FromContextError(ctx.Err()).Code(), "open a stream: %s", status.Convert(err).Message())
		}
		return false, err
	}
	f.stream, f.opened = readStream(life, client), time.Now()
	return false, nil
}

// ask sends a fetch and waits for its answer. Sending does not wait for the dispatcher: of a stream without another message
// under way, gRPC takes one whatever its size.
func (f *fetchStream) ask(ctx context.Context, fetch *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
	if err := f.stream.send(&wagglev1.StreamingFetchTaskRequest{Fetch: fetch}); err != nil {
		return nil, err
	}
	select {
	case answer := <-f.stream.answers:
		return answer.GetAnswer(), nil
	case <-f.stream.broken:
		return nil, f.stream.err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// isEnded reports whether the error is that of a stream that its dispatcher ended because it stops, or to make room for
// another. It does so between two fetches; that one was on its way is no failure.
func isEnded(err error) bool {
	return status.Code(err) == codes.Canceled || reasonOf(err) == wagglev1.ErrorReason_ERROR_REASON_DRAINING
}

// close ends the stream, if there is one: the dispatcher takes a fetch under way for one whose caller has gone.
func (f *fetchStream) close() {
	if f.stream != nil {
		f.stream.close()
		f.stream = nil
	}
}
