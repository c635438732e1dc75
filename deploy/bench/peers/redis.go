package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// redisSettings are those that waggle bench gives its redis-server, too.
func redisSettings() []string {
	return []string{"--port", "0", "--save", "", "--appendonly", "no", "--slowlog-log-slower-than", "5000", "--slowlog-max-len", "100000"}
}

// withRedis runs f beside an empty redis-server of its own, and ends that.
func withRedis(ctx context.Context, f func(socket string) (rate, error)) (rate, error) {
	dir, err := os.MkdirTemp("", "waggle-peers-")
	if err != nil {
		return rate{}, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the system's temporary directory
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.CommandContext(ctx, "redis-server", append(redisSettings(), "--unixsocket", socket, "--dir", dir)...)
	if err := cmd.Start(); err != nil {
		return rate{}, fmt.Errorf("start redis-server: %w", err)
	}
	defer func() {
		// It keeps nothing, and may have gone with ctx.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(10 * time.Second); ; <-look.C {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close() // nothing was sent
			return f(socket)
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return rate{}, fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}
