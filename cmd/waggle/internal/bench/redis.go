package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// clusterNodes is how many nodes a Cluster has at least.
	clusterNodes = 3
	// hashSlots is how many slots the nodes of a Cluster share.
	hashSlots = 16384
)

// privateRedis is a Redis of the bench's own: one node, or those of a Cluster.
type privateRedis struct {
	dir     string
	url     string // for a dispatcher
	nodes   []*process
	clients []*redis.Client // one for each node
}

// startRedis starts one redis-server that listens on a unix socket only.
func startRedis(ctx context.Context) (*privateRedis, error) {
	r, err := newPrivateRedis()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(r.dir, "redis.sock")
	r.url = "unix://" + socket + "?db=0"
	if err := r.startNode(ctx, r.dir, r.url, "--port", "0", "--unixsocket", socket); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// startCluster starts a Redis Cluster of three nodes on free ports of loopback.
func startCluster(ctx context.Context) (*privateRedis, error) {
	r, err := newPrivateRedis()
	if err != nil {
		return nil, err
	}
	if err := r.joinNodes(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func newPrivateRedis() (*privateRedis, error) {
	dir, err := os.MkdirTemp("", "waggle-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	return &privateRedis{dir: dir}, nil
}

// joinNodes starts the nodes, shares the slots out, and waits until every node
// knows of all.
func (r *privateRedis) joinNodes(ctx context.Context) error {
	ports, err := freePorts(ctx, 2*clusterNodes)
	if err != nil {
		return err
	}
	var addresses []string
	for i := range clusterNodes {
		port, bus := ports[2*i], ports[2*i+1]
		dir := filepath.Join(r.dir, fmt.Sprintf("node%d", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("make a directory for redis-server: %w", err)
		}
		addresses = append(addresses, "127.0.0.1:"+port)
		if err := r.startNode(ctx, dir, "redis://127.0.0.1:"+port, "--bind", "127.0.0.1", "--port", port,
			"--cluster-enabled", "yes", "--cluster-port", bus); err != nil {
			return err
		}
		if err := r.clients[i].ClusterAddSlotsRange(ctx, i*hashSlots/clusterNodes, (i+1)*hashSlots/clusterNodes-1).Err(); err != nil {
			return fmt.Errorf("share the slots out: %w", err)
		}
		if err := r.clients[0].Do(ctx, "CLUSTER", "MEET", "127.0.0.1", port, bus).Err(); err != nil {
			return fmt.Errorf("join the nodes: %w", err)
		}
	}
	r.url = "redis+cluster://" + strings.Join(addresses, ",")
	return until(ctx, "the nodes do not form a Cluster", func() error {
		for _, c := range r.clients {
			info, err := c.ClusterInfo(ctx).Result()
			if err != nil {
				return fmt.Errorf("read CLUSTER INFO: %w", err)
			}
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_size:%d", clusterNodes)) {
				return errors.New(info)
			}
		}
		return nil
	})
}

// startNode starts a redis-server that keeps nothing on disk, and waits until it answers.
func (r *privateRedis) startNode(ctx context.Context, dir, url string, args ...string) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("redis-server is not installed (apt-get install redis-server); --store memory needs none")
	}
	p := &process{name: "redis-server"}
	p.cmd = exec.CommandContext(ctx, path, append(append(args, "--dir", dir, "--save", "", "--appendonly", "no"), slowArgs()...)...)
	p.cmd.Stderr, p.cmd.Stdout = &p.stderr, &p.stderr
	tie(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	r.nodes = append(r.nodes, p)
	client, err := newRedis(url)
	if err != nil {
		return err
	}
	r.clients = append(r.clients, client)
	if err := until(ctx, "redis-server does not answer", func() error { return client.Ping(ctx).Err() }); err != nil {
		return fmt.Errorf("%w\n%s", err, p.stderr.String())
	}
	return nil
}

// close ends the nodes and removes what they left.
func (r *privateRedis) close() {
	if r == nil {
		return
	}
	for _, c := range r.clients {
		_ = c.Close() // nothing is pending
	}
	for _, p := range r.nodes {
		p.kill()
	}
	_ = os.RemoveAll(r.dir) // what is left is in the system's temporary directory
}

// each does something at every node; a Redis that was not started has none.
func (r *privateRedis) each(do func(*redis.Client) error) error {
	if r == nil {
		return nil
	}
	for _, c := range r.clients {
		if err := do(c); err != nil {
			return err
		}
	}
	return nil
}

// describe is the version and what stands around it.
func (r *privateRedis) describe(ctx context.Context) (string, error) {
	info, err := r.clients[0].Info(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("read INFO: %w", err)
	}
	_, version, _ := strings.Cut(info, "redis_version:")
	version, _, _ = strings.Cut(version, "\r")
	return version + ", private, no persistence", nil
}

func newRedis(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis URL: %w", err)
	}
	o.MaxRetries = -1
	o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}

// until repeats what fails until it does not, for at most startLimit.
func until(ctx context.Context, failing string, do func() error) error {
	for deadline := time.Now().Add(startLimit); ; {
		err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", failing, err)
		}
		wait(ctx, 10*time.Millisecond)
	}
}

// freePorts finds ports of loopback that nobody uses.
func freePorts(ctx context.Context, n int) (ports []string, err error) {
	// All are held until the last is found, so that none is found twice.
	var held []net.Listener
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, l)
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		ports = append(ports, port)
	}
	return ports, nil
}
