package auth

import (
	"net"

	"golang.org/x/sys/unix"
)

// userOf is the user of the process at the other end of a Unix socket, as it was when that connected.
func userOf(socket *net.UnixConn) (user uint32, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var found *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { found, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
		return 0, controlErr
	}
	if err != nil {
		return 0, err
	}
	return found.Uid, nil
}
