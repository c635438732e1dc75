package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// Run listens as the config says and serves until ctx ends; then it drains, and returns nil when all calls have ended.
// The dispatcher must run for as long as Run does: reports are taken to the last.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	grpcListener, httpListener := s.grpcListener, s.httpListener
	s.mu.Unlock()
	return s.RunOn(ctx, grpcListener, httpListener)
}

// RunOn is Run on listeners that the caller opened; httpListener may be nil. It closes both.
func (s *Server) RunOn(ctx context.Context, grpcListener, httpListener net.Listener) error {
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	serving, ended := errgroup.WithContext(ctx)
	serving.Go(func() error { return s.health.run(loops) })
	serving.Go(func() error { return s.serveGRPC(grpcListener) })
	if httpListener != nil {
		serving.Go(func() error { return s.serveHTTP(httpListener) })
	}
	s.log.Info("listening", zap.Stringer("grpc", grpcListener.Addr()), zap.String("http", s.HTTPAddress()))

	<-ended.Done()
	s.drain()
	stopLoops()
	err := s.http.Close()
	return errors.Join(serving.Wait(), err)
}

func (s *Server) serveGRPC(listener net.Listener) error {
	if err := s.grpc.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("server: serve gRPC: %w", err)
	}
	return nil
}

func (s *Server) serveHTTP(listener net.Listener) error {
	if err := s.http.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("server: serve HTTP: %w", err)
	}
	return nil
}

// drainDispatcher begins the drain of the dispatcher, also of one that is attached later.
func (s *Server) drainDispatcher() {
	s.mu.Lock()
	defer s.mu.Unlock()
	parked := 0
	if d := s.backend.d; d != nil {
		parked = d.Parked()
		d.Drain()
	}
	s.log.Info("draining", zap.Duration("timeout", s.cfg.DrainTimeout), zap.Int("parked_fetches", parked))
	close(s.draining)
}

// drain ends the server in the order in which nothing is lost: new calls are sent elsewhere, parked fetches are
// answered, streams are asked to reconnect, and reports are taken until no call is left or the time is up. Metrics and
// probes are served until then.
func (s *Server) drain() {
	began := time.Now()
	s.health.stop()
	s.drainDispatcher()
	graceful := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(graceful)
	}()
	select {
	case <-graceful:
	case <-time.After(s.cfg.DrainTimeout):
		s.log.Warn("calls had not ended when the drain timeout was up; ending them", zap.Duration("timeout", s.cfg.DrainTimeout))
		s.grpc.Stop()
		<-graceful
	}
	s.log.Info("drained", zap.Duration("took", time.Since(began)))
}
