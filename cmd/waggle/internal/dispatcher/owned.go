package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis"
)

// backend makes what keeps a store that is owned. of has what it is to a dispatcher.
func (s *StoreOptions) backend(of redis.Config, log *zap.Logger) (*redis.Backend, error) {
	goredis.SetLogger(redisLog{log}) // the client logs for its whole process, not per connection
	of.URL, of.Prefix, of.AckReplicas = s.URL, s.prefix, s.ackReplicas
	of.AllowEviction, of.Existing, of.CopyOf, of.Logger = s.allowEviction, s.existing, s.copyOf, log
	b, err := redis.New(of)
	if err != nil {
		return nil, cli.Usagef("--store: %s", invalidText(err))
	}
	return b, nil
}

// longestTakeover is how long a command waits for a store whose owner may have died.
const longestTakeover = 8 * time.Second

// openOwned opens a store that no dispatcher uses.
func (s *StoreOptions) openOwned(ctx context.Context, log *zap.Logger) (*store.Store, error) {
	var owner atomic.Pointer[redis.Other]
	b, err := s.backend(redis.Config{Name: "waggle on " + cli.Hostname(), Follow: func(other redis.Other) { owner.Store(&other) }}, log)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, longestTakeover)
	defer cancel()
	opened, err := store.Open(waiting, store.Config{Shards: s.shards, Backend: b, Logger: log})
	if other := owner.Load(); errors.Is(err, context.DeadlineExceeded) && other != nil && other.Name != "" {
		return nil, cli.Advise(fmt.Errorf("--store %s: dispatcher %s at %s uses the store", s.Name(), other.Name, other.Address), "stop all its dispatchers before")
	}
	if err != nil {
		return nil, cli.Advise(fmt.Errorf("--store %s: %w", s.Name(), err), mismatchAdvice(err))
	}
	return opened, nil
}

// own serves the store whenever this dispatcher owns it, until loops ends; after serving it acquires it no more. While another one
// owns it, calls go there.
func (n *Node) own(serving, loops context.Context, drain func(), s *StoreOptions) error {
	warn := rate.Sometimes{First: 1, Interval: awayEach}
	for wait := firstOpenWait; ; wait = min(2*wait, longestOpenWait) {
		began := time.Now()
		moved, err := n.ownOnce(serving, loops, drain, s)
		switch {
		case serving.Err() != nil:
			drain()
			return n.watch(loops, s)
		case moved:
			continue
		case err != nil && !IsAway(err):
			return cli.Advise(fmt.Errorf("--store %s: %w", s.Name(), err), mismatchAdvice(err))
		case time.Since(began) > longestOpenWait: // it was opened
			wait = firstOpenWait
		}
		warn.Do(func() {
			n.log.Warn("the store is away, or was lost to another dispatcher; trying again", zap.String("store", s.Name()), zap.Error(err))
		})
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-serving.Done():
			return nil
		}
	}
}

// backendConfig is what a backend is to this dispatcher.
func (n *Node) backendConfig() redis.Config {
	return redis.Config{Name: n.ID, Address: n.Server.Advertised(), Before: n.backend.Load(), Follow: n.follow}
}

// watch has the calls that a drain still takes be passed on to the next owner.
func (n *Node) watch(loops context.Context, s *StoreOptions) error {
	config := n.backendConfig()
	config.Watch = true
	b, err := s.backend(config, n.log)
	if err != nil {
		return err
	}
	n.backend.Store(b)
	b.LookSoon()
	_, err = b.Acquire(loops, backend.Owner{})
	if loops.Err() != nil {
		return nil
	}
	return err
}

