//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// debianPackage is a directory of one of Debian's packages, which has an index.html: where the package is installed, else
// where it was unpacked, without installing it, in the user's cache directory.
func debianPackage(t *testing.T, name, within string) string {
	t.Helper()
	has := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "index.html"))
		return err == nil
	}
	if has(within) {
		return within
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "waggle-e2e")
	unpacked := filepath.Join(cache, name)
	if !has(filepath.Join(unpacked, within)) {
		unpack(t, name, cache, unpacked)
	}
	if !has(filepath.Join(unpacked, within)) {
		t.Fatalf("Debian's package %s has no %s/index.html", name, within)
	}
	return filepath.Join(unpacked, within)
}

// unpack gets a package from Debian and unpacks it.
func unpack(t *testing.T, name, cache, to string) {
	t.Helper()
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(cache, "download") //nolint:usetesting // beside where it is moved to, so on the same disk
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}()
	script := fmt.Sprintf("apt-get download %[1]s || { apt-get update && apt-get download %[1]s; }; dpkg-deb -x %[1]s_*.deb files", name)
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\nThis test crawls Debian's package %s and cannot get it: README.md here says how to bring it.", err, out, name)
	}
	if err := os.Rename(filepath.Join(dir, "files"), to); err != nil {
		t.Fatal(err)
	}
}
