package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
)

// compared begins a command that looks at locks before it writes them: the number of keys, these, and three words for each.
const compared = "LOCK"

// maxCompared is how many locks such a command has.
const maxCompared = 1000

// lockCommands appends those for locks. What happens to the same lock stays in order; else all that is compared goes together: one
// script for each would cost Redis 9.0 instead of 6.7 µs for the life of a task (BenchmarkStore_Life, 100 a call).
func lockCommands(all []words, k keys, locks []codec.Lock) (_ []words, found []int) {
	found = make([]int, len(locks))
	of, ttls, room := make([]string, len(locks)), make([]int64, len(locks)), make(words, 0, setWords*len(locks))
	var keys, args words
	pending := make(map[string]struct{})
	flush := func() {
		if len(keys) > 0 {
			all = append(all, append(append(words{compared, len(keys)}, keys...), args...))
			keys, args = nil, nil
			clear(pending)
		}
	}
	for i := range locks {
		l := &locks[i]
		of[i], ttls[i], found[i] = k.lock(l.Task), max(l.TTL, 1), -1
		if how := comparisons[l.Write]; how != nil {
			keys, args = append(keys, &of[i]), append(args, how, &l.Token, &ttls[i])
			if pending[l.Task] = struct{}{}; len(keys) == maxCompared {
				flush()
			}
			continue
		}
		if _, before := pending[l.Task]; before {
			flush()
		}
		begin := len(room)
		room = append(room, "SET", &of[i], &l.Token, "PX", &ttls[i])
		if l.Write == codec.LockGrant {
			room = append(room, "NX", "GET")
		}
		if l.Write == codec.LockRenew {
			room = append(room, "GET")
		}
		if l.Write != codec.LockAgain {
			found[i] = len(all)
		}
		all = append(all, room[begin:len(room):len(room)])
	}
	flush()
	return all, found
}

// setWords is how many words a command has that sets a lock, at most. They are pointers, which need no memory of their own as words.
const setWords = 7

// comparisons are what the script calls what happens to a lock that it looks at; nil: it need not.
var comparisons = [...]any{codec.LockRestore: "restore", codec.LockRelease: "release"}

// unlocked are the locks of a group that are not as they must be: grants that met one of somebody else, renewals that found none. had
// is what each lock had before; nil: nobody knows, since the answer was lost, so they are read.
func (s *shard) unlocked(ctx context.Context, locks []codec.Lock, had []string) (bad []backend.Unlocked, err error) {
	var asked []codec.Lock
	for i, l := range locks {
		switch {
		case l.Write != codec.LockGrant && l.Write != codec.LockRenew:
		case had == nil, l.Write == codec.LockGrant && had[i] != "" && had[i] != l.Token:
			asked = append(asked, l)
		case l.Write == codec.LockRenew && had[i] == "":
			bad = append(bad, backend.Unlocked{Task: l.Task, Token: l.Token, Ends: l.Ends})
		}
	}
	for page := range slices.Chunk(asked, maxCompared) {
		var of []backend.Unlocked
		err := s.ask(ctx, "read locks", func(ctx context.Context, node *goredis.Client) (err error) {
			of, err = s.readLocks(ctx, node, page)
			return err
		})
		if err != nil {
			return nil, err
		}
		bad = append(bad, of...)
	}
	return bad, nil
}

// readLocks are those of the locks that somebody else has now, or nobody.
func (s *shard) readLocks(ctx context.Context, node *goredis.Client, locks []codec.Lock) (bad []backend.Unlocked, err error) {
	pipe := node.Pipeline()
	values, ttls := make([]*goredis.StringCmd, len(locks)), make([]*goredis.DurationCmd, len(locks))
	for i, l := range locks {
		values[i], ttls[i] = pipe.Get(ctx, s.keys.lock(l.Task)), pipe.PTTL(ctx, s.keys.lock(l.Task))
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, goredis.Nil) {
		return nil, err
	}
	for i, l := range locks {
		value := values[i].Val()
		if value == l.Token || l.Write == codec.LockRenew && value != "" {
			continue
		}
		of := backend.Unlocked{Task: l.Task, Token: l.Token, Value: value, Ends: l.Ends}
		if ttl := ttls[i].Val(); value != "" && ttl != -1 { // -1: it has no end
			of.TTL = max(ttl, time.Millisecond)
		}
		bad = append(bad, of)
	}
	return bad, nil
}
