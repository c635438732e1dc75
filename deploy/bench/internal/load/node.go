package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/process"
)

// Config is how a Node is started.
type Config struct {
	// Program is the waggle command. Required.
	Program string
	// Store is what the dispatcher keeps everything in; empty: StoreRedis.
	Store string
	// Fsync is the dispatcher's --fsync, with StoreFile; empty: its default.
	Fsync string
	// Processors is the dispatcher's GOMAXPROCS; 0: all.
	Processors int
	// TCP is how many redis-servers on loopback take the place of one on a unix socket; from 2 on they are a Cluster.
	TCP int
}

// Node is a dispatcher and its Redis, processes of their own on an empty store.
type Node struct {
	// Address is where the dispatcher serves gRPC.
	Address string
	// RedisSocket is the unix socket of the first redis-server; empty with another store.
	RedisSocket string

	dir, store string // store is the URL for the dispatcher
	redis      []*process.Process
	dispatcher *process.Process
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
	args := []string{"serve", "--listen", "127.0.0.1:0", "--http", "off", "--store", n.store, "--log-format", "json"}
	if cfg.Fsync != "" {
		args = append(args, "--fsync", cfg.Fsync)
	}
	cmd := exec.CommandContext(ctx, cfg.Program, args...)
	cmd.Env = env
	n.dispatcher, err = process.Start(n.dir, cmd)
	if err != nil {
		return err
	}
	return n.dispatcher.AwaitReady(ctx, func() (err error) {
		n.Address, err = listening(n.dispatcher.Log)
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
	// Redis is that of all redis-servers.
	Dispatcher, Redis time.Duration
}

// Total is that of dispatcher and Redis together.
func (c CPU) Total() time.Duration { return c.Dispatcher + c.Redis }

// Used returns the processor time that dispatcher and Redis use while f runs.
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

func (n *Node) cpu() (used CPU, err error) {
	used.Dispatcher, err = n.dispatcher.CPU()
	for _, p := range n.redis {
		more, failed := p.CPU()
		used.Redis, err = used.Redis+more, errors.Join(err, failed)
	}
	return used, err
}

// Close ends the processes and removes what they wrote.
func (n *Node) Close() error {
	n.dispatcher.Stop()
	for _, p := range n.redis {
		p.Stop()
	}
	return os.RemoveAll(n.dir)
}
