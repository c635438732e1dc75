package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"regexp"
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

	mu                sync.Mutex // guards what follows: a transport reads and writes in goroutines of its own
	recording         bool
	request, response []byte // what was sent and received since begin, up to maxHead
}

// begin starts the recording of an exchange.
func (c *headConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recording, c.request, c.response = true, nil, nil
}

// heads ends the recording and returns both heads, without interim answers (1xx). One that is not whole is nil.
func (c *headConn) heads() (request, response []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	request, _ = cutHead(c.request)
	response, rest := cutHead(c.response)
	for isInterim(response) {
		response, rest = cutHead(rest)
	}
	c.recording, c.request, c.response = false, nil, nil
	return request, response
}

// Write records what is sent, and sends it.
func (c *headConn) Write(p []byte) (int, error) {
	c.record(&c.request, p)
	return c.Conn.Write(p)
}

// Read receives, and records what was received.
func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.record(&c.response, p[:n])
	return n, err
}

func (c *headConn) record(text *[]byte, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recording {
		*text = append(*text, p[:min(len(p), maxHead-len(*text))]...)
	}
}

// emptyLine ends a head. A line may end without CR, as net/http permits.
var emptyLine = regexp.MustCompile(`\n\r?\n`)

// cutHead cuts a text behind its first head; both parts are nil if that is not whole.
func cutHead(text []byte) (head, rest []byte) {
	end := emptyLine.FindIndex(text)
	if end == nil {
		return nil, nil
	}
	return text[:end[1]:end[1]], text[end[1]:]
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
