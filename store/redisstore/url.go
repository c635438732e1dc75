package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/time/rate"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	dialTimeout = 2 * time.Second
	// ioTimeout bounds the wait for one reply. The longest script takes a few
	// milliseconds.
	ioTimeout   = 3 * time.Second
	defaultPort = "6379"
	// reloadInterval is the age at which the map of a Cluster is read again, and
	// dialReloadInterval the least time between reads for nodes that cannot be dialed.
	// Shorter finds a promoted replica sooner, and costs the Cluster more reads.
	reloadInterval     = time.Second
	dialReloadInterval = 200 * time.Millisecond
)

// urlForms is what the error about a wrong URL offers.
const urlForms = "redis://host:port/db, rediss://host:port/db, unix:///path?db=0, " +
	"redis+sentinel://host:port,host:port/master or redis+cluster://host:port,host:port"

// target is what a store URL names.
type target struct {
	// connect makes a client whose connections begin with onConnect.
	connect func(onConnect func(ctx context.Context, cn *redis.Conn) error) redis.UniversalClient
	addrs   []string // of its servers, host:port; none of a unix socket
	// cluster: they are nodes of a Cluster. sentinel: they are Sentinels. Either way the
	// client follows failovers.
	cluster, sentinel bool
}

// parseURL reads a store URL.
func parseURL(raw string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The text of the error repeats the URL, and with it a password.
		return nil, fmt.Errorf("%w: the store URL does not parse; it is one of %s", dispatch.ErrInvalid, urlForms)
	}
	kind, secure := strings.TrimPrefix(u.Scheme, "redis"), false
	if rest, ok := strings.CutPrefix(u.Scheme, "rediss"); ok {
		kind, secure = rest, true
	}
	switch {
	case u.Scheme == "unix", (u.Scheme == "redis" || u.Scheme == "rediss"):
		return parseSingle(u)
	case kind == "+sentinel":
		return parseSentinel(u, secure)
	case kind == "+cluster":
		return parseCluster(u, secure)
	}
	return nil, fmt.Errorf("%w: store URL scheme %q is unknown; it is one of %s", dispatch.ErrInvalid, u.Scheme, urlForms)
}

func parseSingle(u *url.URL) (*target, error) {
	var addrs []string
	if u.Scheme != "unix" {
		if u.Hostname() == "" {
			return nil, fmt.Errorf("%w: store URL %q names no host; it is one of %s", dispatch.ErrInvalid, u.Redacted(), urlForms)
		}
		addrs = []string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPort))}
	}
	if err := checkPorts(u, addrs); err != nil {
		return nil, err
	}
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("%w: store URL %q: %s", dispatch.ErrInvalid, u.Redacted(), strings.TrimPrefix(err.Error(), "redis: "))
	}
	tune(o)
	return &target{addrs: addrs, connect: func(onConnect func(context.Context, *redis.Conn) error) redis.UniversalClient {
		o.OnConnect = onConnect
		return redis.NewClient(o)
	}}, nil
}

// checkPorts refuses an address whose port is none: no waiting would mend it.
func checkPorts(u *url.URL, addrs []string) error {
	for _, addr := range addrs {
		_, port, err := net.SplitHostPort(addr)
		number, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || number == 0 {
			return fmt.Errorf("%w: store URL %q: the port of %s is not 1 to 65535", dispatch.ErrInvalid, u.Redacted(), addr)
		}
	}
	return nil
}

