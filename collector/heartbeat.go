package collector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// idleBeat is the time between heartbeats while nothing is held.
	idleBeat = 15 * time.Second

	// maxSilence is the longest that a heartbeat may go unanswered.
	maxSilence = 5 * time.Second

	// minBeat keeps heartbeats apart, whatever a dispatcher asks for.
	minBeat = 100 * time.Millisecond

	// maxBeats and maxBeatBytes bound one message.
	maxBeats     = 1000
	maxBeatBytes = 2 << 20
)

// heartbeat keeps leases alive. Beats go over a stream; while there is none, or it does not answer, by RenewLease. Its
// fields belong to the loop.
type heartbeat struct {
	run     *run
	stream  *beatStream // nil while there is none
	retry   retryDelay  // of opening a stream
	reopen  time.Time   // when to open a stream again
	opened  time.Time   // when the stream was opened
	sooner  time.Time   // when to beat for another stream, in place of one that ended; zero: when a beat is due
	failing retryDelay  // of beats that nobody answered
	silent  []string    // the dispatchers that let the tries of this beat go unanswered
	wanted  time.Duration
}

func newHeartbeat(r *run) *heartbeat { return &heartbeat{run: r} }

// loop beats until nothing needs a lease any more.
func (h *heartbeat) loop() {
	defer func() { h.closeStream() }()
	introduced := sync.OnceFunc(func() { close(h.run.introduced) })
	last := time.Now()
	due := last // the first beat makes the collector known
	for h.run.calling.ctx.Err() == nil {
		if !h.sooner.IsZero() && h.sooner.Before(due) {
			due = h.sooner
		}
		if !h.await(&due, last) {
			return
		}
		if time.Now().Before(due) {
			continue // news came, or leases changed
		}
		last = time.Now()
		if !last.Before(h.reopen) { // else this beat is too early to open another stream
			h.sooner = time.Time{}
		}
		err := h.beat()
		introduced()
		switch {
		case err == nil:
			h.failing.reset()
			due = last.Add(h.interval())
		case isReplaced(err):
			h.run.stop(fmt.Errorf("%w: %w", ErrReplaced, err))
			return
		case h.run.calling.ctx.Err() == nil:
			if status.Code(err) == codes.InvalidArgument {
				// No repetition makes it a beat that is taken, and without beats every lease is lost.
				h.run.stop(fmt.Errorf("heartbeat: %w", err))
			}
			wait := min(h.failing.next(err), h.interval())
			h.sooner = time.Time{}
			h.run.failed(beatCall, err, wait, h.failing.repeated() || h.unheard())
			due = time.Now().Add(wait)
		}
	}
}

// await waits until the next beat is due, or something happens that may change that. It returns false when all is over.
func (h *heartbeat) await(due *time.Time, last time.Time) bool {
	timer := time.NewTimer(time.Until(*due))
	defer timer.Stop()
	var news <-chan *wagglev1.HeartbeatResponse
	var broken <-chan struct{}
	if h.stream != nil {
		news, broken = h.stream.answers, h.stream.broken
	}
	select {
	case <-timer.C:
	case <-h.run.beatNow:
		*due = time.Now()
	case <-h.run.leasesChanged:
		if sooner := last.Add(h.interval()); sooner.Before(*due) {
			*due = sooner
		}
	case answer := <-news:
		h.apply(answer, nil, time.Time{})
	case <-broken:
		if err := h.stream.err; isReplaced(err) {
			h.run.stop(fmt.Errorf("%w: %w", ErrReplaced, err))
			return false
		}
		h.dropStream(h.stream.err)
	case <-h.run.calling.ctx.Done():
		return false
	}
	return true
}

// interval is the time from one beat to the next: a third of the shortest lease, or sooner when the dispatcher wants.
func (h *heartbeat) interval() time.Duration {
	interval := h.run.leases.beatInterval()
	if h.wanted > 0 {
		interval = min(interval, h.wanted)
	}
	return max(interval-jitter(interval/10), minBeat)
}

