package web_test

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// TestHandler_BodyAsItIs holds that a body is read as far as it goes, however its head describes it: what follows the coding is
// left out, a coding that is none counts as none.
func TestHandler_BodyAsItIs(t *testing.T) {
	t.Parallel()
	html := []byte(`<a href="/found">x</a>` + string(bytes.Repeat([]byte("text "), 2000)))
	gz, br, zst := zipped(t, html), brotlied(t, html), zstded(t, html)
	deflated := packed(t, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, html)
	raw := packed(t, func(w io.Writer) io.WriteCloser {
		writer, err := flate.NewWriter(w, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		return writer
	}, html)
	wrongSum := bytes.Clone(gz)
	wrongSum[len(gz)-5]++
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	s := newSite(t)
	for name, body := range map[string]struct {
		coding string
		body   []byte
	}{
		"gzip then HTML":                     {"gzip", join(gz, html)},
		"gzip then a byte":                   {"gzip", join(gz, []byte("x"))},
		"gzip then the beginning of a magic": {"gzip", join(gz, []byte("\x1f\x8b"))},
		"gzip with half a trailer":           {"gzip", gz[:len(gz)-3]},
		"gzip with a wrong checksum":         {"x-gzip", wrongSum},
		"empty members of gzip around it":    {"gzip", join(zipped(t, nil), gz, zipped(t, nil), []byte("\n"))},
		"three members, the last cut behind": {"gzip", join(zipped(t, html[:30]), zipped(t, html[30:60]), zipped(t, html[60:])[:len(zipped(t, html[60:]))-8])},
		"br then garbage":                    {"br", join(br, []byte("<!-- cached -->"))},
		"zstd then garbage":                  {"zstd", join(zst, []byte("<!-- cached -->"))},
		"two frames of zstd":                 {"zstd", join(zstded(t, html[:40]), zstded(t, html[40:]))},
		"deflate without its checksum":       {"deflate", deflated[:len(deflated)-4]},
		"deflate then garbage":               {"Deflate", join(deflated, html)},
		"raw deflate then garbage":           {"deflate", join(raw, []byte("\r\n"))},
		"gzip and none":                      {"none, gzip", gz},
		"gzip in UTF-8":                      {"gzip,utf8", gz},
		"a media type":                       {"text/html", html},
		"a transfer coding":                  {"chunked", html},
		"8bit":                               {"8bit", html},
		"a list of nothing":                  {", ,", html},
	} {
		s.page("/"+digest(name), map[string]string{"Content-Type": "text/html", "Content-Encoding": body.coding}, 200, string(body.body))
		done, err := handle(t, newHandler(t, web.Config{}), &collector.Task{URL: s.URL + "/" + digest(name)})
		if err != nil || len(done.Discovered) != 1 || done.Bytes != int64(len(html)) {
			t.Errorf("%s: %d bytes, want %d, leads to %q: %v", name, done.Bytes, len(html), discovered(done), err)
		}
	}
	for name, body := range map[string]struct {
		coding string
		body   []byte
		want   collector.Reason
	}{
		"gzip cut within":           {"gzip", gz[:len(gz)-9], collector.ReasonConnectionLost},
		"the second member cut":     {"gzip", join(gz, gz[:len(gz)-12]), collector.ReasonConnectionLost},
		"deflate cut within":        {"deflate", raw[:len(raw)-3], collector.ReasonConnectionLost},
		"deflate that is none":      {"deflate", html, collector.ReasonUnsupportedContent},
		"a coding that nobody uses": {"pack200-gzip", html, collector.ReasonUnsupportedContent},
	} {
		s.page("/"+digest(name), map[string]string{"Content-Type": "text/html", "Content-Encoding": body.coding}, 200, string(body.body))
		_, err := handle(t, newHandler(t, web.Config{}), &collector.Task{URL: s.URL + "/" + digest(name)})
		if got := failedOf(t, err); got.Reason != body.want {
			t.Errorf("%s: %+v, want %s", name, got, body.want)
		}
	}
}

// TestHandler_Refresh holds that the header leads where meta refresh does.
func TestHandler_Refresh(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, test := range []struct {
		refresh, contentType, body string
		want                       int
	}{
		{"0;url=/to", "text/html", "", 1},
		{`3 , URL="/to" more`, "text/plain", "text", 1},
		{"0;URL='/to'", "text/html; charset=utf-8", `<a href="/to">x</a>`, 1},
		{"10", "text/html", "", 0},
		{"0;url=/to", "text/html", `<meta name=robots content=nofollow>`, 0},
	} {
		path := fmt.Sprintf("/%d", i)
		s.page(path, map[string]string{"Refresh": test.refresh, "Content-Type": test.contentType}, 200, test.body)
		done, err := handle(t, newHandler(t, web.Config{}), &collector.Task{URL: s.URL + path})
		if got := discovered(done); err != nil || len(got) != test.want || len(got) > 0 && got[0] != s.URL+"/to" {
			t.Errorf("%q: %q, %v", test.refresh, got, err)
		}
	}
}

// TestHandler_HTTP11Required holds that a server that wants HTTP/1.1 for a page gets it.
func TestHandler_HTTP11Required(t *testing.T) {
	t.Parallel()
	for _, exchanges := range []bool{false, true} {
		var refused, served atomic.Int32
		s := &counted{Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			body("text/html", "", []byte(`<a href="/found">x</a>`))(w, r)
		}))}
		s.EnableHTTP2 = true
		s.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
			"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) { refuseStreams(conn, &refused) },
		}
		s.StartTLS()
		t.Cleanup(s.Close)
		h := s.trusting(t, web.Config{Exchanges: exchanges, IgnoreRobots: true})
		for range 2 {
			if done, err := handle(t, h, &collector.Task{URL: s.URL + "/"}); err != nil || len(done.Discovered) != 1 {
				t.Errorf("%+v, %v", done, err)
			}
		}
		if refused.Load() != 2 || served.Load() != 2 {
			t.Errorf("%d requests refused by HTTP/2, %d served by HTTP/1.1; want 2 and 2", refused.Load(), served.Load())
		}
	}
}

// refuseStreams speaks HTTP/2 on a connection, and says for each request that it wants HTTP/1.1.
func refuseStreams(conn *tls.Conn, refused *atomic.Int32) {
	_, _ = io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface)))
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			refused.Add(1)
			_ = framer.WriteRSTStream(frame.StreamID, http2.ErrCodeHTTP11Required)
		}
	}
}
