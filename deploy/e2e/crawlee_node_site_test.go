//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// oddSite answers as its paths say, and notes who asks for what.
type oddSite struct {
	*httptest.Server
	mu    sync.Mutex // guards asked
	asked map[string][]time.Time
}

func newOddSite(t *testing.T) *oddSite {
	t.Helper()
	s := &oddSite{asked: map[string][]time.Time{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *oddSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path] = append(s.asked[r.URL.Path], time.Now())
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html")
	var status int
	switch _, err := fmt.Sscanf(r.URL.Path, "/status/%d", &status); {
	case err == nil:
		http.Error(w, "as you wish", status)
	case r.URL.Path == "/robots.txt":
		fmt.Fprint(w, "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n")
	case r.URL.Path == "/busy":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case r.URL.Path == "/pdf":
		w.Header().Set("Content-Type", "application/pdf")
	case r.URL.Path == "/slow":
		<-r.Context().Done()
	case r.URL.Path == "/cut":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	case r.URL.Path == "/echo":
		w.Header().Set("Content-Type", "text/plain")
		body := make([]byte, 10)
		n, _ := r.Body.Read(body)
		fmt.Fprintf(w, "%s %x %s", r.Method, body[:n], r.Header.Get("X-Mine"))
	default:
		fmt.Fprint(w, "<h1>a page</h1>")
	}
}

func (s *oddSite) times(path string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.asked[path]...)
}
