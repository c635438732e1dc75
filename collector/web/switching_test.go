package web_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// switches answers with 101 and some bytes, and keeps the connection until the visitor closes it or a minute is over.
// Only of a visitor who closes it, closed gets a true.
func switches(closed chan<- bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			closed <- false
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n<a href=/1>x</a>")
		_, err = io.Copy(io.Discard, conn)
		closed <- !errors.Is(err, os.ErrDeadlineExceeded)
	}
}

// TestHandler_SwitchingProtocols holds that an answer that ends HTTP on its connection is a failure at once: its body
// has no end, and no timeout of net/http reaches it.
func TestHandler_SwitchingProtocols(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, at string // the task's, and where the protocol is switched
		cfg      web.Config
		reason   collector.Reason
	}{
		"page":       {path: "/page", at: "/page", reason: collector.ReasonUnsupportedContent},
		"recorded":   {path: "/page", at: "/page", cfg: web.Config{Exchanges: true}, reason: collector.ReasonUnsupportedContent},
		"robots.txt": {path: "/page", at: "/robots.txt", reason: collector.ReasonRobotsUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closed := make(chan bool, 1)
			server := newCounted(t, false, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case test.at:
					switches(closed)(w, r)
				case "/moved":
					location("/moved;jsessionid=01234567")(w, r)
				default:
					http.NotFound(w, r)
				}
			})
			h := newHandler(t, test.cfg)
			_, err := handle(t, h, &collector.Task{URL: server.URL + test.path})
			if !<-closed {
				t.Fatal("the connection was not closed")
			}
			got := failedOf(t, err)
			if got.Reason != test.reason || got.HTTPStatus != http.StatusSwitchingProtocols || got.Permanent || !strings.Contains(got.Message, "101") {
				t.Errorf("%+v; want %s with status 101", got, test.reason)
			}
		})
	}
}
