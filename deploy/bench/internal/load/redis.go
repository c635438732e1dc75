package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/process"
)

// RedisSettings are the arguments of every redis-server that is measured, beside its directory, socket and ports.
func RedisSettings() []string { return []string{"--save", "", "--appendonly", "no"} }

// Stores of a dispatcher.
const (
	StoreRedis  = "redis"
	StoreMemory = "memory"
	StoreFile   = "file"
)

// Stores are all of them.
func Stores() []string { return []string{StoreRedis, StoreMemory, StoreFile} }

// StartRedis starts a node that has no dispatcher, and with another store than Redis no redis-server either.
func StartRedis(ctx context.Context, cfg Config) (*Node, error) {
	dir, err := os.MkdirTemp("", "waggle-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	n := &Node{dir: dir, store: StoreMemory}
	switch {
	case cfg.Store == StoreMemory:
	case cfg.Store == StoreFile:
		n.store = "file:" + filepath.Join(dir, "data")
	case cfg.TCP > 0:
		err = n.startTCP(ctx, cfg.TCP)
	default:
		err = n.startServer(ctx, "--port", "0")
		n.store = "unix://" + n.socket(0) + "?db=0"
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if n.redis != nil {
		n.RedisSocket = n.socket(0)
	}
	return n, nil
}

func (n *Node) socket(server int) string { return filepath.Join(n.dir, strconv.Itoa(server), "socket") }

// startServer starts one more redis-server.
func (n *Node) startServer(ctx context.Context, args ...string) error {
	i := len(n.redis)
	dir := filepath.Dir(n.socket(i))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for redis-server: %w", err)
	}
	args = append(append(RedisSettings(), "--dir", dir, "--unixsocket", n.socket(i)), args...)
	p, err := process.Start(dir, exec.CommandContext(ctx, "redis-server", args...))
	if err != nil {
		return err
	}
	n.redis = append(n.redis, p)
	return n.awaitRedis(ctx, i, func(client *redis.Client) error { return client.Ping(ctx).Err() })
}

// awaitRedis calls ready until it succeeds.
func (n *Node) awaitRedis(ctx context.Context, server int, ready func(*redis.Client) error) error {
	client := n.client(server)
	return errors.Join(n.redis[server].AwaitReady(ctx, func() error { return ready(client) }), client.Close())
}

// startTCP starts so many redis-servers on loopback, and makes a Cluster of them if they are several.
func (n *Node) startTCP(ctx context.Context, servers int) error {
	const host = "127.0.0.1"
	ports, err := freePorts(ctx, host, 2*servers) // each server's own and that of its Cluster bus
	if err != nil {
		return err
	}
	addresses := make([]string, servers)
	for i := range addresses {
		args := []string{"--bind", host, "--port", ports[2*i]}
		if servers > 1 {
			args = append(args, "--cluster-enabled", "yes", "--cluster-port", ports[2*i+1])
		}
		if err := n.startServer(ctx, args...); err != nil {
			return err
		}
		addresses[i] = net.JoinHostPort(host, ports[2*i])
	}
	if servers == 1 {
		n.store = "redis://" + addresses[0] + "/0"
		return nil
	}
	n.store = "redis+cluster://" + strings.Join(addresses, ",")
	return n.joinCluster(ctx, host, ports[0], ports[1])
}

// joinCluster gives each redis-server its part of the slots, and introduces the first one to the others.
func (n *Node) joinCluster(ctx context.Context, host, port, bus string) error {
	const slots = 16384
	servers := len(n.redis)
	for i := range servers {
		client := n.client(i)
		err := client.ClusterAddSlotsRange(ctx, i*slots/servers, (i+1)*slots/servers-1).Err()
		if i > 0 {
			err = errors.Join(err, client.Do(ctx, "CLUSTER", "MEET", host, port, bus).Err())
		}
		if err := errors.Join(err, client.Close()); err != nil {
			return fmt.Errorf("make a Cluster: %w", err)
		}
	}
	known := fmt.Sprintf("cluster_known_nodes:%d\r", servers)
	for i := range servers {
		err := n.awaitRedis(ctx, i, func(client *redis.Client) error {
			info, err := client.ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, known)) {
				err = errors.New(info)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// freePorts finds ports that nothing listens on.
func freePorts(ctx context.Context, host string, count int) ([]string, error) {
	var ports []string
	var listeners []net.Listener // all at once, so that each port is another one
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	for range count {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String()) // it has one
		ports, listeners = append(ports, port), append(listeners, l)
	}
	return ports, nil
}

// Client connects to the first redis-server. The caller closes it.
func (n *Node) Client() *redis.Client { return n.client(0) }

func (n *Node) client(server int) *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: n.socket(server), MaxRetries: -1})
}

// info reads a section of INFO of the first redis-server.
func (n *Node) info(ctx context.Context, section string) (fields map[string]string, err error) {
	client := n.Client()
	defer func() { err = errors.Join(err, client.Close()) }()
	info, err := client.InfoMap(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("read INFO: %w", err)
	}
	for _, fields = range info {
		return fields, nil // there is one section
	}
	return nil, fmt.Errorf("INFO %s is empty", section)
}

// Memory is how many bytes the first redis-server uses; 0 without one.
func (n *Node) Memory(ctx context.Context) (bytes int, err error) {
	if n.redis == nil {
		return 0, nil
	}
	fields, err := n.info(ctx, "memory")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields["used_memory"])
}

// Commands is how many commands the first redis-server has run, also those of scripts: all calls of INFO commandstats but
// those of INFO itself and of connecting. It is 0 without a Redis.
func (n *Node) Commands(ctx context.Context) (calls int, err error) {
	if n.redis == nil {
		return 0, nil
	}
	fields, err := n.info(ctx, "commandstats")
	for name, stats := range fields {
		switch name {
		case "cmdstat_info", "cmdstat_hello", "cmdstat_client|setinfo":
			continue
		}
		var n int
		if _, scanErr := fmt.Sscanf(stats, "calls=%d,", &n); scanErr != nil {
			return 0, fmt.Errorf("read INFO: %s:%s: %w", name, stats, scanErr)
		}
		calls += n
	}
	return calls, err
}
