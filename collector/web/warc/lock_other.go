//go:build !unix

package warc

import "os"

// lockFile does nothing where files cannot be locked as on Unix: there, one process at a time may use a collector id.
func lockFile(*os.File) (locked bool, err error) { return true, nil }
