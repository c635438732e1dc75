package collector

import (
	"bytes"
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// certificateCheck is the least time between two looks at the file of the certificate.
const certificateCheck = time.Second

// reconnecting is a connection that another one replaces when the certificate of this program was renewed: dispatchers refuse calls
// on a connection whose certificate has expired. Calls under way end on the old connection.
type reconnecting struct {
	dial        func() (*grpc.ClientConn, error)
	certificate func() []byte // nil: there is none

	mu      sync.Mutex // guards what follows, and what is in the connections
	current *sharedConn
	checked time.Time
}

// sharedConn is a connection with the number of calls on it.
type sharedConn struct {
	*grpc.ClientConn
	certificate []byte
	calls       int
	replaced    bool // it closes when no call is left
}

var _ grpc.ClientConnInterface = (*reconnecting)(nil)

func newReconnecting(certificate func() []byte, dial func() (*grpc.ClientConn, error)) (*reconnecting, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	r := &reconnecting{dial: dial, certificate: certificate, current: &sharedConn{ClientConn: conn}, checked: time.Now()}
	if certificate != nil {
		r.current.certificate = certificate()
	}
	return r, nil
}

// latest is the connection for new calls.
func (r *reconnecting) latest() *sharedConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renewed()
}

// renew has the next call connect anew: nobody pings a connection that has no call, and a dispatcher behind it may freeze meanwhile.
func (r *reconnecting) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if conn, err := r.dial(); err == nil { // as it was possible before, it is later
		r.replace(conn, r.current.certificate)
	}
}

// replace puts a connection in place of the current one, which closes with its last call. The caller holds mu.
func (r *reconnecting) replace(conn *grpc.ClientConn, certificate []byte) {
	old := r.current
	old.replaced = true
	r.current = &sharedConn{ClientConn: conn, certificate: certificate}
	r.closeIdle(old)
}

// renewed replaces the connection if the certificate has changed. The caller holds mu.
func (r *reconnecting) renewed() *sharedConn {
	if r.certificate == nil || time.Since(r.checked) < certificateCheck {
		return r.current
	}
	r.checked = time.Now()
	certificate := r.certificate()
	if bytes.Equal(certificate, r.current.certificate) {
		return r.current
	}
	conn, err := r.dial()
	if err != nil { // as it was possible before, it is later
		return r.current
	}
	r.replace(conn, certificate)
	return r.current
}

func (r *reconnecting) closeIdle(c *sharedConn) {
	if c.replaced && c.calls == 0 {
		_ = c.Close() // the error says that it was closed before
	}
}

// begin takes the connection for a call; end gives it back.
func (r *reconnecting) begin() (conn *sharedConn, end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	conn = r.renewed()
	conn.calls++
	return conn, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		conn.calls--
		r.closeIdle(conn)
	}
}

// Invoke implements [grpc.ClientConnInterface].
func (r *reconnecting) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	conn, end := r.begin()
	defer end()
	return conn.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements [grpc.ClientConnInterface]. The context has to end with the stream.
func (r *reconnecting) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	conn, end := r.begin()
	stream, err := conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(ctx, end)
	return stream, nil
}

// close closes the connection. Replaced ones close with the contexts of their calls.
func (r *reconnecting) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.Close()
}
