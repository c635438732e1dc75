package engine

import (
	"context"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// lanes settle reports of plain success, which need no read and delay no others, of many callers together: those of a shard that come
// while the ones before are being kept are one change. Without lanes and [Standing], a task of a Work stream takes 1.3 times as much of
// the dispatcher's time, and 1.6 times with Redis (deploy/bench, -workload streamed).
type lanes struct {
	d *Dispatcher

	mu  sync.Mutex // guards what follows
	all map[int]*lane
}

// lane is the reports of one shard.
type lane struct {
	coming []*laneReports
	wake   chan struct{} // nil: nobody settles them
}

// laneReports are the reports of one call. done is called once.
type laneReports struct {
	collector string
	reports   []dispatch.Report
	results   []ReportResult
	done      func([]ReportResult, error)
}

// laneIdle is how long a goroutine waits for the next reports of a shard: its stack has grown to what they take.
const laneIdle = time.Second

// laneOf is the shard of reports that can be settled in a lane.
func (d *Dispatcher) laneOf(reports []dispatch.Report) (shard int, ok bool) {
	for i := range reports {
		of := d.shardOf(reports[i].ID)
		if _, plain := d.policy.Unread(&reports[i]); !plain || i > 0 && of != shard {
			return 0, false
		}
		shard = of
	}
	return shard, len(reports) > 0
}

// Settle is [Dispatcher.Report] for a caller that does not wait: done is called once, from another goroutine, and must not block.
// It returns false, and does nothing, if only Report can settle them.
func (d *Dispatcher) Settle(collector string, reports []dispatch.Report, done func([]ReportResult, error)) bool {
	shard, ok := d.laneOf(reports)
	if ok {
		d.activity.note(collector)
		d.lanes.add(shard, &laneReports{collector: collector, reports: reports, done: done})
	}
	return ok
}

func (l *lanes) add(shard int, r *laneReports) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.all[shard]
	if of == nil {
		of = new(lane)
		l.all[shard] = of
	}
	of.coming = append(of.coming, r)
	if of.wake != nil {
		select {
		case of.wake <- struct{}{}:
		default:
		}
		return
	}
	of.wake = make(chan struct{}, 1)
	if !l.d.pump.Background(func(ctx context.Context) { l.settle(ctx, of) }) {
		go func() {
			ended, end := context.WithCancel(context.Background()) //nolint:forbidigo // it ends with what has come
			end()
			l.settle(ended, of)
		}()
	}
}

// settle settles what comes in a lane, until nothing comes for a while, or ctx has ended.
func (l *lanes) settle(ctx context.Context, of *lane) {
	idle := time.NewTimer(laneIdle)
	defer idle.Stop()
	for over := false; ; {
		l.mu.Lock()
		batch := of.coming
		of.coming = nil
		if len(batch) == 0 && over {
			of.wake = nil
			l.mu.Unlock()
			return
		}
		wake := of.wake
		l.mu.Unlock()
		for len(batch) > 0 {
			batch = batch[l.settleSome(context.WithoutCancel(ctx), batch):]
		}
		idle.Reset(laneIdle)
		select {
		case <-wake:
		case <-idle.C:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
}

// settleSome settles the first calls of a batch, as many as fit in one, and returns how many. A call with a report that is open
// then goes on by itself: what it needs may be in a shard that is away.
func (l *lanes) settleSome(ctx context.Context, batch []*laneReports) (n int) {
	var part []*settlement
	for n < len(batch) && (n == 0 || len(part)+len(batch[n].reports) <= mostInLane) {
		r := batch[n]
		r.results = ownReports(r.collector, r.reports)
		for i := range r.reports {
			if r.results[i].Code == 0 {
				part = append(part, &settlement{Report: &r.reports[i], result: &r.results[i]})
			}
		}
		n++
	}
	_, err := l.d.settleUnread(ctx, part)
	for _, r := range batch[:n] {
		open := err != nil
		for i := range r.results {
			switch code := r.results[i].Code; {
			case code == ReportOK || code == ReportAlready || r.reports[i].Token.Collector != r.collector:
			default:
				r.results[i], open = ReportResult{ID: r.reports[i].ID}, true
			}
		}
		if !open {
			r.done(r.results, nil)
			continue
		}
		go func() { r.done(l.d.settle(ctx, r.reports, r.results)) }()
	}
	return n
}

// mostInLane is how many reports are settled at once, unless one call has more.
const mostInLane = 1000
