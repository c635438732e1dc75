package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// collectOptions are the flags of a web collector.
type collectOptions struct {
	collector collector.Config
	web       web.Config
	tls       tlsOptions
	log       logOptions
	sink      sinkOptions
	lease     spanFlag
	status    time.Duration
	untilEOF  bool
}

func newCollect(c console) *cobra.Command {
	var o collectOptions
	cmd := &cobra.Command{
		Use:     "collect",
		Short:   "Run a web collector",
		GroupID: "run",
		Long: `Run a web collector: it fetches tasks from dispatchers and their pages from the
web, obeys robots.txt, reports the links it finds, and keeps the pages: in --out
with one JSON line a page in pages-ID.jsonl and bodies beside it under bodies/,
or in --warc as WARC/1.1 files of requests and responses, with an index beside
each file. A WARC file that a killed collector left open (.open) is finished
when the collector with the same --id starts again.

SIGTERM or SIGINT drains: nothing more is fetched, what runs is finished and
reported. A second signal ends the process at once; its tasks go to others when
their leases have run out.

Each flag can be set by the variable behind it.`,
		Example: `  waggle collect --out pages --contact https://example.com/crawler
  waggle collect --id paris-1 --server a:7070,b:7070 --slots 32 --pools default,eu`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.run(cmd)
			var usage *usageError
			if errors.As(err, &usage) && usage.cmd == nil {
				usage.cmd = cmd
			}
			return err
		},
	}
	flags := pflag.NewFlagSet("collect", pflag.ContinueOnError)
	flags.StringSliceVar(&o.collector.Targets, "server", []string{defaultServer}, "dispatchers, each `host:port`")
	flags.StringVar(&o.collector.ID, "id", hostname(), "its `name`, the same over restarts, another one for each process")
	flags.StringSliceVar(&o.collector.Pools, "pools", []string{"default"}, "`pools` to take tasks from")
	flags.StringSliceVar(&o.collector.Sources, "sources", nil, "only tasks of these `sources`")
	flags.StringSliceVar(&o.collector.Queues, "queues", nil, "only tasks of these `queues`")
	pairsVar(flags, &o.collector.Labels, "labels", "labels for operators")
	flags.IntVar(&o.collector.Slots, "slots", 8, "`number` of tasks to work on at once")
	o.sink.register(flags)
	flags.StringVar(&o.web.Contact, "contact", "", "`address`, URL or mail, that the user agent names: how to reach you")
	flags.StringVar(&o.web.UserAgent, "user-agent", "", "`text` to send instead of \"waggle (+CONTACT)\"")
	flags.BoolVar(&o.web.AllowPrivate, "allow-private", false, "fetch from private and loopback addresses, too: for sites of your own")
	flags.BoolVar(&o.web.Resources, "resources", false, "report images, scripts and style sheets as links, too")
	flags.BoolVar(&o.web.IgnoreRobots, "ignore-robots", false, "do not ask robots.txt: for hosts of your own")
	flags.DurationVar(&o.web.Timeout, "fetch-timeout", 0, "longest fetch, redirects included (default 30s)")
	flags.Int64Var(&o.web.MaxBytes, "max-bytes", 0, "largest page in `bytes` (default 10 MiB)")
	flags.IntVar(&o.web.MaxLinks, "max-links", 0, "`number` of links that one page may have (default 20,000)")
	flags.DurationVar(&o.collector.Wait, "wait", 0, "how long a fetch waits at the dispatcher (default 10s)")
	spanVar(flags, &o.lease, "lease", "how long leases run between renewals (default the source's)")
	flags.DurationVar(&o.collector.DrainTimeout, "drain-timeout", 0, "how long running fetches may go on once it is to stop (default 20s)")
	flags.DurationVar(&o.status, "status", 5*time.Second, "how often to print a line about progress; 0: never")
	o.tls.register(flags)
	o.log.register(flags)
	flags.BoolVar(&o.untilEOF, "until-eof", false, "drain when standard input ends")
	if err := flags.MarkHidden("until-eof"); err != nil {
		panic(err) // the flag is registered on the line above
	}
	fromEnv(cmd, c, flags)
	cmd.Flags().AddFlagSet(flags)
	return cmd
}

