package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/console"
	"github.com/waggle-crawl/waggle/server/internal/admit"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/relay"
	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
)

// Server serves one [engine.Dispatcher] and its operator over gRPC. It is made by [New] and run
// once, by [Server.Run] or [Server.RunOn].
type Server struct {
	cfg     Config
	log     *zap.Logger
	metrics *Metrics
	limits  *admit.Limits
	peers   *peers.Peers
	chain   *chain
	guard   *auth.Guard        // nil: whoever connects may do everything
	certs   *auth.Certificates // nil: no TLS
	health  *healthLoop
	grpc    *grpc.Server
	api     *httpAPI
	console *console.Console
	http    *http.Server

	heartbeats atomic.Int64  // streams that are open
	stopping   atomic.Int64  // of them, those of collectors that stop
	draining   chan struct{} // closed when a drain begins
	closing    chan struct{} // closed when no more calls are taken
	store      *storeCollector
	backend    backend
	owners     *ownership
	passed     *relay.Service // takes the calls of other dispatchers

	mu                         sync.Mutex // guards what follows, and changes of backend
	grpcListener, httpListener net.Listener
}

// New makes a server of o and its dispatcher. It may be nil: then [Server.Attach] brings it later. It opens nothing
// until [Server.Listen] or [Server.Run], but it holds goroutines from now on, until Run has ended.
func New(cfg Config, o *operate.Operator, log *zap.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	log = cmp.Or(log, zap.NewNop())
	s := &Server{
		cfg: cfg, log: log, metrics: cfg.Metrics, limits: cfg.limits(),
		draining: make(chan struct{}), closing: make(chan struct{}),
	}
	s.peers = peers.New(peers.Config{
		Connections: cfg.MaxConnections, AddressConnections: cfg.MaxAddressConnections, AddressStreams: cfg.MaxAddressStreams, AddressBytes: cfg.MaxAddressBytes,
	}, log)
	if err := s.identify(); err != nil {
		return nil, err
	}
	if s.metrics == nil {
		s.metrics = NewMetrics()
	}
	s.owners = newOwnership(s.metrics.ownerWait, cfg.Moved)
	s.chain = s.newChain()
	s.store = newStoreCollector(cfg.StatsInterval, s.heartbeats.Load)
	for _, c := range []prometheus.Collector{
		s.limits.Shed, s.peers.Refused, s.store, buildInfo(cfg.Version), newCertificateCollector(s.certificates),
	} {
		if err := s.metrics.registry.Register(c); err != nil {
			return nil, fmt.Errorf("server: Config.Metrics serve another server already: %w", err)
		}
	}
	s.grpc, s.api = grpc.NewServer(s.options()...), newHTTPAPI(&s.cfg, s.chain)
	s.register()
	s.http = s.newHTTP()
	if o != nil {
		s.Attach(o, 0)
	}
	return s, nil
}

// How much of one call, and of all calls of a connection, a client may send ahead. A stream that nobody reads holds no more
// than its window; one that is read gets room for the message that has begun. Fixed,
// since what grpc-go does otherwise is to estimate them by a ping for about each message
// that it receives: with a connection for each collector, as on machines of their own,
// that is a fifth of what a fetch costs the dispatcher, and a third of what it costs them.
const (
	streamWindow = 64 << 10
	connWindow   = 4 << 20
)

// maxHeaderBytes is what the headers of a call may have, since they come before it is known who calls.
const maxHeaderBytes = 64 << 10

// options of the gRPC server. The keepalive settings let clients keep idle connections open through proxies, and parked
// polls outlive the age of a connection.
func (s *Server) options() []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(s.cfg.MaxReceiveBytes + relay.MaxOverhead), // the codec has the limit of requests
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(s.cfg.MaxConcurrentStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: s.cfg.KeepaliveMinTime, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: s.cfg.KeepaliveTime, Timeout: s.cfg.KeepaliveTimeout,
			MaxConnectionAge: s.cfg.MaxConnectionAge, MaxConnectionAgeGrace: s.cfg.MaxConnectionAgeGrace,
		}),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
	}
	creds := insecure.NewCredentials()
	if s.plain() {
		creds = auth.Credentials(creds)
	} else {
		creds = peers.Credentials(auth.Credentials(credentials.NewTLS(s.certs.Config("h2"))))
	}
	options = append(options, grpc.Creds(creds))
	return slices.Concat(options, s.chain.tracer.options(), s.chain.options())
}

// plain reports whether gRPC is served without TLS.
func (s *Server) plain() bool {
	_, socket := socketPath(s.cfg.Listen)
	return s.certs == nil || socket
}

