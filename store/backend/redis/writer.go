package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// writer sends the groups of a shard, one at a time, for a term.
type writer struct {
	*shard
	own   protocol.Epoch
	link  *link // nil: there is none
	armed bool  // the link watches, and has read the owner's epoch and the head that the next group follows
}

var (
	// errReload: memory is not the latest state of the shard.
	errReload = errors.New("what is kept is not what this owner has written")
	// errRewrite: a failover has lost what this owner has written.
	errRewrite = errors.New("a failover has lost groups of this owner")
)

// write sends groups until ctx or the term ends. First kept gets whether what is in memory is what is kept, so far as it can be written
// again; else the shard is to be loaded.
func (s *shard) write(ctx context.Context, kept chan<- bool) error {
	w := &writer{shard: s, own: s.epoch()}
	defer w.drop()
	has, err := w.begin(ctx)
	if err != nil {
		return err
	}
	kept <- has
	for {
		f, err := w.next(ctx)
		switch {
		case err != nil:
		case f != nil:
			err = w.keep(ctx, f)
		default:
			_, err = w.settle(ctx)
		}
		if errors.Is(err, errRewrite) {
			if err = w.rewrite(ctx); err == nil {
				signal(w.rewrote)
			}
		}
		if err != nil {
			return err
		}
	}
}

// begin finds out whether memory of an earlier term is what is kept. A rewrite that was under way begins again, but what the owner has
// not taken in cannot be written.
func (w *writer) begin(ctx context.Context) (kept bool, err error) {
	w.mu.Lock()
	loaded, rewriting := w.line.Loaded, w.rewriting
	w.mu.Unlock()
	if !loaded {
		return w.takeOver(ctx)
	}
	confirmed, err := w.settle(ctx)
	w.mu.Lock()
	unplaced := w.unplaced
	w.mu.Unlock()
	switch {
	case errors.Is(err, errReload) && w.number != 0, unplaced && (rewriting || errors.Is(err, errRewrite)):
		w.forget()
		return false, nil
	case errors.Is(err, errRewrite), err == nil && rewriting:
		return true, w.rewrite(ctx)
	case err != nil:
		return false, err
	case unplaced:
	case !w.open(w.own):
		return false, errNotOwner
	case confirmed:
		err = w.answer(ctx, nil, false)
	}
	return true, err
}

// takeOver finds out whether what this dispatcher has as a standby is what is kept.
func (w *writer) takeOver(ctx context.Context) (kept bool, err error) {
	var found seen
	err = w.again(ctx, "read the head", func(asking context.Context) error {
		w.drop()
		l, err := w.b.connect(ctx, w.keys)
		if w.link = l; err == nil {
			found, err = l.watch(asking)
		}
		return err
	})
	switch {
	case err != nil:
		return false, err
	case found.epoch != w.own:
		return false, errNotOwner
	}
	kept, err = w.standby.takeOver(found.head)
	if err != nil || !kept {
		return false, err
	}
	w.armed = true
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begins(found.head)
	w.unplaced = true
	w.b.counts.warm.Add(1)
	return true, nil
}

// forget drops memory that is not the latest state: the shard is loaded anew.
func (w *writer) forget() {
	w.log.Warn("what this owner had in memory of the shard is not the latest state: it is loaded anew")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line, w.queue, w.rewriting, w.unplaced = protocol.Line{}, nil, false, false
}

