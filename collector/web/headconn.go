package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxHead bounds the head that is kept of a request or an answer; longer ones are rebuilt from what was understood.
const maxHead = 512 << 10

// keepHeads makes the transport's connections of HTTP/1 note the heads that go over them.
func keepHeads(transport *http.Transport) {
	dial := transport.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &headConn{Conn: conn}, nil
	}
	transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secure, err := handshake(ctx, transport, conn, address)
		if err != nil {
			conn.Close()
			return nil, err
		}
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			return secure, nil // no heads to be seen in frames
		}
		return &headConn{Conn: secure}, nil
	}
}

// handshake does what the transport does for a connection that it dialed by itself.
func handshake(ctx context.Context, transport *http.Transport, conn net.Conn, address string) (*tls.Conn, error) {
	config := transport.TLSClientConfig.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		config.ServerName = host
	}
	if transport.TLSHandshakeTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, transport.TLSHandshakeTimeout)
		defer cancel()
	}
	secure := tls.Client(conn, config)
	err := secure.HandshakeContext(ctx)
	return secure, err
}

// headConn is a connection of HTTP/1 that keeps the heads of its current exchange.
type headConn struct {
	net.Conn

	mu       sync.Mutex // guards what follows: a transport reads and writes in goroutines of its own
	request  head
	response head
}

// begin forgets the exchange before.
func (c *headConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request, c.response = head{begun: true}, head{begun: true, isResponse: true}
}

// heads returns both heads; one that is not whole is nil.
func (c *headConn) heads() (request, response []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.request.whole(), c.response.whole()
}

// Write notes the head of a request, and sends.
func (c *headConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.request.take(p)
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Read receives, and notes the head of an answer.
func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	c.response.take(p[:n])
	c.mu.Unlock()
	return n, err
}

// head collects bytes up to the empty line that ends a head.
type head struct {
	text       []byte
	begun      bool
	done       bool
	isResponse bool
}

// take adds what belongs to the head. Interim answers (1xx) before the one that counts are left out.
func (h *head) take(p []byte) {
	for h.begun && !h.done && len(p) > 0 {
		from := max(0, len(h.text)-3)
		before := len(h.text)
		h.text = append(h.text, p[:min(len(p), maxHead+1-before)]...)
		end := headEnd(h.text[from:])
		switch {
		case end < 0 && len(h.text) > maxHead:
			h.begun, h.text = false, nil
		case end < 0:
			return
		case h.isResponse && isInterim(h.text):
			p = p[from+end-before:]
			h.text = h.text[:0]
		default:
			h.text, h.done = h.text[:from+end], true
		}
	}
}

func (h *head) whole() []byte {
	if !h.done {
		return nil
	}
	return h.text
}

// headEnd is where the first empty line ends, -1 if there is none. A line may end without CR, as net/http lets it.
func headEnd(text []byte) int {
	for from := 0; ; {
		at := bytes.IndexByte(text[from:], '\n')
		if at < 0 {
			return -1
		}
		from += at + 1
		switch rest := text[from:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return from + 1
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return from + 2
		}
	}
}

// isInterim reports whether a head is of an answer before the answer.
func isInterim(text []byte) bool {
	_, status, _ := bytes.Cut(text, []byte(" "))
	return bytes.HasPrefix(status, []byte("1")) && !bytes.HasPrefix(status, []byte("101"))
}

// headMatches reports whether text is the head that response was read from.
func headMatches(text []byte, response *http.Response) bool {
	if len(text) == 0 {
		return false
	}
	parsed, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), response.Request)
	if err != nil {
		return false
	}
	parsed.Body.Close()
	return parsed.StatusCode == response.StatusCode && len(parsed.Header) == len(response.Header)
}
