package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/console"
	"github.com/waggle-crawl/waggle/server/internal/admit"
)

// Off as an address opens no listener.
const Off = "off"

// Config of a [Server]. The zero value of a field is its default, which [Config.Validate] fills in.
type Config struct {
	// Listen is the address for gRPC: host:port, or unix:PATH. Default "127.0.0.1:7070". Port 0 takes a free one; see
	// [Server.Address]. Beyond the loopback it needs PolicyFile and TLS, or Insecure.
	Listen string
	// Advertise is the address under which other dispatchers of the store reach this one: host:port, or unix:PATH. Default: Listen,
	// which will not do if others are on other machines and Listen is of the loopback or of all interfaces.
	Advertise string
	// HigherEpoch is called when another dispatcher passes a call on and has seen a higher epoch than that of [Server.Attach]. It
	// reports whether this dispatcher owns the store under that epoch by now; else it is no owner any more. Default: it is none.
	HigherEpoch func(epoch uint64) bool
	// Feed serves the stream of a dispatcher that stands by for this one, until one of them ends it ([Server.StandBy]). Default: this one
	// has no standby.
	Feed func(ctx context.Context, stream FeedStream) error
	// Moved is called when the owner of the store did not take a call: another one is probably found soon.
	Moved func()
	// HTTP is the address for the API over HTTP, /metrics, /healthz and /readyz. Default "127.0.0.1:7080"; [Off] for none.
	// Beyond the loopback the API is served there only with PolicyFile and TLS, or Insecure.
	HTTP string
	// HTTPHosts are names, without a port, by which callers may reach the API over HTTP when there is no PolicyFile, beside
	// localhost and IP addresses. A page in a browser could else reach it by a name of its own. Default: none.
	HTTPHosts []string
	// TLSCertFile and TLSKeyFile are PEM files; with both, gRPC and HTTP are served over TLS only, but on a Unix socket. They
	// are read again within a second of a change. Default: no TLS.
	TLSCertFile, TLSKeyFile string
	// TLSClientCAFile has the PEM certificates of the authorities that sign certificates of clients. It is read again likewise.
	// Default: clients are not asked for certificates.
	TLSClientCAFile string
	// PolicyFile says who may do what; see package auth. It is read again within a second of a change. Default: whoever
	// connects may do everything.
	PolicyFile string
	// Insecure lets Listen be any address without PolicyFile or TLS. Default false.
	Insecure bool
	// MetricsToken lets only those read /metrics who send a token that may call GetStats.
	// Default false.
	MetricsToken bool
	// ReadSources reads the files of sources that people upload in the console. Default: they can upload none.
	ReadSources console.SourceReader
	// TracerProvider makes the spans of calls, grants and reports. Default: there are none, and they cost nothing.
	TracerProvider trace.TracerProvider
	// Version is what GetStats and the metrics show of the program. Default "unknown".
	Version string
	// Reflection lets grpcurl work without .proto files. With PolicyFile it needs a credential of any role. Default false.
	Reflection bool

	// MaxReceiveBytes of one request. Larger batches of submits and reports cost fewer round trips and more memory per
	// call. Default 4 MiB, which is also what the .proto files name; 64 KiB to 64 MiB.
	MaxReceiveBytes int
	// MaxFetches that are parked here at once, above which fetches answer TOO_MANY_WAITERS. Each costs some 16 KiB with
	// its connection's share, and with PolicyFile up to 30 KiB. Default 100,000.
	MaxFetches int
	// MaxFetchesPerCollector that one collector_id may have parked at once, so that one collector that loses its
	// replies and asks again cannot take all places. Default 100.
	MaxFetchesPerCollector int
	// MaxSubmits, MaxReads and MaxSteers are how many calls of these classes run at once: submits of tasks, lists and
	// lookups, and what operators change. Above it the class is shed with RATE_LIMITED. As many large submits may wait
	// to be decoded, behind 4 MiB of others. Higher lets bursts through and lets them slow reports down. Defaults 256,
	// 64, 64.
	MaxSubmits, MaxReads, MaxSteers int
	// Busy is how many calls may be at work (parked fetches are not) before the server sheds submits and reads; at
	// twice as many it sheds fetches. Renewals and reports are not shed for load, only above 64 MiB of requests of
	// their kind that are not answered yet. Default 1,000.
	Busy int
	// SubmitsPerSecond, FetchesPerSecond and ReadsPerSecond bound calls, each with bursts of one second's worth. A call
	// of SubmitTasks counts once, whatever it carries. Default 0: no bound.
	SubmitsPerSecond, FetchesPerSecond, ReadsPerSecond float64

	// KeepaliveMinTime is the least time between pings of a client; one that pings faster is sent away. Default 5 s:
	// half of what collectors ping at to find out that a dispatcher is frozen.
	KeepaliveMinTime time.Duration
	// KeepaliveTime of silence after which the server pings a client, and KeepaliveTimeout in which the answer must
	// come. Shorter frees the places of dead clients sooner. Defaults 30 s and 10 s.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// MaxConnectionAge after which a client is asked to connect anew, so that
	// dispatchers added later get their share. Default 30 min.
	MaxConnectionAge time.Duration
	// MaxConnectionAgeGrace is how long calls may go on after that; longer
	// than the longest poll (30 s), or polls would fail. Default 45 s.
	MaxConnectionAgeGrace time.Duration
	// MaxConcurrentStreams of one connection. Heartbeats share a connection with polls, so it must be higher than the
	// polls of a client, or of all clients behind a proxy. Default 4,000.
	MaxConcurrentStreams uint32
	// MaxConnections at once, and MaxAddressConnections of them from one address (of IPv6: from one /64). A new one above
	// it is closed. Each costs some 70 KiB. Defaults 20,000 and 2,000.
	MaxConnections, MaxAddressConnections int
	// MaxAddressStreams are how many calls and heartbeat streams the connections of one address may have open, and
	// MaxAddressBytes how many bytes they may hold by requests without an answer and by unread answers. A new stream above
	// it is refused with RATE_LIMITED, one that does not keep or settle leases at four fifths. Above MaxAddressBytes the
	// connection of the address that holds the most is closed. Defaults 10,000, and 64 MiB; 16 MiB to 64 GiB.
	MaxAddressStreams, MaxAddressBytes int

	// MaxNewCollectors are how many collector ids that were granted nothing yet one identity may use, or without PolicyFile
	// one address. An id with more than 2 KiB of labels and the like counts for more. Those above it are refused with
	// RATE_LIMITED, unless they hold a lease. One that is silent is forgotten after five minutes. Default 2,000.
	MaxNewCollectors int

	// DrainTimeout is how long calls may go on once the server is to stop. Default 20 s: below the 30 s after which
	// Kubernetes kills. The only dispatcher of a store takes reports until a twentieth of it has passed without one. While
	// collectors stop as well, it waits longer, at most for a quarter. A stream ends a twentieth after it was asked to reconnect.
	DrainTimeout time.Duration
	// HealthInterval between looks at the store. Default 2 s; a store that does not answer within it counts as away.
	HealthInterval time.Duration
	// StatsInterval is the least time between two counts of the store for
	// /metrics, however often it is scraped. Default 5 s.
	StatsInterval time.Duration

	// Metrics to serve; the ones that the dispatcher has as its Observer. One server only may have them. Default: new
	// ones, without what an Observer gets.
	Metrics *Metrics

	// LogCalls also logs calls that succeeded, at level info. Default false: they are logged at level debug.
	LogCalls bool
	// LogBurst is how many lines about calls are logged in a second and level before only each hundredth is; those of
	// operators' changes all are. Default 100.
	LogBurst int
}