// impatient ends a call when it has been silent for half of the shortest time between beats, or 5 s: a second try, over
// another connection, still comes in time. A shorter lease that comes in meanwhile makes it less patient. The caller
// stops it.
func (h *heartbeat) impatient(end context.CancelCauseFunc) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		begin := time.Now()
		timer := time.NewTimer(h.patience())
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
				end(errSilent)
				return
			case <-h.run.leasesChanged: // the loop reckons anew after the call anyway
				timer.Reset(time.Until(begin.Add(h.patience())))
			case <-stopped:
				return
			}
		}
	}()
	return func() { close(stopped) }
}

func (h *heartbeat) patience() time.Duration {
	return max(min(h.run.leases.beatInterval()/2, maxSilence), minBeat)
}

// beatPart is a message's worth of leases.
type beatPart struct {
	leases []*lease
	beats  []*wagglev1.LeaseBeat
	noted  []int
}

// beat names all leases, and returns nil once all parts are answered.
func (h *heartbeat) beat() error {
	parts, turnedAway := h.parts(), h.run.turnedAway.Swap(false)
	h.silent = nil
	if h.stream == nil && !time.Now().Before(h.reopen) {
		h.openStream()
	}
	if h.stream != nil {
		answered, err := h.beatStream(parts)
		if isReplaced(err) {
			return err
		}
		if err != nil {
			h.dropStream(err)
		}
		parts = parts[answered:]
	}
	for _, part := range parts {
		if err := h.beatOnce(part); err != nil {
			return err
		}
	}
	if turnedAway && !h.run.stats.snapshot().Drained {
		h.run.troubles.stopping()
	}
	return nil
}

// parts makes the messages of a beat. There is one even when nothing is held.
func (h *heartbeat) parts() []beatPart {
	var parts []beatPart
	var part beatPart
	bytes := 0
	for _, l := range h.run.leases.beaten() {
		beat, noted := l.beat()
		size := proto.Size(beat)
		if len(part.leases) > 0 && (len(part.leases) >= maxBeats || bytes+size > maxBeatBytes) {
			parts = append(parts, part)
			part, bytes = beatPart{}, 0
		}
		part.leases, part.beats, part.noted = append(part.leases, l), append(part.beats, beat), append(part.noted, noted)
		bytes += size
	}
	return append(parts, part)
}

// beatStream beats over the stream, one part after another, and returns how many were answered. Without an error the rest
// has no stream any more.
func (h *heartbeat) beatStream(parts []beatPart) (answered int, err error) {
	stream := h.stream
	for i, part := range parts {
		sent := time.Now()
		answer, err := h.exchange(stream, part)
		to, _ := peer.FromContext(stream.client.Context())
		h.heard(stream.ctx, to, err)
		if err != nil {
			return i, err
		}
		h.retry.reset()
		h.apply(answer, &part, sent)
		if h.stream == nil {
			return i + 1, nil // the dispatcher wants a new one
		}
	}
	return len(parts), nil
}

// exchange sends a beat and waits for its answer. It takes the news that come before it.
func (h *heartbeat) exchange(stream *beatStream, part beatPart) (*wagglev1.HeartbeatResponse, error) {
	stop := h.impatient(stream.end)
	defer stop()
	if err := stream.send(&wagglev1.HeartbeatRequest{Collector: h.run.info(), Leases: part.beats}); err != nil {
		return nil, err
	}
	for {
		select {
		case answer := <-stream.answers:
			if answer.GetNextHeartbeat() != nil {
				return answer, nil
			}
			h.apply(answer, nil, time.Time{})
		case <-stream.broken:
			return nil, stream.err
		}
	}
}

// beatOnce is a beat as a plain call.
func (h *heartbeat) beatOnce(part beatPart) error {
	call := newLife(h.run.calling.ctx)
	defer call.end(nil)
	stop := h.impatient(call.end)
	defer stop()
	sent := time.Now()
	var to peer.Peer
	request := &wagglev1.RenewLeaseRequest{Collector: h.run.info(), Leases: part.beats}
	answer, err := h.run.control.RenewLease(call.ctx, request, grpc.Peer(&to))
	h.heard(call.ctx, &to, err)
	if err != nil && errors.Is(context.Cause(call.ctx), errSilent) {
		return errSilent // and not that the call was canceled for it
	}
	if err != nil {
		return err
	}
	h.apply(&wagglev1.HeartbeatResponse{
		LeaseDuration: answer.GetLeaseDuration(), Lost: answer.GetLost(), Cancel: answer.GetCancel(),
		Drain: answer.GetDrain(), NextHeartbeat: answer.GetNextHeartbeat(), Limited: answer.GetLimited(),
	}, &part, sent)
	return nil
}

