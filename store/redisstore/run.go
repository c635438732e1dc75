package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const (
	// attempts bounds how often one script is sent. Every script is idempotent
	// by the tokens and keys of its arguments.
	attempts = 6
	// retryBudget is how long after the first attempt no further one begins.
	retryBudget = 4 * time.Second
	firstDelay  = 10 * time.Millisecond
	longDelay   = 500 * time.Millisecond
	// retriesAtOnce bounds how many of the scripts that failed in one round trip
	// are sent again at the same time.
	retriesAtOnce = 16
)

// call is one run of a script on one shard.
type call struct {
	shard int
	args  []any
}

// step is a call with its script.
type step struct {
	script script
	call
}

// run runs a script on one shard, again where the error leaves open whether it
// ran. The error is one of dispatch, with the operation.
func (s *Store) run(ctx context.Context, op string, sc script, c call) (any, error) {
	reply, err := s.attempt(ctx, sc, c, nil)
	return reply, wrap(ctx, op, err)
}

// runAll runs a script on several shards, or several times on one, as runSteps.
func (s *Store) runAll(ctx context.Context, op string, sc script, calls []call) ([]any, error) {
	steps := make([]step, len(calls))
	for i, c := range calls {
		steps[i] = step{script: sc, call: c}
	}
	return s.runSteps(ctx, op, steps)
}

// runSteps runs scripts in as few round trips as may be, and gives the replies in order.
// It fails as a whole when one fails.
func (s *Store) runSteps(ctx context.Context, op string, steps []step) ([]any, error) {
	var replies []any
	for len(steps) > 0 {
		n := tripLength(steps)
		got, err := s.runTrip(ctx, op, steps[:n])
		if err != nil {
			return nil, err
		}
		if replies == nil { // mostly this is all
			replies = got
		} else {
			replies = append(replies, got...)
		}
		steps = steps[n:]
	}
	return replies, nil
}

// tripLength is how many of the steps go in one round trip: one of each shard. Redis runs what a connection has sent without a pause, and a script of
// a hundred tasks takes it up to 10 ms: ten in a row would keep the renewals of others
// waiting for as long as all of them take.
func tripLength(steps []step) int {
	if len(steps) < 2 {
		return len(steps)
	}
	shards := make(map[int]struct{}, 1)
	for n, s := range steps {
		if _, ok := shards[s.shard]; ok {
			return n
		}
		shards[s.shard] = struct{}{}
	}
	return len(steps)
}

// scriptKeys are what each script on a shard declares. In a Cluster that is also a key that
// is never there: while the shard's slot moves from node to node, Redis refuses what
// declares keys of which one is not there (TRYAGAIN), at both nodes, before it has begun. A
// script that began would take what is at the other node for gone, or be ended half-way.
func (s *Store) scriptKeys(shard int) []string {
	k := s.keys.shard(shard)
	if s.together == nil {
		return []string{k.Shard()}
	}
	return []string{k.Shard(), k.Absent()}
}

// runTrip runs scripts in one round trip. Those that failed are sent again each on its own,
// some at a time.
func (s *Store) runTrip(ctx context.Context, op string, steps []step) ([]any, error) {
	replies := make([]any, len(steps))
	if len(steps) == 1 {
		reply, err := s.run(ctx, op, steps[0].script, steps[0].call)
		replies[0] = reply
		return replies, err
	}
	if err := ctx.Err(); err != nil {
		return nil, wrap(ctx, op, err)
	}
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(steps))
	for i, c := range steps {
		cmds[i] = pipe.FCall(ctx, string(c.script), s.scriptKeys(c.shard), c.args...)
	}
	_, failed := pipe.Exec(ctx)
	var retries errgroup.Group
	retries.SetLimit(retriesAtOnce)
	for i, cmd := range cmds {
		reply, err := cmd.Result()
		if err == nil && reply == nil {
			err = failed // the command was not sent: the connection was refused
		}
		if err == nil {
			replies[i] = reply
			continue
		}
		retries.Go(func() error {
			// A pipeline repeats nothing, and loads nothing.
			replies[i], err = s.attempt(ctx, steps[i].script, steps[i].call, err)
			return err
		})
	}
	if err := retries.Wait(); err != nil {
		return nil, wrap(ctx, op, err)
	}
	return replies, nil
}

// attempt sends a script until it is answered, at most so often and so long.
// last is the error of an attempt that was made already; nil for none.
func (s *Store) attempt(ctx context.Context, sc script, c call, last error) (any, error) {
	keys := s.scriptKeys(c.shard)
	return again(ctx, last, func(last error) (any, error) {
		if last != nil && faultOf(ctx, last) == faultNoFunction {
			if err := s.load(ctx, keys[0]); err != nil {
				return nil, err
			}
		}
		v, err := s.send(ctx, sc, keys, c.args, last == nil)
		if errors.Is(err, redis.Nil) {
			return nil, nil //nolint:nilnil // nil is an answer of a script
		}
		return v, err
	})
}

// send sends a script once, the first time together with others for the same node where
// there are several. Not so again: the client of a Cluster alone learns from what goes
// wrong which node to ask.
func (s *Store) send(ctx context.Context, sc script, keys []string, args []any, first bool) (any, error) {
	if first && s.together != nil && sc == s.scripts.submit {
		return s.together.call(ctx, sc, keys, args)
	}
	return s.client.FCall(ctx, string(sc), keys, args...).Result()
}

// read runs a command that changes nothing, again where it was not answered.
func read[T any](ctx context.Context, op string, do func() (T, error)) (T, error) {
	v, err := again(ctx, nil, func(error) (T, error) { return do() })
	return v, wrap(ctx, op, err)
}

// again does something until it is answered, at most so often and so long. last
// is the error of an attempt that was made already; nil for none.
func again[T any](ctx context.Context, last error, do func(last error) (T, error)) (T, error) {
	var none T
	begin, delay := time.Now(), firstDelay
	for n := range attempts {
		if err := ctx.Err(); err != nil {
			return none, err
		}
		if n > 0 || last == nil {
			v, err := do(last)
			if err == nil {
				return v, nil
			}
			last = err
		}
		switch faultOf(ctx, last) {
		case faultNoFunction:
			continue
		case faultUnavailable, faultReadOnly:
		case faultOther, faultFull, faultCaller:
			return none, last
		}
		if time.Since(begin) > retryBudget || !sleep(ctx, delay/2+rand.N(delay/2)) {
			return none, last
		}
		delay = min(2*delay, longDelay)
	}
	return none, last
}

// sleep waits, and reports whether the context let it.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
