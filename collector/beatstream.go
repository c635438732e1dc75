package collector

import (
	"time"

	"go.uber.org/zap"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// nextStream bounds how long it takes until a stream that ended is replaced by another: collectors that lost theirs
// together spread over half of it.
const nextStream = time.Second

// beatStream is an open heartbeat stream.
type beatStream = stream[wagglev1.HeartbeatRequest, wagglev1.HeartbeatResponse]

// openStream opens a stream on any dispatcher. When that fails it is tried again later; beats go as calls meanwhile.
func (h *heartbeat) openStream() {
	life := newLife(h.run.calling.ctx)
	stop := h.impatient(life.end)
	client, err := h.run.control.Heartbeat(life.ctx)
	stop()
	if err != nil {
		life.end(err)
		h.dropStream(err)
		return
	}
	h.stream, h.opened = readStream(life, client), time.Now()
	h.run.stats.setStreaming(true)
}

// dropStream gives a stream up that failed, or could not be had, and puts the next one off. Beats go as single calls
// meanwhile: whether those are answered is what matters.
func (h *heartbeat) dropStream(err error) {
	h.closeStream()
	wait := h.retry.next(err)
	h.reopen = time.Now().Add(wait)
	if !h.sooner.IsZero() && h.sooner.Before(h.reopen) {
		h.sooner = h.reopen
	}
	switch {
	case h.run.calling.ctx.Err() != nil:
	case isOutage(err):
		h.run.log.Debug("no heartbeat stream, beats go as single calls", zap.Duration("retry_in", wait), zap.Error(err))
	default:
		h.run.failed(streamCall, err, wait, h.retry.repeated())
	}
}

// closeStream ends the stream, if there is one, and waits for its reader. Who waits for a cancel hears of it by a stream
// only: another one is had soon, and not with the next beat, which may be far off. One that has not lasted from a beat to
// the next is not worth another beat.
func (h *heartbeat) closeStream() {
	if h.stream == nil {
		return
	}
	h.stream.close()
	h.stream = nil
	h.run.stats.setStreaming(false)
	if interval := h.interval(); time.Since(h.opened) >= interval {
		h.sooner = time.Now().Add(jitter(min(nextStream, interval)))
	}
}
