package auth

import "golang.org/x/sys/unix"

func peerUser(fd int) (uint32, error) {
	found, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return found.Uid, nil
}
