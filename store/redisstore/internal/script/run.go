// Package script runs the scripts of a store in Redis: it puts their library together, loads it
// where it is missing, runs them on the shards that tasks, queues and collectors belong to, and
// repeats what was not answered.
package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/redisconn"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
)

const (
	// attempts bounds how often one script is sent. Every script is idempotent
	// by the tokens and keys of its arguments.
	attempts = 6
	// retryBudget is how long after the first attempt no further one begins.
	retryBudget = 4 * time.Second
	firstDelay  = 10 * time.Millisecond
	longDelay   = 500 * time.Millisecond
	// shardsAtOnce bounds the shards on which one call runs scripts at the same time.
	shardsAtOnce = 64
	// maxNamed bounds the items of one script that are grouped by name.
	maxNamed = 200
)

// Runner runs the scripts of a store. Its methods may be called from any goroutine.
type Runner struct {
	Shards int

	client  redis.UniversalClient
	library *Library
	keys    [][]string // of each shard, what a script declares
	acks    *acks
}

// NewRunner makes one for a store of so many shards. Acknowledged scripts wait for so many replicas.
func NewRunner(client redis.UniversalClient, library *Library, prefix key.Prefix, shards, replicas int, log *zap.Logger) *Runner {
	r := &Runner{Shards: shards, client: client, library: library, keys: make([][]string, shards), acks: newAcks(shards, replicas, log)}
	_, cluster := client.(*redis.ClusterClient)
	for i := range r.keys {
		names := prefix.Shard(i)
		r.keys[i] = []string{names.Shard()}
		if cluster {
			// A key that is never there: while the shard's slot moves from node to node, Redis
			// refuses what declares keys of which one is not there (TRYAGAIN), at both nodes,
			// before it has begun. A script that began would take what is at the other node for
			// gone, or be ended half-way.
			r.keys[i] = append(r.keys[i], names.Absent())
		}
	}
	return r
}

// Call is one run of a script on one shard.
type Call struct {
	Shard int
	Args  []any
	Items []int // what it is about, by index, where it was made by Pages or ByName
}

// EveryShard is a call of each shard with the same arguments.
func (r *Runner) EveryShard(args ...any) []Call {
	calls := make([]Call, r.Shards)
	for i := range calls {
		calls[i] = Call{Shard: i, Args: args}
	}
	return calls
}

// ShardOf is the shard of a queue, and the home shard of a source or collector id.
func (r *Runner) ShardOf(name string) int {
	return dispatch.ShardOf(dispatch.SlotOf(name), r.Shards)
}

// ShardOfTask is the shard that owns a task; false when the id has no slot.
func (r *Runner) ShardOfTask(id dispatch.TaskID) (int, bool) {
	slot := id.Slot()
	return dispatch.ShardOf(max(slot, 0), r.Shards), slot >= 0
}

// Pages groups n tasks by shard, in order, into calls of at most limit each, whose arguments are
// yet to be given. Those whose id has no slot are in none.
func (r *Runner) Pages(n, limit int, id func(int) dispatch.TaskID) []Call {
	return group(n, limit, func(i int) (int, bool) { return r.ShardOfTask(id(i)) })
}

// ByName groups n items by the home shard of their name into calls, whose arguments are first and
// then those of each item.
func (r *Runner) ByName(n int, first []any, of func(int) (name string, args []any)) []Call {
	args := make([][]any, n)
	calls := group(n, maxNamed, func(i int) (int, bool) {
		var name string
		name, args[i] = of(i)
		return r.ShardOf(name), true
	})
	for k := range calls {
		c := &calls[k]
		c.Args = slices.Clone(first)
		for _, i := range c.Items {
			c.Args = append(c.Args, args[i]...)
		}
	}
	return calls
}

func group(n, limit int, shardOf func(int) (int, bool)) []Call {
	var calls []Call
	last := make(map[int]int, 1) // of each shard
	for i := range n {
		shard, ok := shardOf(i)
		if !ok {
			continue
		}
		at, ok := last[shard]
		if !ok || len(calls[at].Items) >= limit {
			at = len(calls)
			last[shard] = at
			calls = append(calls, Call{Shard: shard})
		}
		calls[at].Items = append(calls[at].Items, i)
	}
	return calls
}

// Run runs a script on one shard, again where the error leaves open whether it ran. The error is
// one of dispatch, with the operation.
func (r *Runner) Run(ctx context.Context, op string, name Name, c Call) (*pack.Reply, error) {
	reply, err := r.attempt(ctx, name, c, true)
	return reply, Wrap(ctx, op, err)
}

