// Package contextfile keeps contexts: how dispatchers are reached, each by a name, in a file of the user. It has the paths
// of secrets, and no secret.
package contextfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

// Variable names another file than contexts.yaml in the user's directory of configurations.
const Variable = cli.EnvPrefix + "CONFIG"

// Context is how a group of dispatchers is reached.
type Context struct {
	Server        []string `yaml:"server" json:"server"`
	TLS           bool     `yaml:"tls,omitempty" json:"tls"`
	TLSCA         string   `yaml:"tls_ca,omitempty" json:"tls_ca"`
	ClientCert    string   `yaml:"client_cert,omitempty" json:"client_cert"`
	ClientKey     string   `yaml:"client_key,omitempty" json:"client_key"`
	TLSServerName string   `yaml:"tls_server_name,omitempty" json:"tls_server_name"`
	TokenFile     string   `yaml:"token_file,omitempty" json:"token_file"`
}

// File is all contexts of a user. A change is kept by Write.
type File struct {
	// Current is the name of the context that is used where no other is named; empty: none.
	Current string `yaml:"current,omitempty"`

	// Contexts are all of them, by name.
	Contexts map[string]Context `yaml:"contexts"`

	path string
}

// Path is where the file is, or will be.
func Path(c cli.Console) (string, error) {
	if path, ok := c.Env(Variable); ok && path != "" {
		return path, nil
	}
	if c.ConfigDir == nil {
		return "", errors.New("there is no directory of configurations")
	}
	dir, err := c.ConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "waggle", "contexts.yaml"), nil
}

// Read reads the file. Where there is none, there is no context.
func Read(path string) (*File, error) {
	f := &File{path: path, Contexts: map[string]Context{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read contexts: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read contexts: %s: %w", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	return f, nil
}

// Get gives a context.
func (f *File) Get(name string) (Context, error) {
	found, ok := f.Contexts[name]
	if !ok {
		return Context{}, cli.Advise(fmt.Errorf("there is no context %q in %s", name, f.path), "`waggle context list` shows the contexts")
	}
	return found, nil
}

// CheckName refuses a name that no context may have.
func CheckName(name string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`).MatchString(name) {
		return cli.Usagef("NAME %q: want 1 to 128 of [A-Za-z0-9._-]", name)
	}
	return nil
}

// Write replaces the file as a whole. Only its owner can read it.
func (f *File) Write() error {
	text, err := yaml.Marshal(f)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(f.path), 0o700)
	}
	if err == nil {
		err = cli.ReplaceFile(f.path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	return nil
}
