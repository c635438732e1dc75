package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CreateFile writes a new file with this mode. The error is [fs.ErrExist] if there is one.
func CreateFile(path string, content []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err := fill(file, content); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// ReplaceFile writes a file in place of the one of that name: a reader sees the old content or the new one. Mode, owner and
// group stay as they are; mode is for a file that was not there. A symbolic link stays, and what it points to is replaced.
func ReplaceFile(path string, content []byte, mode fs.FileMode) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	old, err := os.Stat(path)
	switch {
	case err == nil:
		mode = old.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // for its owner alone until it is complete
	if err != nil {
		return err
	}
	if old != nil {
		err = keepOwner(file, old)
	}
	if err == nil {
		err = file.Chmod(mode)
	}
	if err = errors.Join(err, fill(file, content)); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("replace %s: %w", path, err), os.Remove(file.Name()))
	}
	return nil
}

// fill writes the content of a file to the disk, and closes it.
func fill(file *os.File, content []byte) error {
	_, err := file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
