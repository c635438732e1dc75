package collector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// maxSilence is the longest that a heartbeat may go unanswered.
	maxSilence = 5 * time.Second

	// minBeat keeps heartbeats apart, whatever a dispatcher asks for.
	minBeat = 100 * time.Millisecond

	// nextStream bounds how long it takes until a stream that ended is replaced by another: collectors that lost theirs
	// together spread over half of it.
	nextStream = time.Second

	// maxBeats and maxBeatBytes bound one message.
	maxBeats     = 1000
	maxBeatBytes = 2 << 20
)

// heartbeat keeps leases alive, and acts on what dispatchers push. Beats go over the stream that all calls share; while there is none,
// or it does not answer, by RenewLease. Its fields belong to the loop.
type heartbeat struct {
	run     *run
	stream  *workStream // nil while there is none
	retry   retryDelay  // of opening a stream
	reopen  time.Time   // when to open a stream again
	sooner  time.Time   // when to beat for another stream, in place of one that ended; zero: when a beat is due
	failing retryDelay  // of beats that nobody answered
	wanted  time.Duration
}

// loop beats until nothing needs a lease any more.
func (h *heartbeat) loop() {
	defer h.closeStream()
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
			h.run.failed(beatCall, err, wait, h.failing.repeated())
			due = time.Now().Add(wait)
		}
	}
}

