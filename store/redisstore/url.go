package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	dialTimeout = 2 * time.Second
	// ioTimeout bounds the wait for one reply. The longest script takes a few
	// milliseconds.
	ioTimeout = 3 * time.Second
)

// urlForms is what the error about a wrong URL offers.
const urlForms = "redis://host:port/db, rediss://host:port/db, unix:///path?db=0, " +
	"redis+sentinel://host:port,host:port/master or redis+cluster://host:port,host:port"

// connector makes a client whose connections begin with onConnect.
type connector func(onConnect func(ctx context.Context, cn *redis.Conn) error) redis.UniversalClient

// parseURL reads a store URL. cluster tells that it names a Cluster.
func parseURL(raw string) (connect connector, cluster bool, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The text of the error repeats the URL, and with it a password.
		return nil, false, fmt.Errorf("%w: the store URL does not parse; it is one of %s", dispatch.ErrInvalid, urlForms)
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
	return nil, false, fmt.Errorf("%w: store URL scheme %q is unknown; it is one of %s", dispatch.ErrInvalid, u.Scheme, urlForms)
}

func parseSingle(u *url.URL) (connector, bool, error) {
	if u.Scheme != "unix" && u.Hostname() == "" {
		return nil, false, fmt.Errorf("%w: store URL %q names no host; it is one of %s", dispatch.ErrInvalid, u.Redacted(), urlForms)
	}
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, false, fmt.Errorf("%w: store URL %q: %s", dispatch.ErrInvalid, u.Redacted(), strings.TrimPrefix(err.Error(), "redis: "))
	}
	tune(o)
	return func(onConnect func(context.Context, *redis.Conn) error) redis.UniversalClient {
		o.OnConnect = onConnect
		return redis.NewClient(o)
	}, false, nil
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

func parseSentinel(u *url.URL, secure bool) (connector, bool, error) {
	query := u.Query()
	user, password := query.Get("sentinel_username"), query.Get("sentinel_password")
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	u.RawQuery = query.Encode()
	o, addrs, master, err := parseMany(u, secure, "26379")
	if err != nil {
		return nil, false, err
	}
	if master == "" || strings.Contains(master, "/") {
		return nil, false, fmt.Errorf("%w: store URL %q does not end in /<master>; it is one of %s", dispatch.ErrInvalid, u.Redacted(), urlForms)
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
	return func(onConnect func(context.Context, *redis.Conn) error) redis.UniversalClient {
		failover.OnConnect = onConnect
		return redis.NewFailoverClient(failover)
	}, false, nil
}

func parseCluster(u *url.URL, secure bool) (connector, bool, error) {
	o, addrs, path, err := parseMany(u, secure, "6379")
	if err != nil {
		return nil, false, err
	}
	if path != "" || o.DB != 0 {
		return nil, false, fmt.Errorf("%w: store URL %q names a database; a Cluster has only database 0", dispatch.ErrInvalid, u.Redacted())
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
	return func(onConnect func(context.Context, *redis.Conn) error) redis.UniversalClient {
		cluster.OnConnect = onConnect
		return redis.NewClusterClient(cluster)
	}, true, nil
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