// RunOnce is Run for a script whose caller does better elsewhere where the shard does not answer: it
// is not sent again then, and the error is a [dispatch.ShardsAwayError].
func (r *Runner) RunOnce(ctx context.Context, op string, name Name, c Call) (*pack.Reply, error) {
	reply, err := r.attempt(ctx, name, c, false)
	if err != nil && isNetwork(err) {
		return nil, &dispatch.ShardsAwayError{Shards: r.besides(ctx, c.Shard), Err: fmt.Errorf("%w: %s: %w", dispatch.ErrStoreUnavailable, op, err)}
	}
	return reply, Wrap(ctx, op, err)
}

// besides are the shards of the same node, with the shard itself.
func (r *Runner) besides(ctx context.Context, shard int) []int {
	for _, shards := range r.Nodes(ctx) {
		if slices.Contains(shards, shard) {
			return shards
		}
	}
	return []int{shard}
}

// Nodes are the shards of each node, as far as is known.
func (r *Runner) Nodes(ctx context.Context) (nodes [][]int) {
	at := make(map[string]int, 1)
	for shard := range r.Shards {
		addr := ""
		if cluster, ok := r.client.(*redis.ClusterClient); ok {
			addr = strconv.Itoa(shard) // of a node of its own, where it is not known
			if node, err := cluster.MasterForKey(context.WithoutCancel(ctx), r.keys[shard][0]); err == nil {
				addr = node.Options().Addr
			}
		}
		n, ok := at[addr]
		if !ok {
			n, nodes = len(nodes), append(nodes, nil)
			at[addr] = n
		}
		nodes[n] = append(nodes[n], shard)
	}
	return nodes
}

// RunAll runs a script several times, and gives the replies in order. Calls of several shards are
// made at once, so that a node that is slow holds up no other; those of one shard one after
// another: a script of a hundred tasks takes Redis up to 10 ms, and the renewals of others come
// between two of them. It fails as a whole when one call fails.
func (r *Runner) RunAll(ctx context.Context, op string, name Name, calls []Call) ([]*pack.Reply, error) {
	replies := make([]*pack.Reply, len(calls))
	if len(calls) == 1 {
		reply, err := r.Run(ctx, op, name, calls[0])
		replies[0] = reply
		return replies, err
	}
	byShard := make(map[int][]int, 1)
	for i, c := range calls {
		byShard[c.Shard] = append(byShard[c.Shard], i)
	}
	var shards errgroup.Group
	shards.SetLimit(shardsAtOnce)
	for _, of := range byShard {
		shards.Go(func() error {
			for _, i := range of {
				reply, err := r.attempt(ctx, name, calls[i], true)
				if err != nil {
					return err
				}
				replies[i] = reply
			}
			return nil
		})
	}
	return replies, Wrap(ctx, op, shards.Wait())
}

// attempt sends a script until it is answered, at most so often and so long; unless patient, only
// until the node does not answer.
func (r *Runner) attempt(ctx context.Context, name Name, c Call, patient bool) (*pack.Reply, error) {
	if c.Shard < 0 || c.Shard >= r.Shards {
		return nil, fmt.Errorf("%w: shard %d is not 0 to %d", dispatch.ErrInvalid, c.Shard, r.Shards-1)
	}
	keys := r.keys[c.Shard]
	return again(ctx, patient, func(last error) (*pack.Reply, error) {
		if last != nil && faultOf(ctx, last) == faultNoFunction {
			if err := r.library.load(ctx, r.client, keys[0]); err != nil {
				return nil, err
			}
		}
		v, err := r.call(ctx, name, c)
		if errors.Is(err, redis.Nil) {
			err = nil // nil is an answer of a script
		}
		return pack.Read(v), err
	})
}

func (r *Runner) call(ctx context.Context, name Name, c Call) (any, error) {
	if r.library.acknowledged[name] {
		return r.acknowledged(ctx, name, c)
	}
	return r.client.FCall(ctx, r.library.function(name), r.keys[c.Shard], c.Args...).Result()
}

// OnConnect makes sure that the server of a new connection knows all scripts. What may not be
// loaded now is loaded, or fails, when a script is first called: at a replica, at a Sentinel, at
// a Redis that is full, or by a user who may not.
func (l *Library) OnConnect(ctx context.Context, cn *redis.Conn) error {
	known, err := cn.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: l.name}).Result()
	if err == nil && len(known) == 0 {
		err = cn.FunctionLoadReplace(ctx, l.code).Err()
	}
	if err == nil || redisconn.Denied(err) {
		return nil
	}
	if fault := faultOf(ctx, err); fault == faultReadOnly || fault == faultFull {
		return nil
	}
	return err
}