// await waits until the next beat is due, or something happens that may change that. It returns false when all is over.
func (h *heartbeat) await(due *time.Time, last time.Time) bool {
	var pushed <-chan *wagglev1.HeartbeatResponse
	var broken <-chan struct{}
	if h.stream != nil {
		pushed, broken = h.stream.messages, h.stream.broken
	}
	select {
	case <-time.After(time.Until(*due)):
	case <-h.run.beatNow:
		*due = time.Now()
	case <-h.run.leasesChanged:
		if sooner := last.Add(h.interval()); sooner.Before(*due) {
			*due = sooner
		}
		h.leave()
	case message := <-pushed:
		h.act(message)
		h.leave()
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

// impatient ends a call that has no answer after half of the shortest time between beats, or 5 s: a second try still comes in
// time. A shorter lease that is granted meanwhile shortens the wait. The caller stops it.
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
			case <-h.run.leasesChanged: // the loop computes anew after the call
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
	parts := h.parts()
	if h.stream != nil && h.stream.conn != h.run.controlConn.latest() {
		h.closeStream() // the next one shows the new certificate
	}
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
		if errors.Is(err, errSilent) {
			h.failing.next(nil) // the call that follows is a repetition: where it fails too, that is an outage
		}
		parts = parts[answered:]
	}
	for _, part := range parts {
		if err := h.beatOnce(part); err != nil {
			return err
		}
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
	for i, part := range parts {
		sent := time.Now()
		answer, err := h.exchange(part)
		if err != nil {
			return i, err
		}
		h.retry.reset()
		if h.run.stream.Swap(h.stream) != h.stream {
			h.run.fetchConn.renew()
		}
		h.answered(answer, part, sent)
		if h.leave() {
			return i + 1, nil
		}
	}
	return len(parts), nil
}

// exchange sends a beat over the stream and waits for its answer. What is pushed before that is no answer to it, but is
// acted on at once.
func (h *heartbeat) exchange(part beatPart) (*wagglev1.HeartbeatResponse, error) {
	stop := h.impatient(h.stream.end)
	defer stop()
	if err := h.stream.beat(&wagglev1.HeartbeatRequest{Collector: h.run.info(), Leases: part.beats}); err != nil {
		return nil, err
	}
	for {
		select {
		case message := <-h.stream.messages:
			if message.GetStatus().GetNextHeartbeat() != nil {
				return message, nil
			}
			h.act(message)
		case <-h.stream.broken:
			return nil, h.stream.err
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
	answer, err := h.run.control.RenewLease(call.ctx, &wagglev1.RenewLeaseRequest{Collector: h.run.info(), Leases: part.beats})
	if err != nil && errors.Is(context.Cause(call.ctx), errSilent) {
		return errSilent // not the cancellation that it caused
	}
	if err != nil {
		return err
	}
	h.answered(&wagglev1.HeartbeatResponse{Status: answer.GetStatus()}, part, sent)
	return nil
}

// answered takes in the answer to a beat.
func (h *heartbeat) answered(answer *wagglev1.HeartbeatResponse, part beatPart, sent time.Time) {
	h.run.answered(beatCall)
	h.act(answer)
	h.renew(answer.GetStatus(), part, sent)
	h.wanted = answer.GetStatus().GetNextHeartbeat().AsDuration()
}

// act handles a message: the answer to a beat, or one that was pushed. Each reports whether a hold stops the collector.
func (h *heartbeat) act(message *wagglev1.HeartbeatResponse) {
	for _, lost := range message.GetStatus().GetLost() {
		h.run.lose(lost)
	}
	for _, notice := range message.GetStatus().GetCancel() {
		h.run.cancelTask(notice)
	}
	h.run.setHeld(message.GetStatus().GetHeld())
	if message.GetReconnect() && h.stream != nil {
		h.run.troubles.stopping()
		h.stream.leaving.Store(true)
	}
}

// openStream opens a stream on any dispatcher. When that fails it is tried again later; beats go as calls meanwhile.
func (h *heartbeat) openStream() {
	life := newLife(h.run.calling.ctx)
	stop := h.impatient(life.end)
	conn := h.run.controlConn.latest()
	stream, err := openStream(life, h.run.control)
	stop()
	if err != nil {
		h.dropStream(err)
		return
	}
	stream.conn, h.stream = conn, stream
	h.run.stats.change(func(s *Stats) { s.Streaming = true })
}

// dropStream closes a stream that failed, or was not opened, and delays the next one. Beats go as single calls meanwhile.
func (h *heartbeat) dropStream(err error) {
	h.closeStream()
	wait := h.retry.next(err)
	h.reopen = time.Now().Add(wait)
	if !h.sooner.IsZero() && h.sooner.Before(h.reopen) {
		h.sooner = h.reopen
	}
	switch {
	case h.run.calling.ctx.Err() != nil:
	case isOutage(err), status.Code(err) == codes.Unimplemented:
		h.run.log.Debug("no stream; calls are plain ones", zap.Duration("retry_in", wait), zap.Error(err))
	default:
		h.run.failed(streamCall, err, wait, h.retry.repeated())
	}
}

// leave closes the stream if its dispatcher wants it replaced, and reports whether it did.
func (h *heartbeat) leave() bool {
	if h.stream == nil || !h.stream.leaving.Load() {
		return false
	}
	h.closeStream()
	h.reopen = time.Now().Add(jitter(minBackoff))
	return true
}

// closeStream ends the stream, if there is one, or leaves it, if its dispatcher asks for that. Cancels and holds are pushed on streams only, so the
// next stream does not wait for the next beat, unless this one lasted less than a beat's interval.
func (h *heartbeat) closeStream() {
	if h.stream == nil {
		return
	}
	opened := h.stream.opened
	h.run.stream.Store(nil)
	if h.stream.leaving.Load() {
		h.stream.leave()
	} else {
		h.stream.close()
	}
	h.stream = nil
	h.run.stats.change(func(s *Stats) { s.Streaming = false })
	if interval := h.interval(); time.Since(opened) >= interval {
		h.sooner = time.Now().Add(jitter(min(nextStream, interval)))
	}
}

// renew moves the deadlines of what a beat named. Those that are lost ignore it.
func (h *heartbeat) renew(answer *wagglev1.LeaseStatus, part beatPart, sent time.Time) {
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

// setHeld stops fetching while a hold stops this collector.
func (r *run) setHeld(held bool) {
	changed := false
	r.stats.change(func(s *Stats) { changed, s.Held = s.Held != held, held })
	switch {
	case !changed:
		return
	case held:
		r.log.Info("a hold stops this collector; it fetches no tasks")
	default:
		r.log.Info("no hold stops this collector any more; it fetches again")
	}
	signal(r.slotFree)
}

// cancelTask ends the work on a task that somebody wants ended.
func (r *run) cancelTask(notice *wagglev1.CancelNotice) {
	l := r.leases.find("", notice.GetTaskId())
	switch {
	case l == nil:
	case notice.GetReason() == wagglev1.CancelReason_CANCEL_REASON_HELD:
		l.end(ErrHeld)
	default:
		l.end(fmt.Errorf("%w: %s", ErrCanceled, strings.TrimPrefix(notice.GetReason().String(), "CANCEL_REASON_")))
	}
}