func (o *collectOptions) run(cmd *cobra.Command) (err error) {
	log, err := o.log.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if o.collector.Credentials, err = o.tls.credentials(); err != nil {
		return err
	}
	o.collector.LeaseDuration = time.Duration(o.lease)
	o.collector.Version = version()
	o.collector.Logger, o.web.Logger = log, log
	k, err := collector.New(o.collector)
	if err != nil {
		return usagef(cmd, "%w", fieldsAsFlags(err))
	}
	sink, err := o.sink.open(cmd, o.collector.ID, &o.web)
	if err != nil {
		return err
	}
	defer func() { closeSink(sink, &err) }()
	pages, err := web.New(o.web)
	if err != nil {
		return usagef(cmd, "%w", fieldsAsFlags(err))
	}
	defer pages.Close()

	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if o.untilEOF {
		go func() {
			// How standard input ends does not matter.
			_, _ = io.Copy(io.Discard, cmd.InOrStdin())
			cancel()
		}()
	}
	p := &progress{collector: k, out: cmd.OutOrStdout(), servers: strings.Join(o.collector.Targets, ", "), began: time.Now()}
	fmt.Fprintf(p.out, "%s  collector %s takes tasks of %s from %s, %s\n", clock(time.Now()), o.collector.ID,
		strings.Join(o.collector.Pools, ", "), p.servers, plural(o.collector.Slots, "slot"))
	return p.watch(ctx, o.status, func(ctx context.Context) error { return k.Run(ctx, p.counting(pages)) })
}

// fieldsAsFlags writes flags where an error names fields of a Config.
func fieldsAsFlags(err error) error {
	text := err.Error()
	for _, prefix := range []string{"collector config: ", "web config: ", "warc config: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	names := strings.NewReplacer("field Targets", "--server", "field ID", "--id", "field Pools", "--pools", "field Sources", "--sources",
		"field Queues", "--queues", "field Slots", "--slots", "field Wait", "--wait", "field LeaseDuration", "--lease",
		"field UserAgent", "--user-agent", "field Contact", "--contact", "field Timeout", "--fetch-timeout",
		"field MaxBytes", "--max-bytes", "field MaxFileBytes", "--warc-size", "field CollectorID", "--id", "field MaxLinks", "--max-links")
	return &renamed{text: names.Replace(text), err: err}
}

// progress tells people how a collector does.
type progress struct {
	collector *collector.Collector
	out       io.Writer
	servers   string
	began     time.Time
	bytes     atomic.Int64

	last     collector.Stats
	lastAt   time.Time
	warnedAt time.Time
}

// warnEvery is how often people are told of what is not their collector's doing.
const warnEvery = 30 * time.Second

// counting counts the bytes of what a handler fetches.
func (p *progress) counting(h collector.Handler) collector.Handler {
	return collector.HandlerFunc(func(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
		done, err := h.Handle(ctx, t)
		p.bytes.Add(done.Bytes)
		return done, err
	})
}

// watch prints lines while run runs, and one at the end.
func (p *progress) watch(ctx context.Context, every time.Duration, run func(context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	var tick <-chan time.Time
	if every > 0 {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		tick = ticker.C
	}
	draining := ctx.Done()
	p.lastAt = p.began
	for {
		select {
		case err := <-ended:
			p.line(time.Now(), "ended")
			return p.explain(err)
		case <-draining:
			draining = nil
			fmt.Fprintf(p.out, "%s  draining: %s to finish\n", clock(time.Now()), plural(p.collector.Stats().Running, "task"))
		case now := <-tick:
			p.tick(now)
		}
	}
}

// tick prints a line if there is news.
func (p *progress) tick(now time.Time) {
	stats := p.collector.Stats()
	unhealthy := p.collector.Health()
	switch {
	case stats.LastAnswer.IsZero(), unhealthy != nil:
		if now.Sub(p.warnedAt) < warnEvery {
			return
		}
		p.warnedAt = now
		if stats.LastAnswer.IsZero() {
			fmt.Fprintf(p.out, "%s  no dispatcher answers at %s; is `waggle serve` running there?\n", clock(now), p.servers)
			return
		}
		fmt.Fprintf(p.out, "%s  %v\n", clock(now), unhealthy)
	case stats.Succeeded != p.last.Succeeded || stats.Failed != p.last.Failed || stats.Lost != p.last.Lost || stats.Running != p.last.Running:
		p.line(now, "")
	}
}

func (p *progress) line(now time.Time, note string) {
	stats := p.collector.Stats()
	text := fmt.Sprintf("%s  %s  %s  %s failed  %s lost  %d of %d slots busy", clock(now), plural(stats.Succeeded, "page"),
		bytesText(p.bytes.Load()), count(stats.Failed), count(stats.Lost), stats.Running, stats.Slots)
	if took := now.Sub(p.lastAt); took > time.Second && note == "" {
		text += fmt.Sprintf("  %.1f pages/s", float64(stats.Succeeded-p.last.Succeeded)/took.Seconds())
	}
	if note != "" {
		text += "  " + note + " after " + span(now.Sub(p.began))
	}
	fmt.Fprintln(p.out, text)
	p.last, p.lastAt = stats, now
}

// explain says what to do about the end of a collector.
func (p *progress) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, collector.ErrReplaced):
		return advise(err, "another process runs under this id: give each its own with --id")
	case errors.Is(err, collector.ErrUnclean):
		return advise(err, "its leases run out by themselves, and the tasks go to others")
	default:
		return &callError{err: err, servers: []string{p.servers}}
	}
}
