package collect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// checkedSink is a Sink that knows whether the last page could be kept.
type checkedSink struct {
	web.Sink

	mu     sync.Mutex // guards what follows
	failed error
	since  time.Time
}

// Put notes how it went. A page that was given up while it was stored says nothing.
func (s *checkedSink) Put(ctx context.Context, page web.Page, content web.Content) error {
	err := s.Sink.Put(ctx, page, content)
	if err != nil && ctx.Err() != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.failed == nil {
		s.since = time.Now()
	}
	s.failed = err
	return err
}

// Has implements [web.Expiring].
func (s *checkedSink) Has(digest string) bool {
	expiring, expires := s.Sink.(web.Expiring)
	return !expires || expiring.Has(digest)
}

// problem is why no page could be kept last, and since when.
func (s *checkedSink) problem() (since time.Time, err error) {
	if sending, ok := s.Sink.(*web.SendSink); ok {
		since, err = sending.Failing()
	} else {
		s.mu.Lock()
		since, err = s.since, s.failed
		s.mu.Unlock()
	}
	if err != nil {
		err = fmt.Errorf("the last page could not be kept: %w", err)
	}
	return since, err
}

// alive is nil while the process works: its pages are kept, and a handler returns.
func alive(k *collector.Collector, sink *checkedSink) error {
	if stats := k.Stats(); stats.Stuck >= stats.Slots {
		return fmt.Errorf("all %d slots are held by handlers that do not return", stats.Slots)
	}
	_, err := sink.problem()
	return err
}

// serveHTTP serves metrics and probes at an address until end is called.
func serveHTTP(ctx context.Context, address string, k *collector.Collector, sink *checkedSink, log *zap.Logger) (end func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(k.Metrics(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	probe := func(problem func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := problem(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", probe(func() error { return alive(k, sink) }))
	mux.HandleFunc("GET /readyz", probe(func() error { return errors.Join(alive(k, sink), k.Ready()) }))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 32 << 10,
	}
	log.Info("serves metrics and probes", zap.Stringer("http", listener.Addr()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics and probes are not served any more", zap.Error(err))
		}
	}()
	return func() {
		_ = server.Close() // an error concerns connections only
		<-ended
	}, nil
}
