package collector

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// reloaded is a value that is read from files, again and again: they may be replaced at any time. While they cannot be read, as
// half-way through a replacement, the last good value counts.
type reloaded[T any] struct {
	name  string // of the files, for the log
	every time.Duration
	read  func() (T, error)
	log   *zap.Logger

	mu     sync.Mutex // guards what follows
	good   T
	readAt time.Time
	warned time.Time // when the last failure was logged
}

// newReloaded reads the files for the first time, which has to work. They are read again at most each interval.
func newReloaded[T any](name string, every time.Duration, log *zap.Logger, read func() (T, error)) (*reloaded[T], error) {
	value, err := read()
	if err != nil {
		return nil, err
	}
	return &reloaded[T]{name: name, every: every, read: read, log: log, good: value, readAt: time.Now()}, nil
}

// latest is the newest value that could be read.
func (r *reloaded[T]) latest() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.readAt) < r.every {
		return r.good
	}
	r.readAt = now
	value, err := r.read()
	switch {
	case err == nil:
		r.good = value
	case now.Sub(r.warned) >= sameTrouble:
		r.warned = now
		r.log.Warn(r.name+" cannot be read again; the last good content is used", zap.Error(err))
	}
	return r.good
}
