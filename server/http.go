package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// newHTTP serves the API, the console, metrics and probes.
func (s *Server) newHTTP() *http.Server {
	mux := http.NewServeMux()
	s.api.mount(mux)
	s.console = s.newConsole()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.api.servePage(w, r, s.console) }) //nolint:contextcheck // it is the request's
	metrics := promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if err := s.admitReader(r); err != nil { //nolint:contextcheck // it is the request's
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
	errorLog.SetOutput(&sometimes{log: s.log, each: rate.Sometimes{Interval: time.Second}})
	errorLog.SetFlags(0)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: mux, ErrorLog: errorLog, Protocols: protocols, ConnContext: connected,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHTTPHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:      int(s.cfg.MaxConcurrentStreams),
			MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: httpConnWindow,
			SendPingTimeout: s.cfg.KeepaliveTime, PingTimeout: s.cfg.KeepaliveTimeout, WriteByteTimeout: answerTimeout,
		},
	}
	if s.certs != nil {
		server.TLSConfig = s.certs.Config("h2", "http/1.1")
	}
	return server
}

const (
	maxHTTPHeader = 32 << 10 // bytes; a token has up to 16 KiB
	// httpConnWindow is how much of a connection may wait for handlers to read it: no address is counted for it.
	httpConnWindow = 64 << 10
)

// sometimes logs what net/http returns to nobody, such as handshakes that failed, once a second: who connects could else
// fill the log.
type sometimes struct {
	log  *zap.Logger
	each rate.Sometimes
}

// Write logs a line.
func (s *sometimes) Write(line []byte) (int, error) {
	s.each.Do(func() { s.log.Warn("the HTTP server", zap.ByteString("error", bytes.TrimSpace(line))) })
	return len(line), nil
}

// admitReader lets those read the metrics who may call GetStats, if that is wanted.
func (s *Server) admitReader(r *http.Request) error {
	if !s.cfg.MetricsToken {
		return nil
	}
	_, err := s.guard.Admit(askedBy(r), pb.AdminService_GetStats_FullMethodName)
	return err
}

func answerOK(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "ok\n") // a client that has gone misses nothing that anyone could act on
}
