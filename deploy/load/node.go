package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config is how a Node is started.
type Config struct {
	// Program is the waggle command. Required.
	Program string
	// Memory: the store is the dispatcher's memory instead of a Redis.
	Memory bool
	// Processors is the dispatcher's GOMAXPROCS; 0: all.
	Processors int
}

// Node is a dispatcher and its Redis, processes of their own on an empty store.
type Node struct {
	// Address is where the dispatcher serves gRPC.
	Address string
	// RedisSocket is the path of Redis' unix socket; empty with Config.Memory.
	RedisSocket string

	dir               string
	redis, dispatcher *process
}

// RedisSettings are the arguments of every redis-server that is measured, beside its directory and socket.
func RedisSettings() []string {
	return []string{"--port", "0", "--save", "", "--appendonly", "no"}
}

// StartRedis starts a node that has no dispatcher; without it starts no Redis either.
func StartRedis(ctx context.Context, without bool) (*Node, error) {
	dir, err := os.MkdirTemp("", "waggle-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	n := &Node{dir: dir}
	if without {
		return n, nil
	}
	n.RedisSocket = filepath.Join(dir, "redis.sock")
	n.redis, err = start(ctx, dir, "redis-server", os.Environ(), append(RedisSettings(), "--dir", dir, "--unixsocket", n.RedisSocket)...)
	if err == nil {
		client := n.Client()
		err = errors.Join(n.redis.awaitReady(ctx, func() error { return client.Ping(ctx).Err() }), client.Close())
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) startDispatcher(ctx context.Context, cfg Config) (err error) {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "WAGGLE_") {
			env = append(env, variable)
		}
	}
	if cfg.Processors > 0 {
		env = append(env, "GOMAXPROCS="+strconv.Itoa(cfg.Processors))
	}
	store := "memory"
	if !cfg.Memory {
		store = "unix://" + n.RedisSocket + "?db=0"
	}
	n.dispatcher, err = start(ctx, n.dir, cfg.Program, env,
		"serve", "--listen", "127.0.0.1:0", "--http", "off", "--store", store, "--log-format", "json")
	if err != nil {
		return err
	}
	return n.dispatcher.awaitReady(ctx, func() (err error) {
		n.Address, err = listening(n.dispatcher.log)
		return err
	})
}

// listening reads from the log of a dispatcher where it serves gRPC.
func listening(log string) (address string, err error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return "", fmt.Errorf("read the log: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var entry struct{ Msg, GRPC string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "listening" {
			return entry.GRPC, nil
		}
	}
	return "", errors.New("the log has no line \"listening\"")
}

// CPU is processor time.
type CPU struct {
	// Dispatcher and Redis are the two processes.
	Dispatcher, Redis time.Duration
}

// Total is that of dispatcher and Redis together.
func (c CPU) Total() time.Duration { return c.Dispatcher + c.Redis }

// Used returns the processor time that dispatcher and Redis use while f runs; 0 if the system does not report it.
func (n *Node) Used(f func() error) (CPU, error) {
	before, err := n.cpu()
	if err == nil {
		err = f()
	}
	if err != nil {
		return CPU{}, err
	}
	after, err := n.cpu()
	return CPU{Dispatcher: after.Dispatcher - before.Dispatcher, Redis: after.Redis - before.Redis}, err
}

func (n *Node) cpu() (CPU, error) {
	dispatcher, err := n.dispatcher.cpu()
	redis, failed := n.redis.cpu()
	return CPU{Dispatcher: dispatcher, Redis: redis}, errors.Join(err, failed)
}

// Client connects to the Redis. The caller closes it.
func (n *Node) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: n.RedisSocket, MaxRetries: -1})
}

// Memory is how many bytes the Redis uses; 0 without one.
func (n *Node) Memory(ctx context.Context) (bytes int, err error) {
	if n.redis == nil {
		return 0, nil
	}
	client := n.Client()
	defer func() { err = errors.Join(err, client.Close()) }()
	info, err := client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("read INFO: %w", err)
	}
	return strconv.Atoi(info["Memory"]["used_memory"])
}

// Close ends the processes and removes what they wrote.
func (n *Node) Close() error {
	n.dispatcher.kill()
	n.redis.kill()
	return os.RemoveAll(n.dir)
}
