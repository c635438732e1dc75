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
	// taken are the flights that were taken to be kept and are not answered, in order.
	taken []*flight
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
		err := w.next(ctx)
		if err == nil {
			err = w.keep(ctx)
		}
		if err != nil {
			w.stepDown(err)
			for _, f := range w.taken {
				f.end(err)
			}
			return err
		}
	}
}

// next takes the next flight, or returns without one when there is a doubt about the head.
func (w *writer) next(ctx context.Context) error {
	for {
		w.mu.Lock()
		doubt := w.doubt
		w.doubt = false
		if len(w.waiting) > 0 {
			w.taken, w.waiting = append(w.taken, w.waiting[0]), w.waiting[1:]
		}
		w.mu.Unlock()
		if w.armed = w.armed && !doubt; doubt || len(w.taken) > 0 {
			return nil
		}
		select {
		case <-w.awake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// keep sends the group of the flight that was taken until it is kept. Without a flight it only looks whether all is.
func (w *writer) keep(ctx context.Context) error {
	var g *group
	if len(w.taken) > 0 {
		g = &w.taken[0].group
	}
	found, err := w.apply(ctx, g, false)
	if errors.Is(err, errRewrite) {
		found, err = nil, w.rewrite(ctx)
	}
	if err != nil {
		return err
	}
	return w.answer(ctx, found)
}

// answer ends the flights that were taken: they are kept. found is what the locks had before, if there is one flight; nil if nobody
// knows.
func (w *writer) answer(ctx context.Context, found []string) (err error) {
	for len(w.taken) > 0 {
		f := w.taken[0]
		if f.bare, err = w.bare(ctx, f, found); err != nil {
			return err
		}
		w.taken = w.taken[1:]
		f.end(w.inTerm())
	}
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
				if err := sleep(ctx, w.config.term/looksOfTerm); err != nil {
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
				result = w.link.send(ctx, g, line.Sent, w.config.ackReplicas, w.config.term)
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
	ctx, cancel := context.WithTimeout(ctx, w.config.term)
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