// ownOnce acquires the store, which waits while another dispatcher has it, and serves it until that is over. moved: it was handed over.
func (n *Node) ownOnce(serving, loops context.Context, drain func(), s *StoreOptions) (moved bool, err error) {
	config := n.backendConfig()
	if s.standby {
		config.Reach = func(ctx context.Context, owner redis.Other) (redis.Stream, error) {
			return n.Server.StandBy(ctx, server.Owner(owner))
		}
		config.Refuses = func(ctx context.Context, owner redis.Other) bool { return n.Server.Refuses(ctx, server.Owner(owner)) }
	}
	b, err := s.backend(config, n.log)
	if err != nil {
		return false, err
	}
	n.backend.Store(b)
	if err := n.trust(serving, b); err != nil {
		return false, errors.Join(err, b.Release(serving))
	}
	stopReading := n.keepTrust(serving, b)
	defer stopReading()
	opened, err := store.Open(serving, store.Config{Shards: s.shards, Backend: b, Logger: n.log})
	if err != nil {
		return false, err
	}
	if err := n.attach(opened, opened.Epoch()); err != nil {
		return false, errors.Join(err, opened.Close())
	}
	term, end := context.WithCancel(loops)
	defer end()
	running, ran := errgroup.WithContext(term)
	running.Go(func() error {
		defer end()
		return n.dispatcher.Run(term, n.operator.Chores()...)
	})
	running.Go(func() error {
		n.tell(term)
		return nil
	})
	for stopping, over := serving.Done(), false; !over; {
		select {
		case <-stopping:
			stopping = nil
			if _, err := b.HandOver(loops); err != nil { // the drain ends first, and the next owner loads the store
				n.log.Info("stops without a standby", zap.Error(err))
				drain()
			}
		case <-b.Moving():
			moved, over = true, true
		case <-b.Done():
			err, over = b.Err(), true
		case <-opened.Failed():
			err, over = opened.Ping(term), true
		case <-ran.Done():
			over = true
		}
	}
	n.Server.Detach()
	end()
	err = errors.Join(err, running.Wait(), opened.Close())
	n.log.Info("does not own the store any more", zap.Error(err))
	return moved, err
}

// feed serves the stream of a dispatcher that stands by for this one.
func (n *Node) feed(ctx context.Context, stream server.FeedStream) error {
	if b := n.backend.Load(); b != nil {
		return b.Feed(ctx, stream)
	}
	return dispatch.ErrNoStandby
}

// lookSoon looks for another owner of the store.
func (n *Node) lookSoon() {
	if b := n.backend.Load(); b != nil {
		b.LookSoon()
	}
}

// trustEach is the time between two reads of the secret by which dispatchers trust each other. Until they have read the same one after
// it was lost or changed in Redis, their calls wait, for up to 5 s.
const trustEach = 2 * time.Second

// trust reads the secret of the store.
func (n *Node) trust(ctx context.Context, b *redis.Backend) error {
	secret, err := b.Secret(ctx, n.secret)
	if err == nil {
		n.secret = secret
		n.Server.Trust(secret)
	}
	return err
}

// keepTrust reads the secret again and again, until stop is called: a dispatcher that kept another one than the others could not pass
// calls any more.
func (n *Node) keepTrust(ctx context.Context, b *redis.Backend) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			select {
			case <-time.After(trustEach):
			case <-ctx.Done():
				return
			}
			if err := n.trust(ctx, b); err != nil { // the backend warns of a Redis that is away
				n.log.Debug("cannot read the secret of the store", zap.Error(err))
			}
		}
	})
	return func() {
		cancel()
		reading.Wait()
	}
}

// higherEpoch takes the epoch of an owner that another dispatcher has seen, and reports whether that is this one.
func (n *Node) higherEpoch(epoch uint64) bool {
	b := n.backend.Load()
	return b != nil && b.Saw(epoch)
}

// ownership is what is known of who owns the store, if somebody does.
func (n *Node) ownership() (dispatch.Ownership, bool) {
	b := n.backend.Load()
	if b == nil {
		return dispatch.Ownership{}, false
	}
	return b.Ownership(), true
}

// follow has calls passed on to another owner.
func (n *Node) follow(other redis.Other) {
	if other == (redis.Other{}) {
		return
	}
	n.log.Info("another dispatcher owns the store; calls are passed on to it", zap.String("owner", other.Name), zap.String("address", other.Address), zap.Uint64("epoch", other.Epoch))
	if err := n.Server.Follow(server.Owner(other)); err != nil {
		n.log.Error("cannot pass calls on to the dispatcher that owns the store", zap.String("owner", other.Name), zap.Error(err))
	}
}