// identify reads what tells who calls, and what they may do.
func (s *Server) identify() (err error) {
	if s.cfg.TLSCertFile != "" {
		if s.certs, err = auth.LoadCertificates(s.cfg.TLSCertFile, s.cfg.TLSKeyFile, s.cfg.TLSClientCAFile, s.log); err != nil {
			return fmt.Errorf("server: Config.TLSCertFile: %w", err)
		}
	}
	if s.cfg.PolicyFile == "" {
		return nil
	}
	if s.guard, err = auth.NewGuard(s.cfg.PolicyFile, s.log); err != nil {
		return fmt.Errorf("server: Config.PolicyFile: %w", err)
	}
	return nil
}

// register registers every service, and health for each.
func (s *Server) register() {
	b := &s.backend
	dispatching := &dispatchService{
		backend: b, limits: s.limits, metrics: s.metrics, tracer: s.chain.tracer,
		heartbeats: &s.heartbeats, stopping: &s.stopping, closing: s.closing, grace: s.patience(),
	}
	tasks, sources := &taskService{backend: b}, &sourceService{backend: b}
	queues, holds := &queueService{backend: b}, &holdService{backend: b}
	admin := &adminService{backend: b, guard: s.guard, version: s.cfg.Version, started: time.Now(), heartbeats: &s.heartbeats}
	all := inChain{s.grpc, s.chain, s.api}
	pb.RegisterDispatchServiceServer(all, dispatching)
	pb.RegisterTaskServiceServer(all, tasks)
	pb.RegisterSourceServiceServer(all, sources)
	pb.RegisterQueueServiceServer(all, queues)
	pb.RegisterHoldServiceServer(all, holds)
	pb.RegisterAdminServiceServer(all, admin)
	var services []string
	for name := range s.grpc.GetServiceInfo() {
		services = append(services, name)
	}
	slices.Sort(services)
	s.health = newHealthLoop(s.cfg.HealthInterval, s.log, services, s.reach)
	grpc_health_v1.RegisterHealthServer(all, s.health.server)
	if s.cfg.Reflection {
		reflection.Register(inChain{s.grpc, s.chain, nil})
	}
	// Last, since it is for other dispatchers: it has no metrics, roles or health, is not shown by reflection, and proves itself.
	s.passed = &relay.Service{
		To: s.chain, MaxAge: s.cfg.MaxConnectionAge / 2, MaxBytes: s.cfg.MaxReceiveBytes + relay.MaxOverhead, Closing: s.closing, Trusted: peers.Trust,
	}
	relaypb.RegisterRelayServiceServer(s.grpc, s.passed)
}

// inChain registers services whose calls go through the chain.
type inChain struct {
	*grpc.Server
	chain *chain
	api   *httpAPI // nil: they are served by gRPC only
}

// GetServiceInfo are the services of the API, which reflection shows.
func (r inChain) GetServiceInfo() map[string]grpc.ServiceInfo {
	info := r.Server.GetServiceInfo()
	delete(info, relay.ServiceName)
	return info
}

// RegisterService registers a service.
func (r inChain) RegisterService(desc *grpc.ServiceDesc, service any) {
	r.Server.RegisterService(r.chain.decoded(desc), service)
	r.chain.takes(desc, service)
	if r.api != nil {
		r.api.register(desc, service)
	}
}

// Listen opens the listeners of the config, so that [Server.Address] and [Server.HTTPAddress] are known before
// [Server.Run]. A port in use is an error that names it, and the server cannot be used then.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpcListener != nil {
		return nil
	}
	grpcListener, err := listen(ctx, "Listen", s.cfg.Listen, s.socketMode())
	if err != nil {
		s.grpc.Stop() // a server that never serves gives its goroutines back, too
		return err
	}
	if s.cfg.HTTP != Off {
		if s.httpListener, err = listen(ctx, "HTTP", s.cfg.HTTP, 0); err != nil {
			s.grpc.Stop()
			return errors.Join(err, grpcListener.Close())
		}
	}
	s.grpcListener = grpcListener
	return nil
}

// Address is where gRPC is served; empty before [Server.Listen].
func (s *Server) Address() string { return s.address(&s.grpcListener) }

// HTTPAddress is where the API over HTTP, metrics and probes are served; empty before [Server.Listen], or when they are not.
func (s *Server) HTTPAddress() string { return s.address(&s.httpListener) }

func (s *Server) address(listener *net.Listener) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *listener == nil {
		return ""
	}
	return (*listener).Addr().String()
}
