package web

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// maxSlurp is how much of a body that nobody reads, as a redirect's, is read for its exchange.
const maxSlurp = 4 << 10

// Content is what a Sink stores of a Page. Neither the handler nor the Sink changes it, and the handler lets go of it
// after Put.
type Content struct {
	// Body is the page's, its content coding undone. It is nil when it is the one with Page.Digest that the Sink has
	// (see Sink.Body).
	Body []byte

	// Exchanges are the requests that led to the page with their answers, in order: redirects, then the answer that the
	// Page describes. There are none unless Config.Exchanges is set.
	Exchanges []Exchange
}

// Exchange is one HTTP request and its answer.
type Exchange struct {
	// URL that was asked for, Time when by the collector's clock, RemoteAddress the host:port of the other end, a proxy's
	// if there is one; empty when the transport does not tell.
	URL           string
	Time          time.Time
	RemoteAddress string

	// Protocol is what was spoken: "HTTP/1.0", "HTTP/1.1" or "HTTP/2.0".
	Protocol string

	// Request and Response are the heads, each with the empty line that ends it: the bytes of the connection, without the
	// password of a proxy. If these are not available (HTTP/2, TLS through a proxy, a Config.Transport of your own), the heads
	// are rebuilt in the form of HTTP/1.1, and Rebuilt is true.
	Request  []byte
	Response []byte
	Rebuilt  bool

	// Body is the answer's as it came, its content coding kept, only its transfer coding (chunks) undone. Truncated says
	// why it is not whole, in the words of WARC: "length" (it was not read further) or "disconnect"; empty when it is.
	Body      []byte
	Truncated string

	isBody bool // Body is that of the page, and is not kept twice
}

// recording keeps the exchanges of one fetch. A nil one keeps nothing. One goroutine uses it.
type recording struct {
	limit     int64 // of a body: one over it fails the fetch, so that no more of it is read
	exchanges []*Exchange
}

// roundTrip sends a request and notes the exchange; its body is noted as it is read.
func (r *recording) roundTrip(transport http.RoundTripper, request *http.Request) (*http.Response, error) {
	if r == nil {
		return transport.RoundTrip(request)
	}
	var used atomic.Pointer[net.Conn]
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if heads, ok := info.Conn.(*headConn); ok {
				heads.begin()
			}
			used.Store(&info.Conn)
		},
	}))
	exchange := &Exchange{URL: request.URL.String(), Time: time.Now().UTC()}
	response, err := transport.RoundTrip(request)
	if err != nil || !isFinal(response) {
		return response, err
	}
	var heads *headConn
	if conn := used.Load(); conn != nil {
		exchange.RemoteAddress = (*conn).RemoteAddr().String()
		heads, _ = (*conn).(*headConn)
	}
	exchange.Protocol = response.Proto
	exchange.setHeads(heads, request, response)
	response.Body = &recordedBody{ReadCloser: response.Body, exchange: exchange, limit: r.limit, length: response.ContentLength}
	r.exchanges = append(r.exchanges, exchange)
	return response, nil
}

// isFinal reports whether an answer ends its request. 101 does not: its body is the connection, which has no end.
func isFinal(response *http.Response) bool { return response.StatusCode >= 200 }

// content is what the sink gets.
func (r *recording) content(body []byte) Content {
	content := Content{Body: body}
	if r == nil {
		return content
	}
	for _, exchange := range r.exchanges {
		if exchange.isBody || bytes.Equal(exchange.Body, body) {
			exchange.Body = body // one copy in memory will do
		}
		content.Exchanges = append(content.Exchanges, *exchange)
	}
	return content
}

// setHeads takes the heads from the connection if they are what was sent and received, and rebuilds them if not.
func (e *Exchange) setHeads(heads *headConn, request *http.Request, response *http.Response) {
	if heads != nil {
		e.Request, e.Response = heads.heads()
		if len(e.Request) > 0 && headMatches(e.Response, response) {
			e.Request = withoutProxyPassword(e.Request)
			return
		}
	}
	e.Rebuilt = true
	e.Request = rebuildHead("GET "+request.URL.RequestURI()+" HTTP/1.1\r\nHost: "+request.URL.Host, request.Header)
	status := cmp.Or(strings.TrimSpace(response.Status), http.StatusText(response.StatusCode))
	e.Response = rebuildHead("HTTP/1.1 "+status, response.Header)
}

// rebuildHead writes a head of HTTP/1.1.
func rebuildHead(begin string, header http.Header) []byte {
	var head bytes.Buffer
	head.WriteString(begin + "\r\n")
	_ = header.Write(&head) // a buffer takes all writes
	head.WriteString("\r\n")
	return head.Bytes()
}

// withoutProxyPassword removes the header that only the proxy gets.
func withoutProxyPassword(head []byte) []byte {
	lines := slices.DeleteFunc(bytes.SplitAfter(head, []byte("\n")), func(line []byte) bool {
		name, _, _ := bytes.Cut(line, []byte(":"))
		return strings.EqualFold(string(name), "Proxy-Authorization")
	})
	return bytes.Join(lines, nil)
}

// recordedBody notes a body as it is read.
type recordedBody struct {
	io.ReadCloser
	exchange *Exchange
	limit    int64
	length   int64 // by the head; -1: unknown
	read     int64
	end      error // what ended it; io.EOF: it is whole
}

// Read reads, and keeps what was read.
func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); !b.exchange.isBody {
		b.exchange.Body = append(b.exchange.Body, p[:n]...)
	}
	b.end = err
	return n, err
}

// leaveOut keeps nothing of a body that the page has, too.
func (b *recordedBody) leaveOut() { b.exchange.Body, b.exchange.isBody = nil, true }

// Close reads a short rest, so that the exchange is whole, and sets Truncated if it is not.
func (b *recordedBody) Close() error {
	rest := make([]byte, maxSlurp)
	for read := 0; b.end == nil && read < maxSlurp && b.read <= b.limit; {
		n, err := b.Read(rest)
		if read += n; n == 0 && err == nil {
			break
		}
	}
	switch {
	case errors.Is(b.end, io.EOF), b.read == b.length:
	case b.end != nil:
		b.exchange.Truncated = "disconnect"
	default:
		b.exchange.Truncated = "length"
	}
	return b.ReadCloser.Close()
}
