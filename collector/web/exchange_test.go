package web_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// rawServer answers each request with the text of its path, byte for byte.
func rawServer(t *testing.T, answers map[string]string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serveRaw(conn, answers)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return "http://" + listener.Addr().String()
}

// serveRaw serves one connection until the other end closes it or an answer has no length.
func serveRaw(conn net.Conn, answers map[string]string) {
	defer conn.Close()
	requests := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		answer := answers[request.URL.Path]
		if _, err := io.WriteString(conn, answer); err != nil || !strings.Contains(answer, "ength") && !strings.Contains(answer, "hunked") {
			return
		}
	}
}

// exchanges fetches a page and returns what the sink got.
func exchanges(t *testing.T, h *web.Handler, sink *memorySink, address string) []web.Exchange {
	t.Helper()
	if _, err := handle(t, h, &collector.Task{ID: "1-a", URL: address}); err != nil {
		t.Fatal(err)
	}
	return sink.exchanges[len(sink.exchanges)-1]
}

// TestHandler_ExchangeHeads holds that heads are those of the wire to the byte, whatever net/http makes of them.
func TestHandler_ExchangeHeads(t *testing.T) {
	t.Parallel()
	plain := "HTTP/1.1 200 Fine, thanks\r\nsErVeR:  odd\r\nX-Two: b\r\nX-Two: a\r\nContent-length: 4\r\n\r\n"
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	moved := "HTTP/1.1 301 Moved\r\nLocation: /plain\r\nContent-Length: 5\r\n\r\n"
	loose := "HTTP/1.0 200 OK\nServer: no CR\n\n"
	long := "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("long ", 20_000) + "\r\nContent-Length: 0\r\n\r\n"
	base := rawServer(t, map[string]string{
		"/plain": plain + "page", "/chunked": chunked + "2\r\npa\r\n2;x=y\r\nge\r\n0\r\n\r\n", "/moved": moved + "gone!",
		"/loose": loose + "page", "/early": "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + plain + "page", "/long": long,
	})
	sink := &memorySink{}
	h := newHandler(t, web.Config{Sink: sink, Exchanges: true, IgnoreRobots: true, AllowPrivate: true})
	for _, test := range []struct {
		path string
		want []web.Exchange
	}{
		{"/plain", []web.Exchange{{Response: []byte(plain), Body: []byte("page")}}},
		{"/chunked", []web.Exchange{{Response: []byte(chunked), Body: []byte("page")}}},
		{"/moved", []web.Exchange{{Response: []byte(moved), Body: []byte("gone!")}}},
		{"/early", []web.Exchange{{Response: []byte(plain), Body: []byte("page")}}},
		{"/long", []web.Exchange{{Response: []byte(long)}}},
		{"/loose", []web.Exchange{{Response: []byte(loose), Body: []byte("page")}}},
	} {
		got := exchanges(t, h, sink, base+test.path)
		if len(got) != len(test.want) {
			t.Fatalf("%s: %d exchanges, want %d", test.path, len(got), len(test.want))
		}
		for i, want := range test.want {
			x := got[i]
			if !bytes.Equal(x.Response, want.Response) || !bytes.Equal(x.Body, want.Body) || x.Rebuilt || x.Truncated != "" {
				t.Errorf("%s, exchange %d: %q and %q (%+v)", test.path, i, x.Response, x.Body, x)
			}
			if !bytes.HasPrefix(x.Request, []byte("GET "+test.path+" HTTP/1.1\r\nHost: ")) || !bytes.HasSuffix(x.Request, []byte("\r\n\r\n")) ||
				x.URL != base+test.path || "http://"+x.RemoteAddress != base || x.Time.IsZero() {
				t.Errorf("%s, exchange %d: request %q of %+v", test.path, i, x.Request, x)
			}
			if !bytes.Contains(x.Request, []byte("\r\nAccept-Encoding: gzip, br\r\n")) {
				t.Errorf("%s, exchange %d: asks for codings that readers of archives do not undo: %q", test.path, i, x.Request)
			}
		}
	}
}