// heard notes which dispatcher has answered a beat, or has not in time, which ended ctx.
func (h *heartbeat) heard(ctx context.Context, to *peer.Peer, err error) {
	switch {
	case to == nil || to.Addr == nil:
	case err == nil:
		h.run.attendance.answers(to.Addr.String())
	case errors.Is(context.Cause(ctx), errSilent):
		h.run.attendance.unanswered(to.Addr.String())
		h.silent = append(h.silent, to.Addr.String())
	}
}

// unheard reports whether a beat was tried twice, over the stream and by a call, and neither was answered in time, so that
// it is an outage without another repetition: unless both went to one dispatcher, and there are others.
func (h *heartbeat) unheard() bool {
	return len(h.silent) > 1 && (h.silent[0] != h.silent[1] || !h.run.attendance.othersServe(h.silent[0]))
}

// apply takes an answer in. part is what it answers; nil for news that answer nothing.
func (h *heartbeat) apply(answer *wagglev1.HeartbeatResponse, part *beatPart, sent time.Time) {
	r := h.run
	r.answered(beatCall)
	for _, lost := range answer.GetLost() {
		r.lose(lost)
	}
	for _, notice := range answer.GetCancel() {
		r.cancelTask(notice)
	}
	if part != nil || answer.GetDrain() {
		r.setDrained(answer.GetDrain())
	}
	if part != nil {
		h.renew(answer, part, sent)
		h.wanted = answer.GetNextHeartbeat().AsDuration()
	}
	if answer.GetReconnect() {
		r.troubles.stopping()
		h.closeStream()
		h.reopen = time.Now().Add(jitter(minBackoff))
	}
}

// renew moves the deadlines of what a beat named. Those that are lost ignore it.
func (h *heartbeat) renew(answer *wagglev1.HeartbeatResponse, part *beatPart, sent time.Time) {
	limited := make(map[string]time.Duration, len(answer.GetLimited()))
	for _, l := range answer.GetLimited() {
		limited[l.GetTaskId()] = l.GetDuration().AsDuration()
	}
	for i, l := range part.leases {
		duration, isLimited := limited[l.task.ID]
		if !isLimited {
			duration = answer.GetLeaseDuration().AsDuration()
		}
		if duration > 0 { // else the store did not answer: its deadline stands, its cursor goes again
			l.renew(sent, duration)
			l.acknowledge(part.noted[i])
		}
	}
}

// lose ends the work on a lease that a dispatcher says is gone.
func (r *run) lose(lost *wagglev1.LostLease) {
	l := r.leases.find(lost.GetLeaseToken(), lost.GetTaskId())
	if l == nil {
		return
	}
	level := zap.InfoLevel
	if lost.GetReason() == wagglev1.LostReason_LOST_REASON_SETTLED {
		level = zap.DebugLevel // the beat crossed this collector's own report: all is well
	}
	r.log.Log(level, "lease lost", zap.String("task_id", lost.GetTaskId()), zap.Stringer("reason", lost.GetReason()))
	l.lose(lost.GetReason())
}

// setDrained stops fetching while operators want this collector drained. It beats once more, as the last beat told that it
// did otherwise, and the next one may be long in coming.
func (r *run) setDrained(drained bool) {
	if r.stats.setDrained(drained) {
		r.log.Info("operators changed whether this collector fetches", zap.Bool("drained", drained))
		r.outbox.hold(drained)
		signal(r.slotFree)
		signal(r.beatNow)
	}
}

// cancelTask ends the work on a task that somebody wants ended.
func (r *run) cancelTask(notice *wagglev1.CancelNotice) {
	if l := r.leases.find("", notice.GetTaskId()); l != nil {
		l.end(fmt.Errorf("%w: %s", ErrCanceled, word(notice.GetReason().String(), "CANCEL_REASON_")))
	}
}

var errSilent = errors.New("no answer to a heartbeat in time")
