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
	if s.certs != nil {
		serving.Go(func() error { s.certs.Run(loops); return nil })
	}
	if s.guard != nil {
		serving.Go(func() error { s.guard.Run(loops); return nil })
	}
	serving.Go(func() error { return s.serveGRPC(grpcListener) })
	if httpListener != nil {
		serving.Go(func() error { return s.serveHTTP(httpListener) })
	}
	s.log.Info("listening", zap.Stringer("grpc", grpcListener.Addr()), zap.String("http", s.HTTPAddress()))

	<-ended.Done()
	s.drain(loops)
	stopLoops()
	err := s.http.Close()
	return errors.Join(serving.Wait(), err)
}

func (s *Server) serveGRPC(listener net.Listener) error {
	if err := s.grpc.Serve(s.peers.Listen(listener, s.plain())); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
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

// leasedLook is the time between two looks whether tasks are leased.
const leasedLook = 100 * time.Millisecond

// awaitReports takes calls as long as tasks are leased, at most for the grace.
func (s *Server) awaitReports(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReconnectGrace)
	defer cancel()
	for s.tasksAreLeased(ctx) {
		select {
		case <-time.After(leasedLook):
		case <-ctx.Done():
			return
		}
	}
}

// tasksAreLeased reports whether some collector may have a report for us. With a store that is away none could be taken.
func (s *Server) tasksAreLeased(ctx context.Context) bool {
	s.mu.Lock()
	o := s.backend.o
	s.mu.Unlock()
	if o == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HealthInterval)
	defer cancel()
	overview, err := o.Overview(ctx)
	return err == nil && overview.Store.Counts.Leased > 0
}

// drain ends the server in the order in which nothing is lost. Fetches, parked and new ones, are answered that it
// drains, and streams are asked to reconnect. Other calls are taken while tasks are leased: gRPC's GracefulStop refuses
// new ones, on open connections too, and a collector may know no other dispatcher. Then calls in flight end, or the
// time is up. Metrics and probes are served until then.
func (s *Server) drain(ctx context.Context) {
	began := time.Now()
	s.health.stop()
	s.drainDispatcher()
	s.awaitReports(ctx)
	close(s.closing)
	graceful := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(graceful)
	}()
	select {
	case <-graceful:
	case <-time.After(s.cfg.DrainTimeout - time.Since(began)):
		s.log.Warn("calls had not ended when the drain timeout was up; ending them", zap.Duration("timeout", s.cfg.DrainTimeout))
		s.grpc.Stop()
		<-graceful
	}
	s.log.Info("drained", zap.Duration("took", time.Since(began)))
}
