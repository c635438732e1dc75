package collector

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

const (
	// A dispatcher that is frozen, or behind a network that drops everything, is left alone once a ping has no answer.
	// Servers answer pings that come more often than 5 s with GOAWAY; 10 s, the least that grpc sends, keeps well away.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second

	// maxReceive leaves room for 3 MiB of tasks beside the results of carried reports.
	maxReceive = 16 << 20

	// How much of one answer, and of all answers, a dispatcher may send ahead: a whole one. Fixed, since grpc-go would
	// otherwise ping the dispatcher for about each answer, to estimate them.
	streamWindow = 4 << 20
	connWindow   = 2 * streamWindow

	// serviceConfig spreads calls over all dispatchers. Repeating calls is ours: it needs the same tokens.
	serviceConfig = `{"loadBalancingConfig":[{"round_robin":{}}]}`

	staticScheme = "waggle-static"
)

// Dial makes a connection to the dispatchers as a Collector with this configuration has one: to all Targets in turn, by TLS or in
// plain text, with its token or without, each dispatcher under the name that its target has. It serves for calls of your own to the
// other services. The options are added to those of the connection. It reads the files, and fails if one cannot be read; its errors
// name the field. Nothing is sent before the first call.
func (c *Config) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if err := c.validateTargets(); err != nil {
		return nil, err
	}
	s, err := c.security()
	if err != nil {
		return nil, err
	}
	return c.dial(s, options...)
}

func (c *Config) dial(s security, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithUserAgent("waggle-collector"),
		grpc.WithPerRPCCredentials(clientName{}),
	}
	target := c.Targets[0]
	if len(c.Targets) > 1 {
		target = staticScheme + ":///" + c.Targets[0]
		options = append(options, grpc.WithResolvers(staticResolver(c.Targets)))
	}
	conn, err := grpc.NewClient(target, slices.Concat(options, s.options, c.DialOptions, more)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", strings.Join(c.Targets, ", "), err)
	}
	return conn, nil
}

// staticResolver knows a fixed list of dispatchers. Each connection needs one of its own.
func staticResolver(targets []string) *manual.Resolver {
	var state resolver.State
	for _, target := range targets {
		address := resolver.Address{Addr: target}
		if host, _, err := net.SplitHostPort(target); err == nil {
			address.ServerName = host // what the certificate must name
		}
		state.Addresses = append(state.Addresses, address)
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{address}})
	}
	r := manual.NewBuilderWithScheme(staticScheme)
	r.InitialState(state)
	return r
}