// TestHandler_ExchangeTLS holds that heads of HTTP/1.1 are kept under TLS too, and those of HTTP/2 rebuilt.
func TestHandler_ExchangeTLS(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(zip, "a page")
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(zipped.Bytes())
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			roots := x509.NewCertPool()
			roots.AddCert(server.Certificate())
			transport := web.NewTransportForTest(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
			t.Cleanup(transport.CloseIdleConnections)
			sink := &memorySink{}
			h := newHandler(t, web.Config{Sink: sink, Exchanges: true, IgnoreRobots: true, AllowPrivate: true, Transport: transport})
			for range 2 { // the second on the same connection
				got := exchanges(t, h, sink, server.URL+"/?q")
				if len(got) != 1 {
					t.Fatalf("%d exchanges", len(got))
				}
				x := got[0]
				protocol := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
				if x.Rebuilt != http2 || x.Protocol != protocol || !bytes.Equal(x.Body, zipped.Bytes()) || x.RemoteAddress == "" {
					t.Errorf("exchange %+v", x)
				}
				if !bytes.HasPrefix(x.Response, []byte("HTTP/1.1 200 OK\r\n")) || !bytes.Contains(x.Response, []byte("Content-Encoding: gzip\r\n")) ||
					!bytes.HasPrefix(x.Request, []byte("GET /?q HTTP/1.1\r\nHost: 127.0.0.1:")) || !bytes.Contains(x.Request, []byte("User-Agent: waggle")) {
					t.Errorf("heads %q, %q", x.Request, x.Response)
				}
			}
		})
	}
}

// TestHandler_ExchangeTransport holds what is left of an exchange with a transport of one's own, or behind a proxy with a
// password, and that robots.txt is none of the page's exchanges.
func TestHandler_ExchangeTransport(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/robots.txt", nil, 200, "User-agent: *\nAllow: /")
	s.page("/page", map[string]string{"Content-Type": "text/plain"}, 200, "page")
	sink := &memorySink{}
	own := newHandler(t, web.Config{Sink: sink, AllowPrivate: true, Exchanges: true, Transport: http.DefaultTransport.(*http.Transport).Clone()})
	got := exchanges(t, own, sink, s.URL+"/page")
	if len(got) != 1 || !got[0].Rebuilt || string(got[0].Body) != "page" ||
		!bytes.HasPrefix(got[0].Response, []byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n")) {
		t.Errorf("exchanges %+v", got)
	}
	none := newHandler(t, web.Config{Sink: sink, AllowPrivate: true})
	if got := exchanges(t, none, sink, s.URL+"/page"); len(got) != 0 {
		t.Errorf("without Config.Exchanges: %+v", got)
	}

	proxy, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy.User = url.UserPassword("name", "secret")
	transport := web.NewTransportForTest(nil)
	transport.Proxy = http.ProxyURL(proxy)
	t.Cleanup(transport.CloseIdleConnections)
	proxied := newHandler(t, web.Config{Sink: sink, Exchanges: true, IgnoreRobots: true, AllowPrivate: true, Transport: transport})
	got = exchanges(t, proxied, sink, "http://far.example/page")
	if seen := s.requests("/page"); seen[len(seen)-1].Header.Get("Proxy-Authorization") == "" {
		t.Error("the proxy got no password")
	}
	if len(got) != 1 || got[0].Rebuilt || bytes.Contains(bytes.ToLower(got[0].Request), []byte("proxy-authorization")) ||
		!bytes.HasPrefix(got[0].Request, []byte("GET http://far.example/page HTTP/1.1\r\nHost: far.example\r\n")) {
		t.Errorf("proxied %+v: %q", got, got[0].Request)
	}
}

// TestHandler_ExchangeTruncated holds that a body nobody reads is not read to its end either, and says so.
func TestHandler_ExchangeTruncated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/moved", map[string]string{"Location": "/page"}, 302, strings.Repeat("x", 1<<20))
	sink := &memorySink{}
	h := newHandler(t, web.Config{Sink: sink, Exchanges: true, IgnoreRobots: true, AllowPrivate: true})
	got := exchanges(t, h, sink, s.URL+"/moved")
	if len(got) != 1 || got[0].Truncated != "length" || len(got[0].Body) < 4<<10 || len(got[0].Body) > 128<<10 {
		t.Errorf("%d exchanges, the first of %d bytes, truncated %q", len(got), len(got[0].Body), got[0].Truncated)
	}
}
