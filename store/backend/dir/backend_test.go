package dir_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
)

func kill(b backend.Backend) error { return b.(*dir.Backend).Kill() } //nolint:forcetypeassert // of these tests

// TestBackend holds a directory to the contract.
func TestBackend(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backendtest.Place {
		t.Helper()
		path := filepath.Join(t.TempDir(), "data")
		return backendtest.Place{
			Backend: func() backend.Backend { return storeConfig{Dir: path, SnapshotBytes: 1 << 10}.backend() },
			Kill:    kill, Archives: true,
			// A directory that is restored from a copy is another one under the same path.
			Lose: func() error {
				old := path + "-old"
				if err := os.Rename(path, old); err != nil {
					return err
				}
				return os.CopyFS(path, os.DirFS(old))
			},
			Renew: func() error {
				name := filepath.Join(path, "store.json")
				content, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				return os.WriteFile(name, []byte(strings.Replace(string(content), `_format":3`, `_format":4`, 1)), 0o600)
			},
		}
	})
}

// TestBackend_Disk holds a directory on a disk that fails and is full to the contract.
func TestBackend_Disk(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backendtest.Place {
		t.Helper()
		d := disktest.New(7)
		config, _ := onDisk(d)
		return backendtest.Place{
			Backend: func() backend.Backend { return config.backend() },
			Kill:    kill, Archives: true,
			Fail: func() { d.Fail(disktest.Sync, 0, syscall.EIO) },
			Fill: func(full bool) {
				d.SetCapacity(0)
				if full {
					d.SetCapacity(3 * smallSegments)
				}
			},
		}
	})
}
