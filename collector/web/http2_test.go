package web_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// counted is a server that counts connections, and requests by protocol.
type counted struct {
	*httptest.Server
	connections, http1, http2 atomic.Int32
}

// newCounted starts a server with TLS, or without: then only HTTP/1.1 is spoken.
func newCounted(t *testing.T, secure bool, handler http.HandlerFunc) *counted {
	t.Helper()
	s := &counted{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			s.http2.Add(1)
		} else {
			s.http1.Add(1)
		}
		handler(w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	if secure {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// trusting makes a handler that takes the server's certificate.
func (s *counted) trusting(t *testing.T, cfg web.Config) *web.Handler {
	t.Helper()
	h := newHandler(t, cfg)
	web.Trust(h, poolOf(s))
	return h
}

// poolOf holds the server's certificate, if it has one.
func poolOf(s *counted) *x509.CertPool {
	roots := x509.NewCertPool()
	if certificate := s.Certificate(); certificate != nil {
		roots.AddCert(certificate)
	}
	return roots
}

// TestHandler_Connections holds that a host's pages share its connections: one for HTTP/2, however many tasks are
// worked on at once; no more than tasks for HTTP/1.1.
func TestHandler_Connections(t *testing.T) {
	t.Parallel()
	const slots, pages = 4, 25
	for name, test := range map[string]struct {
		secure      bool
		cfg         web.Config
		connections int32
	}{
		// A connection is free a moment after its answer was read; a request that comes in between begins another one.
		"HTTP/1.1":                 {connections: 3 * slots},
		"HTTP/1.1, exchanges kept": {cfg: web.Config{Exchanges: true}, connections: 3 * slots},
		"HTTP/2":                   {secure: true, connections: 1},
		"HTTP/2, exchanges kept":   {secure: true, cfg: web.Config{Exchanges: true}, connections: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCounted(t, test.secure, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/missing") || r.URL.Path == "/robots.txt" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "text/html")
				_, _ = fmt.Fprintf(w, `<a href="/next%s">x</a>`, r.URL.Path)
			})
			h := s.trusting(t, test.cfg)
			fetch := func(path string) {
				done, err := h.Handle(t.Context(), &collector.Task{URL: s.URL + path})
				if ok := err == nil && len(done.Discovered) == 1; ok == strings.HasPrefix(path, "/missing") {
					t.Errorf("%s: %+v, %v", path, done, err)
				}
			}
			fetch("/")
			var working sync.WaitGroup
			for slot := range slots {
				working.Go(func() {
					for page := range pages {
						fetch(fmt.Sprintf("/%d/%d", slot, page))
						fetch(fmt.Sprintf("/missing/%d/%d", slot, page))
					}
				})
			}
			working.Wait()
			if got := s.connections.Load(); got > test.connections {
				t.Errorf("%d connections for %d requests, want at most %d", got, s.http1.Load()+s.http2.Load(), test.connections)
			}
			if spoken := s.http2.Load() > 0; spoken != test.secure || spoken && s.http1.Load() > 0 {
				t.Errorf("%d requests by HTTP/1.1, %d by HTTP/2", s.http1.Load(), s.http2.Load())
			}
		})
	}
}

// TestHandler_HTTP2Limits holds that the limits are those of HTTP/1.1.
func TestHandler_HTTP2Limits(t *testing.T) {
	t.Parallel()
	serve := map[string]http.HandlerFunc{
		"/head": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 300 {
				w.Header().Set(fmt.Sprintf("X-Head-%d", i), strings.Repeat("x", 1000))
			}
		},
		"/endless": func(w http.ResponseWriter, _ *http.Request) { forever(w, "x") },
		"/drip": func(w http.ResponseWriter, r *http.Request) {
			dripping(w, func() { _ = http.NewResponseController(w).Flush() }, "x", r.Context().Done())
		},
		"/silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"/reset":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"/broken": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"/loop": location("/loop"),
		"/good": body("text/html", "", []byte(`<a href="/1">x</a>`)),
	}
	s := newCounted(t, true, func(w http.ResponseWriter, r *http.Request) { serve[r.URL.Path](w, r) })
	h := s.trusting(t, web.Config{IgnoreRobots: true, MaxBytes: 1 << 20, Timeout: hostileTimeout / 5})
	for path, want := range map[string]collector.Reason{
		"/head": collector.ReasonConnectionLost, "/endless": collector.ReasonTooLarge, "/drip": collector.ReasonTimeout,
		"/silent": collector.ReasonTimeout, "/reset": collector.ReasonConnectionLost, "/broken": collector.ReasonConnectionLost,
		"/loop": collector.ReasonRedirect,
	} {
		_, err := handle(t, h, &collector.Task{URL: s.URL + path})
		if got := failedOf(t, err); got.Reason != want {
			t.Errorf("%s: %+v, want %s", path, got, want)
		}
		if done, err := handle(t, h, &collector.Task{URL: s.URL + "/good"}); err != nil || len(done.Discovered) != 1 {
			t.Errorf("a good page after %s: %+v, %v", path, done, err)
		}
	}
	if s.http1.Load() > 0 {
		t.Errorf("%d requests by HTTP/1.1", s.http1.Load())
	}
}
