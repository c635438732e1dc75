//go:build unix

package cli

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and group of another one.
func keepOwner(file *os.File, of fs.FileInfo) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	has, hasOK := info.Sys().(*syscall.Stat_t)
	wants, wantsOK := of.Sys().(*syscall.Stat_t)
	if !hasOK || !wantsOK || has.Uid == wants.Uid && has.Gid == wants.Gid {
		return nil
	}
	return file.Chown(int(wants.Uid), int(wants.Gid))
}
