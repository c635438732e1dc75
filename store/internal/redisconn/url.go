// Package redisconn connects to the Redis of a store URL: a single server, a Sentinel group or a Cluster. It also checks
// that this Redis can keep a store's promises.
package redisconn

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
	ioTimeout    = 3 * time.Second
	redisPort    = "6379"
	sentinelPort = "26379"
	// reloadInterval is the age at which the map of a Cluster is read again, and
	// failedReloadInterval the least time between reads for nodes that do not answer.
	// Shorter finds a promoted replica sooner, and costs the Cluster more reads.
	reloadInterval       = time.Second
	failedReloadInterval = 200 * time.Millisecond
	// mapTimeout is how long one node may take to give the map.
	mapTimeout = 300 * time.Millisecond
)

// urlForms is what the error about a wrong URL offers.
const urlForms = "redis://host:port/db, rediss://host:port/db, unix:///path?db=0, " +
	"redis+sentinel://host:port,host:port/master or redis+cluster://host:port,host:port"

// Target is what a store URL names.
type Target struct {
	Cluster bool     // its servers are nodes of a Cluster
	master  string   // its servers are Sentinels that know the primary of this name
	addrs   []string // of its servers, host:port; none of a unix socket
	options *redis.Options
	// Sentinels answer to a user of their own.
	sentinelUser, sentinelPassword string
}

// Parse reads a store URL. The error is [dispatch.ErrInvalid], and repeats no password.
func Parse(raw string) (*Target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: the store URL does not parse; it is one of %s", dispatch.ErrInvalid, urlForms)
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: store URL %q %s", dispatch.ErrInvalid, u.Redacted(), fmt.Sprintf(format, args...))
	}
	t, one, port := new(Target), *u, redisPort // one is the URL of one server, for go-redis
	switch u.Scheme {
	case "redis", "rediss", "unix":
	case "redis+sentinel", "rediss+sentinel":
		query := u.Query()
		t.sentinelUser, t.sentinelPassword = query.Get("sentinel_username"), query.Get("sentinel_password")
		query.Del("sentinel_username")
		query.Del("sentinel_password")
		u.RawQuery = query.Encode() // errors repeat it
		t.master, port = strings.Trim(u.Path, "/"), sentinelPort
		if t.master == "" || strings.Contains(t.master, "/") {
			return nil, fail("does not end in /<master>; it is one of %s", urlForms)
		}
		one.Path, one.RawQuery = "", u.RawQuery
	case "redis+cluster", "rediss+cluster":
		t.Cluster = true
	default:
		return nil, fmt.Errorf("%w: store URL scheme %q is unknown; it is one of %s", dispatch.ErrInvalid, u.Scheme, urlForms)
	}
	if u.Scheme != "unix" {
		for host := range strings.SplitSeq(u.Host, ",") {
			if host == "" || strings.HasPrefix(host, ":") {
				return nil, fail("names no host or an empty host; it is one of %s", urlForms)
			}
			if _, _, err := net.SplitHostPort(host); err != nil {
				host = net.JoinHostPort(strings.Trim(host, "[]"), port)
			}
			if err := checkPort(host); err != nil {
				return nil, fail("%v", err)
			}
			t.addrs = append(t.addrs, host)
		}
		if len(t.addrs) > 1 && !t.Cluster && t.master == "" {
			return nil, fail("names several hosts; it is one of %s", urlForms)
		}
		one.Scheme, _, _ = strings.Cut(u.Scheme, "+")
		one.Host = t.addrs[0]
	}
	if t.options, err = redis.ParseURL(one.String()); err != nil {
		return nil, fail("is wrong: %s", strings.TrimPrefix(err.Error(), "redis: "))
	}
	if t.Cluster && (strings.Trim(u.Path, "/") != "" || t.options.DB != 0) {
		return nil, fail("names a database; a Cluster has only database 0")
	}
	tune(t.options)
	return t, nil
}

// checkPort rejects an address with an invalid port, since a retry cannot help.
func checkPort(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || number == 0 {
		return fmt.Errorf("names a port that is none: that of %s is not 1 to 65535", addr)
	}
	return nil
}

// Connect makes a client that calls onConnect on each new connection. It does not dial.
func (t *Target) Connect(onConnect func(ctx context.Context, cn *redis.Conn) error) redis.UniversalClient {
	o := t.options
	if !t.Cluster && t.master == "" {
		o.OnConnect = onConnect
		return redis.NewClient(o)
	}
	many := &redis.UniversalOptions{
		Addrs: t.addrs, MasterName: t.master, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		OnConnect: onConnect, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		ClientName: o.ClientName, MaxRetries: o.MaxRetries, DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns,
		MaxActiveConns: o.MaxActiveConns, ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		PipelinePoolSize: o.PipelinePoolSize, DisableIdentity: o.DisableIdentity, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
	if t.Cluster {
		return newCluster(many.Cluster())
	}
	client := redis.NewFailoverClient(many.Failover())
	client.AddHook(noPrimary{t.master})
	return client
}

// noPrimary is a hook for Sentinels that know no primary of the name. go-redis then returns redis.Nil, which callers
// would take for an answer of the store; the hook returns a separate error.
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

// newCluster makes a client that soon knows of a failover. go-redis reads the map of the
// Cluster again each minute, and when a node redirects a command; a primary that died or froze
// redirects nothing. So its map is read again when a node cannot be dialed or does not answer, at
// most once each failedReloadInterval whatever number of calls fail, and each reloadInterval while
// there are calls. One read is under way at a time.
func newCluster(o *redis.ClusterOptions) *redis.ClusterClient {
	var client *redis.ClusterClient
	sometimes := rate.Sometimes{Interval: failedReloadInterval}
	reload := func(ctx context.Context) {
		sometimes.Do(func() { client.ReloadState(ctx) }) // it does not wait for the map
	}
	dial := redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	o.ClusterStateReloadInterval = reloadInterval
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			reload(ctx)
		}
		return conn, err
	}
	o.NewClient = func(o *redis.Options) *redis.Client {
		node := redis.NewClient(o)
		node.AddHook(nodeWatch{reload})
		return node
	}
	client = redis.NewClusterClient(o)
	return client
}

// nodeWatch is a hook of each node of a Cluster. A node that does not answer may be a primary no more. It
// must not delay the read of the map either, which go-redis asks a random node for.
type nodeWatch struct{ reload func(context.Context) }

// DialHook implements [redis.Hook].
func (nodeWatch) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (h nodeWatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "cluster" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, mapTimeout)
			defer cancel()
		}
		err := next(ctx, cmd)
		if isTimeout(err) && cmd.Name() != "cluster" {
			h.reload(ctx)
		}
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (nodeWatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// tune sets what Waggle needs, over any option of the URL. The client must not repeat scripts by itself: it would
// repeat them after errors that do not exclude that they have run.
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