// next takes the next group that is to be sent, or returns without one when the head must be read.
func (w *writer) next(ctx context.Context) (*pendingGroup, error) {
	for {
		w.mu.Lock()
		reread := w.reread
		w.reread = false
		w.startFeed()
		var f *pendingGroup
		if len(w.queue) > 0 {
			f = w.queue[0]
			f.sealed = true
		}
		w.mu.Unlock()
		if reread {
			w.armed = false
			return nil, ctx.Err()
		}
		if f != nil {
			return f, w.waitAfter(ctx, f)
		}
		select {
		case <-w.awake:
		case <-w.inDoubt():
			w.queueEmpty()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// inDoubt has a value soon, if there is a doubt; nil: there is none.
func (w *writer) inDoubt() <-chan time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.doubt == nil {
		return nil
	}
	return time.After(w.b.config.term / beatsOfTerm)
}

// queueEmpty queues a group of nothing: when enough replicas have it, a doubt is over. Calls that repeat what is in memory make no group.
// Before memory is what is kept there is no head for it, and a release does not wait for one that comes again and again.
func (w *writer) queueEmpty() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 && w.closed == nil && !w.b.flushing.isSet() {
		f := newPending()
		f.whole, f.raw = true, binary.LittleEndian.AppendUint64(nil, uint64(w.b.clock.now().UnixMicro()))
		w.queue = append(w.queue, f)
	}
}

// waitAfter waits until the group of shard 0 is kept that a group follows.
func (w *writer) waitAfter(ctx context.Context, f *pendingGroup) error {
	if f.after == nil {
		return ctx.Err()
	}
	select {
	case <-f.after.kept:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keep sends the first group until it is kept.
func (w *writer) keep(ctx context.Context, f *pendingGroup) error {
	began := time.Now()
	w.nextHead(&f.group, false)
	w.feedGroup(f)
	result, err := w.apply(ctx, &f.group)
	if err != nil {
		return err
	}
	c := w.b.counts
	c.groups.Add(1)
	c.groupBytes.Add(int64(f.group.bytes))
	c.groupTime.Add(int64(time.Since(began)))
	if kept := w.b.kept.Load(); kept != nil {
		(*kept)(f.group.bytes, time.Since(f.began))
	}
	return w.answer(ctx, result.had, result.acked)
}

// answer ends the first group of the queue: it is kept. had is what its locks had before; nil if nobody knows.
func (w *writer) answer(ctx context.Context, had []string, acked bool) error {
	w.mu.Lock()
	f := w.queue[0]
	w.mu.Unlock()
	if err := w.reportUnlocked(ctx, f, had); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = w.queue[1:]
	switch {
	case w.b.config.AckReplicas == 0:
	case !acked:
		w.doubt = cmp.Or(w.doubt, new(doubt))
		f.doubt = w.doubt
	case w.doubt != nil:
		w.doubt.over.Store(true)
		w.doubt = nil
	}
	close(f.kept)
	f.end(nil)
	if len(w.queue) == 0 {
		signal(w.settled)
	}
	return nil
}

// reportUnlocked reports to the owner which locks of a group are not as they must be. What it returns is answered before the group.
func (w *writer) reportUnlocked(ctx context.Context, f *pendingGroup, had []string) error {
	bad, err := w.unlocked(ctx, f.group.locks, had)
	if err != nil || len(bad) == 0 {
		return err
	}
	then, err := w.b.owner.Unlocked(w.number, bad)
	if err != nil { // the group is sent again in the next term
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.then = then
	return nil
}

// again calls what asks Redis until it has an answer, or ctx ends.
func (s *shard) again(ctx context.Context, what string, ask func(context.Context) error) error {
	for {
		asking, cancel := context.WithTimeout(ctx, s.b.config.term)
		err := ask(asking)
		cancel()
		switch {
		case err == nil, errors.Is(err, errNotOwner):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		s.warned.Do(func() { s.log.Warn("cannot "+what+" of the shard", zap.Error(err)) })
		if err := sleep(ctx, s.b.config.term/looksOfTerm); err != nil {
			return err
		}
	}
}

// ask is again for what the server of the shard is asked.
func (s *shard) ask(ctx context.Context, what string, ask func(context.Context, *goredis.Client) error) error {
	return s.again(ctx, what, func(ctx context.Context) error {
		node, err := s.b.node(ctx, s.keys.head())
		if err == nil {
			err = ask(ctx, node)
		}
		return err
	})
}

// nextHead gives a group the head that it writes. The difference of two sequences is how many changes of tasks are between.
func (w *writer) nextHead(g *group, rewriting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = w.line.Next(w.own, 0, g.tasks, rewriting)
}

// apply sends a group that has its number until it is kept.
func (w *writer) apply(ctx context.Context, g *group) (result sent, err error) {
	for tries := 0; ; tries++ {
		if !w.armed {
			confirmed, err := w.settle(ctx)
			if err != nil || confirmed {
				return sent{}, err
			}
		}
		result = w.sendOnce(ctx, g)
		switch protocol.AfterSend(result.reply) {
		case protocol.Confirm:
			w.confirm()
			return result, nil
		case protocol.Script:
		default:
			w.armed = false
			w.warned.Do(func() { w.log.Warn("the outcome of a group is not known: reading what is kept", zap.Error(result.err)) })
			if tries > 0 {
				if err := sleep(ctx, w.b.config.term/looksOfTerm); err != nil {
					return sent{}, err
				}
			}
		}
	}
}

// sendOnce sends a group once.
func (w *writer) sendOnce(ctx context.Context, g *group) (result sent) {
	limit := w.b.config.term * 2 / 3
	if w.b.config.AckReplicas > 0 {
		limit += ackLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w.mu.Lock()
	line, full := w.line, w.memory.refused
	w.mu.Unlock()
	if full {
		result = w.link.drain(ctx, g, line, w.b.config.AckReplicas)
	} else {
		result = w.link.send(ctx, g, line.Sent, w.b.config.AckReplicas)
	}
	if result.reply == protocol.ReplyFull {
		w.mu.Lock()
		w.memory.refused = true
		w.mu.Unlock()
		return result // the script compares by itself
	}
	w.armed = result.reply == protocol.ReplyApplied && protocol.Compare(w.own, result.next.epoch, line.Sent, result.next.head)
	return result
}

// settle connects anew and reads what is kept. It reports whether the group whose outcome was not known is.
func (w *writer) settle(ctx context.Context) (confirmed bool, err error) {
	var kept seen
	err = w.again(ctx, "read the head", func(asking context.Context) error {
		w.drop()
		l, err := w.b.connect(ctx, w.keys)
		if w.link = l; err == nil {
			kept, err = l.watch(asking)
		}
		return err
	})
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	line := w.line
	w.mu.Unlock()
	switch line.Resolve(w.own, kept.epoch, kept.head) {
	case protocol.Confirm:
		w.confirm()
		w.armed = true
		return true, nil
	case protocol.Resend:
		w.armed = true
		return false, nil
	case protocol.Rewrite:
		w.mu.Lock()
		w.line = line.Rewritten(kept.head)
		w.mu.Unlock()
		w.armed = true
		return false, errRewrite
	case protocol.StepDown:
		w.b.counts.refuse(w.b.clock.now())
		return false, errNotOwner
	default:
		return false, errReload
	}
}

// confirm notes that the group that was sent is kept.
func (w *writer) confirm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = w.line.Confirmed()
}

// drop closes the link: what it answers later is not waited for.
func (w *writer) drop() {
	if w.link != nil {
		w.link.close()
		w.link, w.armed = nil, false
	}
}
