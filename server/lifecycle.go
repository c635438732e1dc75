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
	s.owners.close()
	// What handlers have answered is on its way yet.
	answering, stop := context.WithTimeout(context.WithoutCancel(ctx), answersLimit)
	defer stop()
	_ = s.http.Shutdown(answering) // what is left then is closed
	err := s.http.Close()
	return errors.Join(serving.Wait(), err)
}

// answersLimit is how long answers over HTTP may take to go out when the server ends.
const answersLimit = time.Second

func (s *Server) serveGRPC(listener net.Listener) error {
	if err := s.grpc.Serve(s.peers.Listen(listener, s.plain())); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("server: serve gRPC: %w", err)
	}
	return nil
}

func (s *Server) serveHTTP(listener net.Listener) error {
	listener = s.peers.Listen(listener, false)
	serve := s.http.Serve
	if s.certs != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("server: serve HTTP: %w", err)
	}
	return nil
}

// drainDispatcher begins the drain of the dispatcher, also of one that is attached later.
func (s *Server) drainDispatcher() {
	s.mu.Lock()
	defer s.mu.Unlock()
	parked := 0
	if term := s.owners.now.Load().local; term != nil {
		parked = term.operator.Dispatcher().Parked()
		term.operator.Dispatcher().Drain()
	}
	s.log.Info("draining", zap.Duration("timeout", s.cfg.DrainTimeout), zap.Int("parked_fetches", parked))
	close(s.draining)
	s.chain.drain()
}

// leasedLook is the time between two looks at how many tasks are leased.
const leasedLook = 100 * time.Millisecond

// patience is how long a drain waits for what may not come: the next report, the end of a stream.
func (s *Server) patience() time.Duration { return s.cfg.DrainTimeout / 20 }

// awaitReports takes calls until a while has passed without a report and no collector stops as well, at most a quarter of the
// drain timeout.
func (s *Server) awaitReports(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout/4)
	defer cancel()
	last, since := int64(0), time.Now()
	for leased := s.dueReports(ctx); leased > 0 && time.Since(since) < s.patience(); leased = s.dueReports(ctx) {
		if leased != last || s.stopping.Load() > 0 {
			last, since = leased, time.Now()
		}
		select {
		case <-time.After(min(leasedLook, s.patience())):
		case <-ctx.Done():
			return
		}
	}
}

// dueReports is how many tasks are leased whose reports no other dispatcher can take. With a store that is away none could be taken.
func (s *Server) dueReports(ctx context.Context) int64 {
	term := s.owners.now.Load().local
	if term == nil || s.passed.HasPeers() { // the owner takes them, or the next one does
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HealthInterval)
	defer cancel()
	overview, err := term.operator.Overview(ctx)
	if err != nil {
		return 0
	}
	return overview.Store.Counts.Leased
}

// drain ends the server in the order in which nothing is lost. Fetches, parked and new ones, are answered that it
// drains. The only dispatcher takes the reports that come soon: gRPC's GracefulStop refuses new calls, on open connections
// too, and collectors that stop as well have no other time. Those of others come when a dispatcher is there again; until
// then their leases stand. Then streams are asked to reconnect, and calls in flight end, over HTTP too, or the time is up.
// GracefulStop returns once all handlers have, also where Stop has ended their calls, so that none works on a closed store.
// Metrics and probes are served until then.
func (s *Server) drain(ctx context.Context) {
	began := time.Now()
	s.health.stop()
	s.drainDispatcher()
	s.awaitReports(ctx)
	close(s.closing)
	graceful := make(chan struct{})
	go func() {
		s.api.close()
		s.console.Close()
		s.grpc.GracefulStop()
		s.api.running.Wait()
		close(graceful)
	}()
	select {
	case <-graceful:
	case <-time.After(s.cfg.DrainTimeout - time.Since(began)):
		s.log.Warn("calls had not ended when the drain timeout was up; ending them", zap.Duration("timeout", s.cfg.DrainTimeout))
		s.grpc.Stop()
		if err := s.http.Close(); err != nil {
			s.log.Warn("close the HTTP server", zap.Error(err))
		}
		<-graceful
	}
	s.log.Info("drained", zap.Duration("took", time.Since(began)))
}