// Validate reports the first field that cannot be worked with, and fills defaults in.
func (c *Config) Validate() error {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:7070")
	c.HTTP = cmp.Or(c.HTTP, "127.0.0.1:7080")
	c.Version = cmp.Or(c.Version, "unknown")
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		return fmt.Errorf("server: Config.TLSCertFile is %q and TLSKeyFile %q; both or neither must be set", c.TLSCertFile, c.TLSKeyFile)
	}
	if path, socket := socketPath(c.Listen); socket && path == "" || !socket && !isAddress(c.Listen) {
		return fmt.Errorf("server: Config.Listen is %q; it must be host:port, with a port of 0 to 65535, or unix:PATH", c.Listen)
	}
	if path, socket := socketPath(c.Advertise); c.Advertise != "" && (socket && path == "" || !socket && !isAddress(c.Advertise)) {
		return fmt.Errorf("server: Config.Advertise is %q; it must be host:port, with a port of 0 to 65535, or unix:PATH", c.Advertise)
	}
	if err := c.identity(); err != nil {
		return err
	}
	if c.HTTP != Off && !isAddress(c.HTTP) {
		return fmt.Errorf("server: Config.HTTP is %q; it must be host:port, with a port of 0 to 65535, or %q", c.HTTP, Off)
	}
	for i, host := range c.HTTPHosts {
		if host == "" || strings.ContainsAny(host, ":/ ") {
			return fmt.Errorf("server: Config.HTTPHosts[%d] is %q; it must be a name of a host, without a port", i, host)
		}
	}
	return c.numbers()
}

