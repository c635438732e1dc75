package dir

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

const (
	// identityName is the file that makes a directory one of ours.
	identityName = "store.json"
	// formatVersion is raised if an older program cannot read the directory.
	formatVersion = 3
)

// identity is the content of that file.
type identity struct {
	Format int    `json:"waggle_store_format"`
	ID     string `json:"id"` // 32 hex digits, which the log and the snapshots repeat
	Shards int    `json:"shards"`
	// CopyOf names the store that is being copied into this one.
	CopyOf string `json:"unfinished_copy_of,omitempty"`
}

// otherCopy is why the directory cannot be used, or be copied into.
func (i *identity) otherCopy() error {
	if i.CopyOf == "" {
		return fmt.Errorf("%w: it has a store already", dispatch.ErrStoreMismatch)
	}
	return fmt.Errorf("%w: it is an unfinished copy of %s", dispatch.ErrStoreMismatch, i.CopyOf)
}

// EndCopy implements [dispatch.Portable].
func (b *Backend) EndCopy(context.Context) error {
	b.config.CopyOf = ""
	return b.writeIdentity()
}

// readIdentity reads whose directory it is; nil: nobody's, and it is empty but for a lock.
func readIdentity(fs disk.FS, dir string) (*identity, error) {
	names, err := fs.List(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", errNoStore, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", dispatch.ErrStoreMismatch, err)
	}
	stranger := ""
	for _, name := range names {
		switch name {
		case identityName:
			return parseIdentity(fs, filepath.Join(dir, name))
		case disk.LockName, identityName + temporary:
		default:
			stranger = name
		}
	}
	if stranger != "" {
		return nil, fmt.Errorf("%w: the directory is no store: it has the file %s, and no %s", dispatch.ErrStoreMismatch, stranger, identityName)
	}
	return nil, nil //nolint:nilnil // an empty directory is no error
}

func parseIdentity(fs disk.FS, path string) (*identity, error) {
	content, err := disk.ReadFile(fs, path, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrDamaged, err)
	}
	of := new(identity)
	if err := json.Unmarshal(content, of); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", backend.ErrDamaged, path, err)
	}
	if of.Format != formatVersion {
		return nil, fmt.Errorf("%w: %s has format %d, this program reads format %d: use the release that made it, or a newer one; `waggle store copy` of an older release, to Redis and back, takes it along",
			dispatch.ErrStoreMismatch, path, of.Format, formatVersion)
	}
	return of, nil
}

// create makes the directory one of ours.
func (b *Backend) create() error {
	if b.config.Existing {
		return errNoStore
	}
	b.id, b.shards = uuid.New(), max(b.shards, 1)
	b.config.Logger.Info("there was no store in the directory: it begins empty", zap.String("dir", b.config.Dir))
	return b.writeIdentity()
}

var errNoStore = fmt.Errorf("%w: there is no store", dispatch.ErrStoreMismatch)

func (b *Backend) writeIdentity() error {
	content, err := json.Marshal(identity{Format: formatVersion, ID: hex.EncodeToString(b.id[:]), Shards: b.shards, CopyOf: b.config.CopyOf})
	if err != nil {
		return err
	}
	return writeFile(b.config.fs, b.config.Dir, identityName, func(w io.Writer) (string, error) {
		_, err := w.Write(append(content, '\n'))
		return identityName, err
	})
}

// accept takes over what the directory says.
func (b *Backend) accept(of *identity) error {
	id, err := hex.DecodeString(of.ID)
	if err != nil || len(id) != len(b.id) || of.Shards < 1 || of.Shards > dispatch.Slots {
		return fmt.Errorf("%w: %s has the id %q and %d shards", backend.ErrDamaged, identityName, of.ID, of.Shards)
	}
	if b.shards != 0 && b.shards != of.Shards {
		return fmt.Errorf("%w: it has %d shards, not %d", dispatch.ErrStoreMismatch, of.Shards, b.shards)
	}
	b.id, b.shards = [16]byte(id), of.Shards
	return nil
}

// temporary is the end of the name of a file that is being written.
const temporary = ".tmp"

// writeFile writes a file under a temporary name, syncs it, and gives it the name that content returns. After a failure
// there is nothing of it.
func writeFile(fs disk.FS, dir, name string, content func(io.Writer) (string, error)) error {
	f, err := createFile(fs, dir, name)
	if err != nil {
		return err
	}
	name, err = content(f)
	return f.keep(name, err)
}

// newFile is a file that is written under a temporary name.
type newFile struct {
	fileWriter
	fs        disk.FS
	dir, path string
}

func createFile(fs disk.FS, dir, name string) (*newFile, error) {
	path := filepath.Join(dir, name+temporary)
	f, err := fs.Create(path)
	return &newFile{fileWriter{file: f}, fs, dir, path}, err
}

// keep syncs the file, and gives it a name. After an error, this one or its own, there is nothing of it.
func (f *newFile) keep(name string, err error) error {
	err = errors.Join(f.end(err), f.file.Close())
	if err == nil {
		err = f.fs.Rename(f.path, filepath.Join(f.dir, name))
	}
	if err != nil {
		return errors.Join(err, f.fs.Remove(f.path))
	}
	return f.fs.SyncDir(f.dir)
}

// drop removes the file.
func (f *newFile) drop() error {
	return errors.Join(f.synced(), f.file.Close(), f.fs.Remove(f.path))
}

// syncBytes is after how much a file is synced while it is written: the log on the same disk would wait for all of it.
const syncBytes = 4 << 20

// fileWriter writes a file from its begin on.
type fileWriter struct {
	file             disk.File
	offset, unsynced int64
	syncing          chan error // what comes of the sync under way; nil: there is none
}

func (w *fileWriter) Write(p []byte) (int, error) {
	n, err := w.file.WriteAt(p, w.offset)
	w.offset += int64(n)
	if w.unsynced += int64(n); err == nil && w.unsynced >= syncBytes {
		err = w.synced()
		w.unsynced, w.syncing = 0, make(chan error, 1)
		go func(done chan<- error) { done <- w.file.Sync() }(w.syncing)
	}
	return n, err
}

// synced waits for the sync under way.
func (w *fileWriter) synced() (err error) {
	if w.syncing != nil {
		err = <-w.syncing
		w.syncing = nil
	}
	return err
}

// end syncs what was written, once nothing is under way.
func (w *fileWriter) end(err error) error {
	if err := errors.Join(err, w.synced()); err != nil {
		return err
	}
	return w.file.Sync()
}
