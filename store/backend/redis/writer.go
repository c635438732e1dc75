package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// writer sends the groups of a shard, one at a time, for as long as the shard is owned.
type writer struct {
	*shard
	link  *link
	armed bool // the link watches, and has read the owner's epoch and the head that the next group follows
	full  bool // Redis has refused the group since it was full
}

var (
	// errReload: memory is not the latest state of the shard.
	errReload = errors.New("what is kept is not what this owner has written")
	// errRewrite: a failover has lost what this owner has written.
	errRewrite = errors.New("a failover has lost groups of this owner")
)

// writing sends groups until ctx ends or the shard is lost.
func (s *shard) writing(ctx context.Context) error {
	w := &writer{shard: s}
	defer w.drop()
	for {
		f, doubt, err := w.next(ctx)
		if err == nil {
			w.armed = w.armed && !doubt
			err = w.keep(ctx, f)
		}
		if err != nil {
			w.stepDown(err)
			if f != nil {
				f.end(err)
			}
			return err
		}
	}
}

// next waits for groups, or for a doubt about the head; then there may be no group.
func (w *writer) next(ctx context.Context) (f *flight, doubt bool, err error) {
	for {
		w.mu.Lock()
		doubt, w.doubt = w.doubt, false
		if len(w.waiting) > 0 {
			f, w.waiting = w.waiting[0], w.waiting[1:]
		}
		w.mu.Unlock()
		if f != nil || doubt {
			return f, doubt, nil
		}
		select {
		case <-w.awake:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// keep sends the group of a flight until it is kept. Without a flight it only looks whether all is.
func (w *writer) keep(ctx context.Context, f *flight) error {
	var g *group
	if f != nil {
		g = &f.group
	}
	found, err := w.apply(ctx, g, false)
	if errors.Is(err, errRewrite) {
		return w.rewrite(ctx, f)
	}
	if err != nil || f == nil {
		return err
	}
	return w.answer(ctx, f, found)
}

// answer ends a flight whose group is kept. found is what its locks had before; nil if nobody knows.
func (w *writer) answer(ctx context.Context, f *flight, found []string) (err error) {
	if f.bare, err = w.bare(ctx, f, found); err != nil {
		return err
	}
	f.end(w.inTerm())
	return nil
}

// apply sends a group until it is kept, and returns what its locks had before; nil if the answer was lost. Without a group it only
// reads what is kept.
func (w *writer) apply(ctx context.Context, g *group, rewriting bool) (found []string, err error) {
	w.mu.Lock()
	own := w.own
	if g != nil {
		w.line = w.line.Next(own, 0, rewriting)
	}
	line := w.line
	w.mu.Unlock()
	step := protocol.ReadBack
	if w.armed {
		step = protocol.Resend
	}
	for {
		var result sent
		switch step {
		case protocol.ReadBack:
			kept, err := w.readBack(ctx)
			if err != nil {
				w.log.Warn("cannot read what is kept of the shard")
				if err := sleep(ctx, w.config.Term/looksOfTerm); err != nil {
					return nil, err
				}
				continue
			}
			if step = line.Resolve(own, kept.epoch, kept.head); step == protocol.Rewrite {
				w.mu.Lock()
				w.line = line.Rewritten(kept.head)
				w.mu.Unlock()
			}
			w.armed = step == protocol.Resend || step == protocol.Rewrite
			continue
		case protocol.Resend, protocol.Script:
			switch {
			case g == nil:
				return nil, nil
			case step == protocol.Script || w.full:
				result = w.link.drain(ctx, g, own, line.Kept, line.Sent)
				w.full, w.armed = false, false
			default:
				result = w.link.send(ctx, g, line.Sent, w.config.AckReplicas, w.config.Term)
				w.full = result.reply == protocol.ReplyFull
				w.armed = result.reply == protocol.ReplyApplied && protocol.Compare(own, result.next.epoch, line.Sent, result.next.head)
			}
			found = result.found
			step = protocol.AfterSend(result.reply)
		case protocol.Confirm:
			w.confirm(line)
			return found, nil
		case protocol.Rewrite:
			return nil, errRewrite
		case protocol.StepDown:
			return nil, errNotOwner
		case protocol.Reload:
			return nil, errReload
		}
	}
}

// confirm notes that the group of a line is kept.
func (w *writer) confirm(line protocol.Line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if line.Sent != (protocol.Head{}) {
		w.line = line.Confirmed()
	}
}

// inTerm is an error if the owner may not answer any more.
func (w *writer) inTerm() error {
	until, err := w.until()
	if err == nil && !time.Now().Before(until) {
		err = fmt.Errorf("%w: the ownership of shard %d was not renewed in time", dispatch.ErrStoreUnavailable, w.number)
	}
	return err
}

// readBack connects anew and reads what is kept.
func (w *writer) readBack(ctx context.Context) (seen, error) {
	ctx, cancel := context.WithTimeout(ctx, w.config.Term)
	defer cancel()
	w.drop()
	options, err := w.options(ctx)
	if err != nil {
		return seen{}, err
	}
	w.link = newLink(options, w.keys)
	return w.link.watch(ctx)
}

// drop closes the link: what it answers later is not waited for.
func (w *writer) drop() {
	if w.link != nil {
		_ = w.link.close() // nothing is lost with it
		w.link, w.armed = nil, false
	}
}

// bare are the tasks whose grant in a flight has no lock, since somebody else has set it. Where nobody knows what a lock had before, it
// is read.
func (w *writer) bare(ctx context.Context, f *flight, found []string) (bare []dispatch.TaskID, err error) {
	for i, l := range f.group.locks {
		if l.write != lockGrant {
			continue
		}
		var has string
		if found != nil {
			has = found[i]
		} else if has, err = w.client.Get(ctx, w.keys.lock(l.task)).Result(); errors.Is(err, goredis.Nil) {
			has = "nothing" // it has run out, or a failover has lost it
		} else if err != nil {
			return nil, err
		}
		if has != "" && has != l.token {
			bare = append(bare, l.task)
		}
	}
	return bare, nil
}