// identity checks that nobody is let in unseen.
func (c *Config) identity() error {
	switch {
	case c.TLSClientCAFile != "" && c.TLSCertFile == "":
		return fmt.Errorf("server: Config.TLSClientCAFile is %q without TLSCertFile; certificates of clients need TLS", c.TLSClientCAFile)
	case c.TLSClientCAFile != "" && c.PolicyFile == "":
		return fmt.Errorf("server: Config.TLSClientCAFile is %q without PolicyFile, which says who may do what", c.TLSClientCAFile)
	case c.MetricsToken && c.PolicyFile == "":
		return fmt.Errorf("server: Config.MetricsToken is set without PolicyFile, which has the tokens")
	case c.Insecure || auth.IsLocal(c.Listen):
		return nil
	case c.PolicyFile == "":
		return fmt.Errorf("server: Config.Listen is %q, which other machines reach, and without PolicyFile anyone there may do everything; "+
			"set PolicyFile with TLSCertFile and TLSKeyFile, or set Insecure if the network keeps all others out", c.Listen)
	case c.TLSCertFile == "":
		return fmt.Errorf("server: Config.Listen is %q, which other machines reach, and without TLS tokens are sent in plain text; "+
			"set TLSCertFile and TLSKeyFile, or set Insecure if the network keeps all others out", c.Listen)
	}
	return nil
}

// servesOverHTTP reports whether nobody is let in unseen at the address for HTTP.
func (c *Config) servesOverHTTP() bool {
	return c.Insecure || auth.IsLocal(c.HTTP) || c.PolicyFile != "" && c.TLSCertFile != ""
}

// isAddress reports whether an address has the form of one to listen on.
func isAddress(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// numbers fills the defaults of numeric fields, and checks all of them.
func (c *Config) numbers() error {
	const most = 1 << 30 // where nothing else bounds a field
	return cmp.Or(
		number("MaxReceiveBytes", &c.MaxReceiveBytes, 4<<20, 64<<10, 64<<20),
		number("MaxFetches", &c.MaxFetches, 100_000, 1, most),
		number("MaxFetchesPerCollector", &c.MaxFetchesPerCollector, 100, 1, most),
		number("MaxSubmits", &c.MaxSubmits, 256, 1, most),
		number("MaxReads", &c.MaxReads, 64, 1, most),
		number("MaxSteers", &c.MaxSteers, 64, 1, most),
		number("Busy", &c.Busy, 1000, 1, most),
		number("LogBurst", &c.LogBurst, 100, 1, most),
		number("SubmitsPerSecond", &c.SubmitsPerSecond, 0, 0, most),
		number("FetchesPerSecond", &c.FetchesPerSecond, 0, 0, most),
		number("ReadsPerSecond", &c.ReadsPerSecond, 0, 0, most),
		number("MaxConcurrentStreams", &c.MaxConcurrentStreams, 4000, 1, most),
		number("MaxConnections", &c.MaxConnections, 20_000, 1, most),
		number("MaxAddressConnections", &c.MaxAddressConnections, 2000, 1, most),
		number("MaxAddressStreams", &c.MaxAddressStreams, 10_000, 1, most),
		number("MaxAddressBytes", &c.MaxAddressBytes, 64<<20, 16<<20, 64<<30),
		number("MaxNewCollectors", &c.MaxNewCollectors, 2000, 1, most),
		number("KeepaliveMinTime", &c.KeepaliveMinTime, 5*time.Second, time.Second, time.Hour),
		number("KeepaliveTime", &c.KeepaliveTime, 30*time.Second, time.Second, 24*time.Hour),
		number("KeepaliveTimeout", &c.KeepaliveTimeout, 10*time.Second, time.Second, time.Hour),
		number("MaxConnectionAge", &c.MaxConnectionAge, 30*time.Minute, time.Minute, 24*time.Hour),
		number("MaxConnectionAgeGrace", &c.MaxConnectionAgeGrace, 45*time.Second, bounds.MaxWait+time.Second, time.Hour),
		number("DrainTimeout", &c.DrainTimeout, 20*time.Second, 10*time.Millisecond, time.Hour),
		number("HealthInterval", &c.HealthInterval, 2*time.Second, 10*time.Millisecond, time.Minute),
		number("StatsInterval", &c.StatsInterval, 5*time.Second, time.Millisecond, time.Hour),
	)
}

// number fills a field that is zero with its default, and checks its range.
func number[N cmp.Ordered](field string, value *N, or, least, most N) error {
	if *value = cmp.Or(*value, or); *value < least || *value > most {
		return fmt.Errorf("server: Config.%s is %v; it must be %v to %v", field, *value, least, most)
	}
	return nil
}

// limits are the bounds of calls.
func (c *Config) limits() *admit.Limits {
	return admit.New(admit.Config{
		Fetches: c.MaxFetches, FetchesPerCollector: c.MaxFetchesPerCollector,
		Submits: c.MaxSubmits, Reads: c.MaxReads, Steers: c.MaxSteers, Busy: c.Busy,
		SubmitsPerSecond: c.SubmitsPerSecond, FetchesPerSecond: c.FetchesPerSecond, ReadsPerSecond: c.ReadsPerSecond,
	})
}
