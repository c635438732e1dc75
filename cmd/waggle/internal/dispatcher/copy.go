package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/store"
)

const (
	// unfinishedCopy is in the error of a store that is one.
	unfinishedCopy   = "unfinished copy"
	unfinishedAdvice = "`waggle store copy FROM TO` with the same FROM finishes it"
)

// CopyOptions are the stores of a copy.
type CopyOptions struct {
	// From and To are URLs of stores.
	From, To string
	// FromPrefix and ToPrefix begin the names of keys in Redis.
	FromPrefix, ToPrefix string
	// Shards of the copy; 0: 1, of a Cluster 64.
	Shards int
}

// Open opens both stores, which no dispatcher may use. The caller closes them.
func (o *CopyOptions) Open(ctx context.Context, log *zap.Logger) (from, to *store.Store, err error) {
	source := StoreOptions{URL: o.From, prefix: o.FromPrefix, existing: true, allowEviction: true}
	if from, err = source.openForCopy(ctx, log); err != nil {
		return nil, nil, err
	}
	name, err := source.copyName()
	if err == nil {
		target := StoreOptions{URL: o.To, prefix: o.ToPrefix, shards: o.Shards, copyOf: name}
		to, err = target.openForCopy(ctx, log)
	}
	if err != nil {
		return nil, nil, errors.Join(err, from.Close())
	}
	return from, to, nil
}

// openForCopy opens a store that no dispatcher uses.
func (s *StoreOptions) openForCopy(ctx context.Context, log *zap.Logger) (*store.Store, error) {
	if s.URL == MemoryStore {
		return nil, cli.Usagef("a store %s is within one dispatcher, and cannot be copied", MemoryStore)
	}
	return s.Open(ctx, log)
}

// copyName is how a copy of the store names it.
func (s *StoreOptions) copyName() (string, error) {
	if dir, ok := s.Dir(); ok {
		path, err := filepath.Abs(dir)
		return FileStore + path, err
	}
	return fmt.Sprintf("%s with the prefix %s", s.Name(), s.prefix), nil
}
