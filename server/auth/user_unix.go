//go:build linux || darwin

package auth

import "net"

// userOf is the user of the process at the other end of a Unix socket, as it was when that connected.
func userOf(socket *net.UnixConn) (user uint32, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	if controlErr := raw.Control(func(fd uintptr) { user, err = peerUser(int(fd)) }); controlErr != nil {
		return 0, controlErr
	}
	return user, err
}
