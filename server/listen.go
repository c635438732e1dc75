package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// socketPath is the path of an address that is a Unix socket's.
func socketPath(address string) (path string, socket bool) {
	return strings.CutPrefix(address, "unix:")
}

// socketMode is who may connect to a Unix socket: without a policy, the user of the dispatcher only.
func (s *Server) socketMode() os.FileMode {
	if s.guard == nil {
		return 0o600
	}
	return 0o666
}

func listen(ctx context.Context, field, address string, mode os.FileMode) (net.Listener, error) {
	network := "tcp"
	if path, socket := socketPath(address); socket {
		network, address = "unix", path
		removeStale(ctx, path)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, network, address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("server: Config.%s: %s is in use by another program; stop it, or choose another port: %w", field, address, err)
	}
	if err == nil && network == "unix" {
		// With a policy any user may connect, and the policy has those who may call.
		if err = os.Chmod(address, mode); err != nil {
			err = errors.Join(err, listener.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("server: Config.%s: listen on %q: %w", field, address, err)
	}
	return listener, nil
}

// removeStale removes a Unix socket that a server has left behind that did not end in order: nobody accepts on it.
func removeStale(ctx context.Context, path string) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // nothing was sent
		return
	}
	if info, statErr := os.Lstat(path); errors.Is(err, syscall.ECONNREFUSED) && statErr == nil && info.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path) // what stays is in use, which Listen reports
	}
}
