package collect

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/collector"
)

const (
	// warnEvery is how often the same trouble is logged.
	warnEvery = 30 * time.Second

	// connectTime is how long the first answer of a dispatcher may take without a warning.
	connectTime = 3 * time.Second
)

// progress logs how a collector does.
type progress struct {
	collector  *collector.Collector
	cfg        *collector.Config
	connection *client.Connection
	log        *zap.Logger
	tally      *tally
	every      time.Duration // 0: never

	began    time.Time
	logged   sample // what the last line reported
	warnedAt time.Time
	warned   string
}

// sample is the counts of a moment.
type sample struct {
	at     time.Time
	stats  collector.Stats
	totals totals
}

func (p *progress) sample(now time.Time) sample {
	return sample{at: now, stats: p.collector.Stats(), totals: p.tally.snapshot()}
}

// watch logs while run runs, and logs its end.
func (p *progress) watch(ctx context.Context, run func(context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	var tick, early <-chan time.Time
	if p.every > 0 {
		ticker := time.NewTicker(p.every)
		defer ticker.Stop()
		tick = ticker.C
		early = time.After(min(p.every, connectTime))
	}
	stopping := ctx.Done()
	for {
		select {
		case err := <-ended:
			p.line("collector has ended", p.sample(time.Now()), zap.Duration("after", time.Since(p.began).Round(time.Millisecond)))
			return p.explain(err)
		case <-stopping:
			stopping = nil
			p.log.Info("collector stops", zap.Int("running", p.collector.Stats().Running))
		case now := <-early:
			p.warn(p.sample(now))
		case now := <-tick:
			s, was := p.sample(now), p.logged.stats
			changed := s.stats.Succeeded != was.Succeeded || s.stats.Failed != was.Failed || s.stats.Lost != was.Lost || s.stats.Running != was.Running
			if !p.warn(s) && changed {
				p.line("progress", s)
			}
		}
	}
}

// trouble is why the collector gets no tasks; empty if nothing keeps it from that.
func (p *progress) trouble(stats collector.Stats) string {
	code := status.Code(stats.LastError)
	switch {
	case code == codes.Unauthenticated, stats.LastAnswer.IsZero() && code == codes.Unavailable:
		problem, todo := p.connection.Explained(stats.LastError).Words()
		return strings.Join(append([]string{problem}, todo...), "; ")
	case stats.LastAnswer.IsZero():
		return "no dispatcher has answered yet at " + strings.Join(p.cfg.Targets, ", ") + "; is `waggle serve` running there, and its store?"
	}
	if err := p.collector.Health(); err != nil {
		return err.Error()
	}
	if stats.Held && stats.Running == 0 {
		return "held by operators: it takes no tasks; `waggle hold list` shows why"
	}
	return ""
}

// warn logs what keeps the collector from working, once in a while, and reports whether anything does.
func (p *progress) warn(s sample) bool {
	trouble := p.trouble(s.stats)
	news := s.stats.LastAnswer.IsZero() && trouble != p.warned // why there is no connection may become known later
	if trouble != "" && (news || s.at.Sub(p.warnedAt) >= warnEvery) {
		p.warnedAt, p.warned = s.at, trouble
		p.log.Warn(trouble)
	}
	return trouble != ""
}

// line logs the counts, and how fast they rose since the last line.
func (p *progress) line(message string, s sample, more ...zap.Field) {
	last := p.logged
	perSecond := func(n float64) float64 { return math.Round(n/max(s.at.Sub(last.at).Seconds(), 1e-3)*10) / 10 }
	lag := (s.totals.lag - last.totals.lag) / time.Duration(max(s.totals.begun-last.totals.begun, 1))
	p.log.Info(message, append([]zap.Field{
		zap.Uint64("pages", s.stats.Succeeded), zap.Float64("pages_per_second", perSecond(float64(s.stats.Succeeded-last.stats.Succeeded))),
		zap.Int64("bytes", s.totals.bytes), zap.Float64("bytes_per_second", perSecond(float64(s.totals.bytes-last.totals.bytes))),
		zap.Uint64("failed", s.stats.Failed), zap.Uint64("lost", s.stats.Lost),
		zap.Any("answers", s.totals.answers), zap.Any("reasons", s.totals.reasons),
		zap.Int("running", s.stats.Running), zap.Int("stuck", s.stats.Stuck), zap.Int("slots", s.stats.Slots), zap.Float64("lag_seconds", float64(lag.Milliseconds())/1000),
	}, more...)...)
	p.logged = s
}

// explain says what to do about the end of a collector.
func (p *progress) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, collector.ErrReplaced):
		return cli.Advise(err, "another process runs under this id: give each its own with --id")
	case errors.Is(err, collector.ErrUnclean):
		return cli.Advise(err, "its leases expire, and the tasks go to others")
	default:
		return p.connection.Explained(err)
	}
}
