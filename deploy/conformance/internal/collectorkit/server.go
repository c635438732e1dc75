package collectorkit

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// server is one dispatcher's address. All servers of a kit share one store: the kit.
type server struct {
	k      *kit
	listen string      // ip:port
	tls    *tls.Config // nil: plain text

	mu   sync.Mutex // guards what follows
	stop func()     // closes the port and all connections
	gate *gate
	cut  []time.Time // when it was killed, frozen or started again: the first and each second begin a silence
}

// start listens: on a free port at first, on the same one after a kill.
func (s *server) start() error {
	listener, err := new(net.ListenConfig).Listen(s.k.ctx, "tcp", s.listen)
	if err != nil {
		return err
	}
	s.listen = listener.Addr().String()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		s.cut = append(s.cut, time.Now())
	}
	s.gate = &gate{Listener: listener}
	if s.k.config.Transport == "connect-json" {
		s.stop = s.serveJSON(s.gate)
	} else {
		s.stop = s.serveGRPC(s.gate)
	}
	return nil
}

func (s *server) serveGRPC(listener net.Listener) (stop func()) {
	options := []grpc.ServerOption{
		// As real dispatchers: pings that come more often end the connection.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(4 << 20),
	}
	if s.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.tls)))
	}
	g := grpc.NewServer(options...)
	wagglev1.RegisterDispatchServiceServer(g, service{server: s})
	grpc_health_v1.RegisterHealthServer(g, health.NewServer())
	go func() { _ = g.Serve(listener) }() // it ends with Stop
	return g.Stop
}

func (s *server) serveJSON(listener net.Listener) (stop func()) {
	h := &http.Server{Handler: jsonServer{service{server: s}}, ReadHeaderTimeout: time.Minute}
	if s.tls != nil {
		listener = tls.NewListener(listener, s.tls)
	}
	go func() { _ = h.Serve(listener) }() // it ends with Close
	return func() { _ = h.Close() }       // the listener is closed
}

// kill closes the port and all connections, without a word.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = append(s.cut, time.Now())
	s.gate.freeze(false)
	s.stop()
}

// isSilent reports whether an answer of this moment may not have arrived.
func (s *server) isSilent(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.cut); i += 2 {
		if at.After(s.cut[i].Add(-slack)) && (i+1 == len(s.cut) || at.Before(s.cut[i+1])) {
			return true
		}
	}
	return false
}

// freeze stops the server from reading and writing, as SIGSTOP stops a process: the kernel still accepts connections.
func (s *server) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = append(s.cut, time.Now())
	s.gate.freeze(true)
}

// isFrozen reports whether the server is to do nothing.
func (s *server) isFrozen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	return s.gate.opened != nil
}

// gate is a listener whose connections can be frozen.
type gate struct {
	net.Listener

	mu     sync.Mutex    // guards opened
	opened chan struct{} // nil while nothing is frozen; closed when it ends
}

func (g *gate) freeze(frozen bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case frozen && g.opened == nil:
		g.opened = make(chan struct{})
	case !frozen && g.opened != nil:
		close(g.opened)
		g.opened = nil
	}
}

// pass waits while the gate is frozen.
func (g *gate) pass() {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened != nil {
		<-opened
	}
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return gatedConn{Conn: conn, gate: g}, nil
}

type gatedConn struct {
	net.Conn
	gate *gate
}

// Read implements [net.Conn].
func (c gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.pass()
	return n, err
}

// Write implements [net.Conn].
func (c gatedConn) Write(p []byte) (int, error) {
	c.gate.pass()
	return c.Conn.Write(p)
}
