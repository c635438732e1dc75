package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// healthLoop keeps the health of each service, and of the server as a whole, at what the store's is.
type healthLoop struct {
	reach    func(context.Context) (away []int, err error) // the store, or its owner
	changed  chan struct{}                                 // has an item if the owner has changed
	server   *health.Server
	services []string
	interval time.Duration
	log      *zap.Logger

	mu      sync.Mutex // guards the rest
	problem string     // why the server does not serve; empty when it does
	away    []int      // shards that are not served
	stopped bool
}

func newHealthLoop(interval time.Duration, log *zap.Logger, services []string, reach func(context.Context) ([]int, error)) *healthLoop {
	h := &healthLoop{
		reach: reach, changed: make(chan struct{}, 1), server: health.NewServer(), interval: interval, log: log, services: append([]string{""}, services...),
	}
	h.set("the store was not reached yet")
	return h
}

// look at the store soon: its owner has changed.
func (h *healthLoop) soon() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// run looks at the store each interval, once there is a dispatcher, until ctx ends.
func (h *healthLoop) run(ctx context.Context) error {
	select {
	case <-h.changed:
	case <-ctx.Done():
		return nil
	}
	ticker := time.NewTicker(h.interval)
	defer ticker.Stop()
	for {
		h.look(ctx)
		select {
		case <-ticker.C:
		case <-h.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *healthLoop) look(ctx context.Context) {
	pingCtx, cancel := context.WithTimeout(ctx, h.interval)
	defer cancel()
	away, err := h.reach(pingCtx)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		h.mu.Lock()
		before := h.away
		h.away = away
		h.mu.Unlock()
		if !slices.Equal(before, away) {
			h.log.Warn("shards of the store that do not answer", zap.Ints("shards", away))
		}
	}
	switch {
	case err != nil && h.set(err.Error()):
		h.log.Warn("not serving", zap.Error(err))
	case err == nil && h.set(""):
		h.log.Info("serving")
	}
}

// set makes problem known; empty is none. It reports whether the server begins or ceases to serve by it.
func (h *healthLoop) set(problem string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	changed = (problem == "") != (h.problem == "")
	h.problem = problem
	status := grpc_health_v1.HealthCheckResponse_SERVING
	if problem != "" {
		status = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	for _, service := range h.services {
		h.server.SetServingStatus(service, status)
	}
	return changed
}

// stop makes all services NOT_SERVING for good.
func (h *healthLoop) stop() {
	h.set("the dispatcher is about to stop")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	h.server.Shutdown()
}

// ready is nil when the server serves, if only some shards, else why it does not; and the shards that are away.
func (h *healthLoop) ready() (away []int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.problem != "" {
		return nil, errors.New(h.problem)
	}
	return h.away, nil
}
