package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// link is the connection by which an owner writes a shard. A WATCH belongs to a connection, so it has one of its own: no pool hands it
// to another caller, nothing is repeated by the client, and no redirect leads elsewhere. One goroutine uses it. After an unknown outcome it is
// closed: an answer that comes late must not be taken for that of the next call.
type link struct {
	client *goredis.Client
	conn   *goredis.Conn
	keys   keys
	ends   func() bool
}

// newLink makes a link by the options of a client. It does not dial. It ends with ctx: a read would not.
func newLink(ctx context.Context, options goredis.Options, keys keys) *link {
	options.MaxRetries, options.MinIdleConns = -1, 0
	options.PoolSize = 2 // one is used; after as many failed dials the client would probe the server by a goroutine that outlives it
	client := goredis.NewClient(&options)
	l := &link{client: client, conn: client.Conn(), keys: keys}
	l.ends = context.AfterFunc(ctx, func() { _ = client.Close() }) // nothing is lost with it
	return l
}

func (l *link) close() {
	if l.ends() { // else it is closed
		_, _ = l.conn.Close(), l.client.Close() // nothing is lost with it
	}
}

// seen is what the shard's keys say while they are watched.
type seen struct {
	epoch protocol.Epoch
	head  protocol.Head
}

// watch begins to watch the epoch and the head, and reads both.
func (l *link) watch(ctx context.Context) (seen, error) {
	pipe := l.conn.Pipeline()
	read := l.queueWatch(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, goredis.Nil) {
		return seen{}, err
	}
	return read()
}

// queueWatch adds a watch to a pipeline, and returns what reads its replies.
func (l *link) queueWatch(ctx context.Context, pipe goredis.Pipeliner) func() (seen, error) {
	watched := pipe.Do(ctx, "WATCH", l.keys.epoch(), l.keys.head())
	epoch, head := pipe.Get(ctx, l.keys.epoch()), pipe.Get(ctx, l.keys.head())
	return func() (s seen, err error) {
		if err := watched.Err(); err != nil {
			return s, err
		}
		if s.epoch, err = parsed(epoch, parseEpoch); err != nil {
			return s, fmt.Errorf("key %s: %w", l.keys.epoch(), err)
		}
		if s.head, err = parsed(head, parseHead); err != nil {
			return s, fmt.Errorf("key %s: %w", l.keys.head(), err)
		}
		return s, nil
	}
}

// parsed reads the value of a key; a missing one is empty.
func parsed[T any](reply *goredis.StringCmd, parse func(string) (T, error)) (v T, err error) {
	text, err := reply.Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return v, err
	}
	return parse(text)
}

// sent is what came of a group.
type sent struct {
	reply protocol.Reply
	had   []string // what each lock's key had before, if the group was applied
	acked bool     // enough replicas have it
	next  seen     // of the watch for the next group, if this one was applied
	err   error    // says why not
}

// ackLimit is how long replicas have to acknowledge a group.
const ackLimit = time.Second

// send sends a group under the watch that was set before, and watches for the next one. acks: so many replicas must have it.
func (l *link) send(ctx context.Context, g *group, head protocol.Head, acks int) sent {
	commands, found := g.commands(l.keys, head)
	pipe := l.conn.Pipeline()
	queued := []*goredis.Cmd{pipe.Do(ctx, "MULTI")}
	for _, w := range commands {
		if w[0] == compared {
			w = append(words{"EVAL", lockScript}, w[1:]...)
		}
		queued = append(queued, pipe.Do(ctx, w...))
	}
	exec := pipe.Do(ctx, "EXEC")
	acked := l.queueWait(ctx, pipe, acks)
	next := l.queueWatch(ctx, pipe)
	_, _ = pipe.Exec(ctx) // each command has its error
	replies, err := exec.Slice()
	switch {
	case errors.Is(err, goredis.Nil):
		return sent{reply: protocol.ReplyNil, err: err}
	case err != nil:
		for _, cmd := range queued {
			if cmd.Err() != nil && strings.HasPrefix(cmd.Err().Error(), "OOM ") {
				return sent{reply: protocol.ReplyFull, err: cmd.Err()}
			}
		}
		return sent{reply: protocol.ReplyLost, err: err}
	}
	s := sent{reply: protocol.ReplyApplied, had: had(found, replies), acked: acked()}
	if s.next, err = next(); err != nil {
		return sent{reply: protocol.ReplyLost, err: err}
	}
	return s
}

// drain sends a group as a script, while Redis is full, and watches for the next one.
func (l *link) drain(ctx context.Context, g *group, line protocol.Line, acks int) sent {
	commands, found := g.commands(l.keys, line.Sent)
	args := []any{epochText(line.Sent.Epoch), headText(line.Kept)}
	for _, w := range commands {
		args = append(append(args, len(w)), w...)
	}
	replies, err := groupScript.Run(ctx, l.conn, []string{l.keys.epoch(), l.keys.head()}, args...).Slice()
	switch {
	case errors.Is(err, goredis.Nil):
		return sent{reply: protocol.ReplyNil, err: err}
	case err != nil:
		return sent{reply: protocol.ReplyLost, err: err}
	}
	s := sent{reply: protocol.ReplyApplied, had: had(found, replies)}
	pipe := l.conn.Pipeline()
	acked, next := l.queueWait(ctx, pipe, acks), l.queueWatch(ctx, pipe)
	_, _ = pipe.Exec(ctx) // each command has its error
	s.acked = acked()
	s.next, _ = next() // or the zero value, which no group follows
	return s
}

// queueWait waits for replicas, and returns what reads whether there were enough.
func (l *link) queueWait(ctx context.Context, pipe goredis.Pipeliner, acks int) func() bool {
	if acks == 0 {
		return func() bool { return true }
	}
	has := pipe.Do(ctx, "WAIT", acks, ackLimit.Milliseconds())
	return func() bool {
		n, err := has.Int()
		return err == nil && n >= acks
	}
}

// had are what the keys of locks had before, "" for nothing, by what the commands of a group have returned.
func had(found []int, replies []any) []string {
	texts := make([]string, len(found))
	for i, at := range found {
		if at >= 0 && at < len(replies) {
			texts[i], _ = replies[at].(string)
		}
	}
	return texts
}
