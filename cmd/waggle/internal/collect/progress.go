package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/collector"
)

const (
	// warnEvery is how often people are told of what is not their collector's doing.
	warnEvery = 30 * time.Second

	// redrawEvery is how often the live view is drawn.
	redrawEvery = time.Second
)

// progress tells people how a collector does: by a live view, else by its log.
type progress struct {
	collector *collector.Collector
	cfg       *collector.Config
	tls       bool
	log       *zap.Logger
	screen    *human.Screen
	tally     *tally
	every     time.Duration // of lines in the log

	began    time.Time
	logged   sample // what the last line told
	window   []sample
	warnedAt time.Time
	warned   string // what of
}

// watch shows or logs while run runs, and logs its end.
func (p *progress) watch(ctx context.Context, run func(context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	every := p.every
	if p.screen.Live {
		every = redrawEvery
		p.draw(time.Now())
	}
	var tick, early <-chan time.Time
	if every > 0 {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		tick = ticker.C
		early = time.After(min(every, connectTime)) // whether it gets going at all
	}
	stopping := ctx.Done()
	for {
		select {
		case err := <-ended:
			p.screen.Show()
			p.line("collector has ended", p.sample(time.Now()), zap.Duration("after", time.Since(p.began).Round(time.Millisecond)))
			return p.explain(err)
		case <-stopping:
			stopping = nil
			p.log.Info("collector stops", zap.Int("running", p.collector.Stats().Running))
		case now := <-early:
			p.warn(now)
		case now := <-tick:
			if p.screen.Live {
				p.draw(now)
			} else {
				p.report(now)
			}
		}
	}
}

func (p *progress) sample(now time.Time) sample {
	return sample{at: now, stats: p.collector.Stats(), totals: p.tally.snapshot()}
}

// trouble says why nothing can be done; empty when it can.
func (p *progress) trouble(stats collector.Stats) string {
	switch {
	case stats.LastAnswer.IsZero() && status.Code(stats.LastError) == codes.Unavailable:
		problem, todo := p.failed(stats.LastError).Words()
		return strings.Join(append([]string{problem}, todo...), "; ")
	case stats.LastAnswer.IsZero():
		return "no dispatcher has answered yet at " + strings.Join(p.cfg.Targets, ", ") + "; is `waggle serve` running there, and its store?"
	}
	if err := p.collector.Health(); err != nil {
		return err.Error()
	}
	return ""
}

// warn logs what keeps the collector from working, once in a while, if anything does and no view shows it.
func (p *progress) warn(now time.Time) bool {
	stats := p.collector.Stats()
	trouble := p.trouble(stats)
	if trouble == "" || p.screen.Live {
		return trouble != ""
	}
	// Why there is no connection may only be known by and by.
	news := stats.LastAnswer.IsZero() && trouble != p.warned
	if news || now.Sub(p.warnedAt) >= warnEvery {
		p.warnedAt, p.warned = now, trouble
		p.log.Warn(trouble)
	}
	return true
}

// report logs a line if there is news.
func (p *progress) report(now time.Time) {
	if p.warn(now) {
		return
	}
	s, was := p.sample(now), p.logged.stats
	if s.stats.Succeeded != was.Succeeded || s.stats.Failed != was.Failed || s.stats.Lost != was.Lost || s.stats.Running != was.Running {
		p.line("progress", s)
	}
}

// line logs the counts, and what has changed since the last line by the second.
func (p *progress) line(message string, s sample, more ...zap.Field) {
	since := paceOf(p.logged.totals, s.totals, s.at.Sub(p.logged.at))
	p.log.Info(message, append([]zap.Field{
		zap.Uint64("pages", s.stats.Succeeded), zap.Float64("pages_per_second", oneDecimal(since.pages)),
		zap.Int64("bytes", s.totals.bytes), zap.Int64("bytes_per_second", int64(since.bytes)),
		zap.Uint64("failed", s.stats.Failed), zap.Uint64("lost", s.stats.Lost),
		zap.Any("answers", s.totals.answers), zap.Any("reasons", s.totals.reasons),
		zap.Int("running", s.stats.Running), zap.Int("slots", s.stats.Slots), zap.Float64("lag_seconds", float64(since.lag.Milliseconds())/1000),
	}, more...)...)
	p.logged = s
}

func oneDecimal(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }

// explain says what to do about the end of a collector.
func (p *progress) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, collector.ErrReplaced):
		return cli.Advise(err, "another process runs under this id: give each its own with --id")
	case errors.Is(err, collector.ErrUnclean):
		return cli.Advise(err, "its leases run out by themselves, and the tasks go to others")
	default:
		return p.failed(err)
	}
}