// load loads the scripts into the server that has the key.
func (l *Library) load(ctx context.Context, client redis.UniversalClient, key string) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		server, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return err
		}
		client = server
	}
	return client.FunctionLoadReplace(ctx, l.code).Err()
}

// Retry runs a command that may be repeated, again where it was not answered. What is not there
// is empty, and no error.
func Retry[T any](ctx context.Context, op string, do func() (T, error)) (T, error) {
	v, err := again(ctx, true, func(error) (T, error) {
		v, err := do()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return v, err
	})
	return v, Wrap(ctx, op, err)
}

// Pipeline runs n commands as Retry does, in one round trip.
func Pipeline[C redis.Cmder](ctx context.Context, op string, client redis.UniversalClient, n int, command func(redis.Pipeliner, int) C) ([]C, error) {
	return Retry(ctx, op, func() ([]C, error) {
		pipe, cmds := client.Pipeline(), make([]C, n)
		for i := range cmds {
			cmds[i] = command(pipe, i)
		}
		_, failed := pipe.Exec(ctx)
		for _, cmd := range cmds {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return nil, err
			}
		}
		// A connection that was refused, as by a Redis that loads, leaves the commands without
		// an error and without an answer.
		return cmds, failed
	})
}

// again does something until it is answered, at most so often and so long. do gets the error of
// the attempt before.
func again[T any](ctx context.Context, patient bool, do func(last error) (T, error)) (v T, err error) {
	begin, delay := time.Now(), firstDelay
	for range attempts {
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		if v, err = do(err); err == nil {
			return v, nil
		}
		switch faultOf(ctx, err) {
		case faultNoFunction:
			continue
		case faultUnavailable, faultReadOnly:
			if !patient && isNetwork(err) {
				return v, err
			}
		case faultOther, faultFull, faultCaller:
			return v, err
		}
		if time.Since(begin) > retryBudget {
			break
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(delay/2 + rand.N(delay/2)):
		}
		delay = min(2*delay, longDelay)
	}
	return v, err
}

// fault is what kind of trouble an error of Redis is.
type fault uint8

const (
	faultOther       fault = iota
	faultUnavailable       // no answer, or an answer that says "later"
	faultReadOnly
	faultFull
	faultNoFunction
	faultCaller // the caller's context ended
)

// laterPrefixes begin the errors of a server that cannot answer now.
var laterPrefixes = [...]string{
	"LOADING ", "CLUSTERDOWN ", "TRYAGAIN ", "MASTERDOWN ", "BUSY ", "MOVED ", "ASK ", "UNBLOCKED ", "ERR max number of clients reached",
}

// readOnlyPrefixes begin the errors of a server that takes no writes now: a
// replica, one whose replicas are too few or too far behind, one that cannot write
// to its disk.
var readOnlyPrefixes = [...]string{"READONLY ", "NOREPLICAS ", "MISCONF "}

// faultOf sorts an error of the client.
func faultOf(ctx context.Context, err error) fault {
	text := err.Error()
	switch {
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return faultCaller
	case redis.IsOOMError(err) || strings.HasPrefix(text, "OOM "):
		return faultFull
	case strings.HasPrefix(text, "ERR Function not found"):
		return faultNoFunction
	case redis.IsReadOnlyError(err) || beginsAny(text, readOnlyPrefixes[:]):
		return faultReadOnly
	case isNetwork(err) || errors.Is(err, errFewReplicas) || beginsAny(text, laterPrefixes[:]):
		return faultUnavailable
	}
	return faultOther
}

func beginsAny(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

func isNetwork(err error) bool {
	var network net.Error
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) || errors.As(err, &op)
}

// Wrap turns an error of the client into one of dispatch, with the operation.
func Wrap(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	switch faultOf(ctx, err) {
	case faultFull:
		return fmt.Errorf("%w: %s: %w", dispatch.ErrStoreFull, op, err)
	case faultReadOnly:
		return fmt.Errorf("%w: %s: %w", dispatch.ErrStoreReadOnly, op, err)
	case faultUnavailable:
		return fmt.Errorf("%w: %s: %w", dispatch.ErrStoreUnavailable, op, err)
	default:
		return fmt.Errorf("%s: %w", op, err)
	}
}