// parseMany reads the options that all servers of the URL share, and their
// addresses. master is the path.
func parseMany(u *url.URL, secure bool, port string) (o *redis.Options, addrs []string, master string, err error) {
	for host := range strings.SplitSeq(u.Host, ",") {
		if host == "" || strings.HasPrefix(host, ":") {
			return nil, nil, "", fmt.Errorf("%w: store URL %q names an empty host; it is one of %s", dispatch.ErrInvalid, u.Redacted(), urlForms)
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		addrs = append(addrs, host)
	}
	if err := checkPorts(u, addrs); err != nil {
		return nil, nil, "", err
	}
	single := url.URL{Scheme: "redis", User: u.User, Host: addrs[0], RawQuery: u.RawQuery}
	if secure {
		single.Scheme = "rediss"
	}
	if o, err = redis.ParseURL(single.String()); err != nil {
		return nil, nil, "", fmt.Errorf("%w: store URL %q: %s", dispatch.ErrInvalid, u.Redacted(), strings.TrimPrefix(err.Error(), "redis: "))
	}
	tune(o)
	return o, addrs, strings.Trim(u.Path, "/"), nil
}

func parseSentinel(u *url.URL, secure bool) (*target, error) {
	query := u.Query()
	user, password := query.Get("sentinel_username"), query.Get("sentinel_password")
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	u.RawQuery = query.Encode()
	o, addrs, master, err := parseMany(u, secure, "26379")
	if err != nil {
		return nil, err
	}
	if master == "" || strings.Contains(master, "/") {
		return nil, fmt.Errorf("%w: store URL %q does not end in /<master>; it is one of %s", dispatch.ErrInvalid, u.Redacted(), urlForms)
	}
	failover := &redis.FailoverOptions{
		MasterName: master, SentinelAddrs: addrs, SentinelUsername: user, SentinelPassword: password,
		Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		ClientName: o.ClientName, MaxRetries: o.MaxRetries, DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns,
		MaxActiveConns: o.MaxActiveConns, ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		PipelinePoolSize: o.PipelinePoolSize, DisableIdentity: true,
	}
	return &target{addrs: addrs, sentinel: true, connect: func(onConnect func(context.Context, *redis.Conn) error) redis.UniversalClient {
		failover.OnConnect = onConnect
		client := redis.NewFailoverClient(failover)
		client.AddHook(noPrimary{master})
		return client
	}}, nil
}

// noPrimary is a hook that makes an error of its own of what go-redis tells when the
// Sentinels know no primary of the name: that is the nil with which they answered, which
// callers would take for an answer of the store.
type noPrimary struct{ name string }

// DialHook implements [redis.Hook].
func (h noPrimary) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if errors.Is(err, redis.Nil) {
			err = &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("the Sentinels know no primary %q", h.name)}
		}
		return conn, err
	}
}

// ProcessHook implements [redis.Hook].
func (noPrimary) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (noPrimary) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func parseCluster(u *url.URL, secure bool) (*target, error) {
	o, addrs, path, err := parseMany(u, secure, defaultPort)
	if err != nil {
		return nil, err
	}
	if path != "" || o.DB != 0 {
		return nil, fmt.Errorf("%w: store URL %q names a database; a Cluster has only database 0", dispatch.ErrInvalid, u.Redacted())
	}
	cluster := &redis.ClusterOptions{
		Addrs: addrs, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		ClientName: o.ClientName, MaxRetries: o.MaxRetries, DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns,
		MaxActiveConns: o.MaxActiveConns, ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		PipelinePoolSize: o.PipelinePoolSize, DisableIdentity: true,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
	return &target{addrs: addrs, cluster: true, connect: func(onConnect func(context.Context, *redis.Conn) error) redis.UniversalClient {
		cluster.OnConnect = onConnect
		return newCluster(cluster)
	}}, nil
}

// newCluster makes a client that soon knows of a failover. go-redis reads the map of the
// Cluster again each minute, and when a node redirects a command; a primary that died
// redirects nothing. So its map is read again when a node cannot be dialed, at most once each
// dialReloadInterval whatever number of calls fail, and each reloadInterval while there are calls.
// One read is under way at a time.
func newCluster(o *redis.ClusterOptions) *redis.ClusterClient {
	var client *redis.ClusterClient
	reload := rate.Sometimes{Interval: dialReloadInterval}
	dial := redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	o.ClusterStateReloadInterval = reloadInterval
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			reload.Do(func() { client.ReloadState(ctx) }) // it does not wait for the map
		}
		return conn, err
	}
	client = redis.NewClusterClient(o) // it dials nothing yet
	return client
}

// tune sets what Waggle needs whatever the URL says. The client must not repeat
// scripts by itself: it would do so for errors after which they have run, and
// never say so.
func tune(o *redis.Options) {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.PipelinePoolSize = -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, ioTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, ioTimeout)
}
