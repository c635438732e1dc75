package collector_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waggle-crawl/waggle/collector"
)

// saying is middleware that notes when it is passed.
func saying(heard *[]string, name string) collector.Middleware {
	return func(next collector.Handler) collector.Handler {
		return collector.HandlerFunc(func(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
			*heard = append(*heard, name+" in")
			defer func() { *heard = append(*heard, name+" out") }()
			return next.Handle(ctx, t)
		})
	}
}

// ending is a handler that returns err.
func ending(err error) collector.Handler {
	return collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{}, err
	})
}

func TestWrap(t *testing.T) {
	t.Parallel()
	var heard []string
	handler := collector.Wrap(ending(nil), saying(&heard, "outer"), saying(&heard, "inner"))
	if _, err := handler.Handle(t.Context(), &collector.Task{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"outer in", "inner in", "inner out", "outer out"}; !slices.Equal(heard, want) {
		t.Errorf("heard %v, want %v", heard, want)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	waiting := func(d time.Duration, err error) collector.Handler {
		return collector.HandlerFunc(func(ctx context.Context, _ *collector.Task) (collector.Succeeded, error) {
			select {
			case <-time.After(d):
				return collector.Succeeded{}, err
			case <-ctx.Done():
				return collector.Succeeded{}, ctx.Err()
			}
		})
	}
	gone := &collector.Failed{Reason: collector.ReasonGone}
	for _, c := range []struct {
		name    string
		handler collector.Handler
		want    collector.Reason // 0: no *Failed
	}{
		{"TooLong", waiting(time.Hour, nil), collector.ReasonTimeout},
		{"InTime", waiting(time.Second, nil), 0},
		{"FailsInTime", waiting(time.Second, gone), collector.ReasonGone},
		{"PlainErrorInTime", waiting(time.Second, errors.New("no")), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, err := collector.Wrap(c.handler, collector.Timeout(10*time.Second, collector.ReasonTimeout)).Handle(t.Context(), &collector.Task{})
				var failed *collector.Failed
				if errors.As(err, &failed) != (c.want != 0) || failed != nil && failed.Reason != c.want {
					t.Errorf("%v, want reason %s", err, c.want)
				}
			})
		})
	}
	t.Run("LeaseLostFirst", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(collector.ErrLeaseLost)
		_, err := collector.Wrap(waiting(time.Hour, nil), collector.Timeout(time.Hour, collector.ReasonTimeout)).Handle(ctx, &collector.Task{})
		var failed *collector.Failed
		if errors.As(err, &failed) {
			t.Errorf("a lost lease counts as a failure: %v", err)
		}
	})
}

func TestClassify(t *testing.T) {
	t.Parallel()
	rule := func(err error) *collector.Failed {
		if errors.Is(err, io.EOF) {
			return &collector.Failed{Reason: collector.ReasonConnectionLost}
		}
		return nil
	}
	released := &collector.Released{Delay: time.Second}
	failed := &collector.Failed{Reason: collector.ReasonGone}
	plain := errors.New("no")
	for _, c := range []struct {
		name  string
		ended bool // the context, before the call
		err   error
		want  error
	}{
		{"Known", false, fmt.Errorf("read: %w", io.EOF), &collector.Failed{Reason: collector.ReasonConnectionLost}},
		{"Unknown", false, plain, plain},
		{"Failed", false, failed, failed},
		{"Released", false, released, released},
		{"ContextEnded", true, io.EOF, io.EOF},
		{"None", false, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.ended {
				cancel()
			}
			_, err := collector.Wrap(ending(c.err), collector.Classify(rule)).Handle(ctx, &collector.Task{})
			if fmt.Sprint(err) != fmt.Sprint(c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestFailureOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want collector.Reason // 0: none
	}{
		{&net.DNSError{Err: "no such host", Name: "a.invalid", IsNotFound: true}, collector.ReasonDNS},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, collector.ReasonConnect},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, collector.ReasonConnect},
		{silentTLS(t), collector.ReasonTLS},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, collector.ReasonTimeout},
		{&net.OpError{Op: "proxyconnect", Err: errors.New("refused")}, collector.ReasonProxy},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, collector.ReasonConnectionLost},
		{&net.OpError{Op: "remote error", Err: errors.New("bad certificate")}, collector.ReasonTLS},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}, collector.ReasonTLS},
		{fmt.Errorf("get: %w", context.DeadlineExceeded), collector.ReasonTimeout},
		{io.ErrUnexpectedEOF, collector.ReasonConnectionLost},
		{errors.New("no"), 0},
		{context.Canceled, 0},
	} {
		failed := collector.FailureOf(c.err)
		if (failed != nil) != (c.want != 0) || failed != nil && failed.Reason != c.want {
			t.Errorf("%v: %v, want %s", c.err, failed, c.want)
		}
	}
}

// silentTLS is the error of a request to a host that accepts connections, and never answers a TLS handshake.
func silentTLS(t *testing.T) error {
	t.Helper()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // it accepts, in the kernel
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	transport := &http.Transport{TLSHandshakeTimeout: time.Millisecond}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+silent.Addr().String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err == nil {
		response.Body.Close()
		t.Fatal("a silent host answered")
	}
	return err
}

// Most handlers need this middleware: metrics outermost, then the reasons of errors, then a time limit.
func ExampleWrap() {
	ended := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "crawler_tasks_total"}, []string{"result"})
	handler := collector.Wrap(collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{}, &net.DNSError{Err: "no such host", Name: "gone.example", IsNotFound: true}
	}),
		collector.Observe(func(_ context.Context, e collector.Ended) {
			result := "succeeded"
			if e.Err != nil {
				result = "failed"
			}
			ended.WithLabelValues(result).Inc()
			fmt.Println(e.Task.ID, result)
		}),
		collector.Classify(collector.FailureOf),
		collector.Timeout(time.Minute, collector.ReasonTimeout),
	)
	_, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a"})
	fmt.Println(err)
	// Output:
	// 12-a failed
	// FAILURE_REASON_DNS: lookup gone.example: no such host
}

// Tracing is middleware like any other: with OpenTelemetry, tracer.Start takes the place of what is printed here, and the
// task's metadata can carry the trace of whoever submitted it.
func ExampleMiddleware() {
	tracing := func(next collector.Handler) collector.Handler {
		return collector.HandlerFunc(func(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
			fmt.Println("begin", t.ID, "within", t.Metadata["traceparent"])
			done, err := next.Handle(ctx, t)
			fmt.Println("end", t.ID, done.HTTPStatus, err)
			return done, err
		})
	}
	handler := collector.Wrap(collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{HTTPStatus: 200}, nil
	}), tracing)
	_, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", Metadata: map[string]string{"traceparent": "00-4bf9"}})
	fmt.Println(err)
	// Output:
	// begin 12-a within 00-4bf9
	// end 12-a 200 <nil>
	// <nil>
}