// failed notes with an error of a call what its explanation needs.
func (p *progress) failed(err error) *client.Error {
	return &client.Error{Err: err, Servers: p.cfg.Targets, TLS: p.tls}
}

// draw brings the live view up to date.
func (p *progress) draw(now time.Time) {
	s := p.sample(now)
	p.window = append(p.window, s)
	if len(p.window) > paceWindow+1 {
		p.window = slices.Delete(p.window, 0, 1)
	}
	first := p.window[0]
	p.screen.Show(viewLines(&view{
		id: p.cfg.ID, pools: p.cfg.Pools, servers: p.cfg.Targets, up: now.Sub(p.began),
		now: s, pace: paceOf(first.totals, s.totals, s.at.Sub(first.at)),
		failing: p.tally.failing(viewHosts), state: p.state(s),
	})...)
}

// state says what keeps the collector from going on as usual; empty when nothing does.
func (p *progress) state(s sample) string {
	switch trouble := p.trouble(s.stats); {
	case s.stats.LastAnswer.IsZero() && s.at.Sub(p.began) < connectTime:
		return "connecting to " + strings.Join(p.cfg.Targets, ", ")
	case s.stats.Stopping:
		return "stopping: " + human.Plural(s.stats.Running, "task") + " to finish"
	case trouble != "":
		return trouble
	case s.stats.Held:
		return "held by operators: it takes no tasks"
	}
	return ""
}

const (
	// paceWindow is how many samples back the view looks for its paces: ten seconds.
	paceWindow = 10

	// connectTime is how long a dispatcher may take for its first answer before people are told that none comes.
	connectTime = 3 * time.Second

	// viewHosts and viewCounts bound what a line of the view lists.
	viewHosts  = 5
	viewCounts = 8
)

// view is what the live view shows.
type view struct {
	id             string
	pools, servers []string
	up             time.Duration
	now            sample
	pace           pace
	failing        []hostFailures
	state          string
}

// viewLines writes the view.
func viewLines(v *view) []string {
	stats, totals := &v.now.stats, &v.now.totals
	lag := "-"
	if totals.begun > 0 {
		lag = human.Span(v.pace.lag)
	}
	lines := []string{
		strings.Repeat("─", 72),
		fmt.Sprintf("%-10s%s of %s, up %s", v.id, strings.Join(v.pools, ", "), strings.Join(v.servers, ", "), human.Span(v.up)),
		fmt.Sprintf("pages     %-12s %-13s slots  %d of %d busy   lag  %s",
			human.Count(stats.Succeeded), fmt.Sprintf("%.1f/s", v.pace.pages), stats.Running, stats.Slots, lag),
		fmt.Sprintf("bytes     %-12s %-13s failed %s   lost %s   released %s",
			human.Bytes(totals.bytes), human.Bytes(int64(v.pace.bytes))+"/s", human.Count(stats.Failed), human.Count(stats.Lost), human.Count(stats.Released)),
	}
	if len(totals.answers) > 0 {
		lines = append(lines, "answers   "+largestFirst(totals.answers))
	}
	if len(totals.reasons) > 0 {
		lines = append(lines, "failures  "+largestFirst(totals.reasons))
	}
	if len(v.failing) > 0 {
		var hosts []string
		for _, h := range v.failing {
			hosts = append(hosts, fmt.Sprintf("%s %s (%s)", human.Brief(h.host, 40), human.Count(h.count), h.last))
		}
		lines = append(lines, "failing   "+strings.Join(hosts, "   "))
	}
	if v.state != "" {
		lines = append(lines, v.state)
	}
	return lines
}

// largestFirst lists counts, the largest first.
func largestFirst[K cmp.Ordered](counts map[K]int64) string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for i, key := range keys {
		if i == viewCounts {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%v: %s", key, human.Count(counts[key])))
	}
	return strings.Join(parts, "   ")
}
