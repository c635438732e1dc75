package server

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// newHTTP serves metrics and probes, and nothing else.
func (s *Server) newHTTP() *http.Server {
	mux := http.NewServeMux()
	metrics := promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if err := s.admitReader(r); err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	// The process lives: it is not to be killed, whatever the store does.
	mux.HandleFunc("GET /healthz", answerOK)
	// It can be sent calls, if only those of some shards.
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		away, err := s.health.ready()
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case len(away) > 0:
			fmt.Fprintf(w, "ok, but for %d shards of the store that do not answer: %v\n", len(away), away)
		default:
			answerOK(w, r)
		}
	})
	errorLog, _ := zap.NewStdLogAt(s.log, zap.WarnLevel) // it fails for levels that do not exist
	return &http.Server{
		Handler: mux, ErrorLog: errorLog,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// admitReader lets those read the metrics who may call GetStats, if that is wanted.
func (s *Server) admitReader(r *http.Request) error {
	if !s.cfg.MetricsToken {
		return nil
	}
	ctx := metadata.NewIncomingContext(r.Context(), metadata.Pairs("authorization", r.Header.Get("Authorization")))
	_, err := s.guard.Admit(ctx, pb.AdminService_GetStats_FullMethodName)
	return err
}

func answerOK(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "ok\n") // a client that has gone misses nothing that anyone could act on
}
