// Package collect has the command that runs a web collector.
package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/warc"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// New makes the commands.
func New(c cli.Console) *cobra.Command {
	var o collectOptions
	cmd := &cobra.Command{
		Use:     "collect",
		Short:   "Run a web collector",
		GroupID: "run",
		Long: `Run a web collector: it fetches tasks from dispatchers and their pages from the web, obeys robots.txt, reports
the links it finds, and keeps the pages: in --out with one JSON line a page in pages-ID.jsonl and bodies beside it under
bodies/, or in --warc as WARC/1.1 files of requests and responses, with an index beside each file. A WARC file that a killed
collector left open (.open) is finished when the collector with the same --id starts again. Bodies keep their coding there: for br,
warcio needs Python's brotli. Of a list that is broken it reports what it can read; the message of the attempt has how many.

It logs its progress. "lag_seconds" is how long after their due times tasks were begun, on average since the line before.

On SIGTERM or SIGINT nothing more is fetched, what runs is finished and reported. A second signal ends the process at once; its
tasks go to others when their leases have run out.

Each flag can be set by the variable behind it.`,
		Example: `  waggle collect --out pages --contact https://example.com/crawler
  waggle collect --id paris-1 --server a:7070,b:7070 --pools default,eu
  waggle collect --warc archive --proxy socks5://127.0.0.1:1080 --max-depth 3`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.WithHeapFloor(c.Env, func() error { return o.run(cmd, c) })
		},
	}
	o.register(cmd, c)
	return cmd
}

// complete checks what the libraries do not, and gives them what no flag is for.
func (o *collectOptions) complete(cmd *cobra.Command, c cli.Console, log *zap.Logger) error {
	for i, queue := range o.collector.Queues {
		o.collector.Queues[i] = canonical.QueueName(queue)
	}
	if o.untilEOF && cmd.Flag("token-file").Value.String() == "-" {
		return cli.Usagef("--token-file - and --until-eof: standard input cannot be read twice")
	}
	if err := o.connection.Resolve(cmd, c); err != nil {
		return err
	}
	o.connection.Fill(&o.collector)
	o.collector.Version = cli.Version()
	o.collector.TracerProvider = c.TracerProvider
	o.collector.Logger, o.web.Logger = log, log
	for _, name := range []string{"pools", "sources", "queues"} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "[]" {
			return cli.Usagef("--%s: \"\": want one name at least, or leave it out", name)
		}
	}
	if err := cli.RefuseZero(cmd.Flags()); err != nil {
		return err
	}
	if o.status < 0 {
		return cli.Usagef("--status: %s: want 0 or more", o.status)
	}
	if o.collector.Slots < 1 { // which the library takes for its default
		return cli.Usagef("--slots: %d: want 1 to 1000", o.collector.Slots)
	}
	return nil
}

func (o *collectOptions) run(cmd *cobra.Command, c cli.Console) (err error) {
	log, err := o.log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if err := o.complete(cmd, c, log); err != nil {
		return err
	}
	if err := o.collector.Validate(); err != nil {
		return cli.Usagef("%w", fieldsAsFlags(err))
	}
	kept := &checkedSink{}
	o.collector.Problem = kept.problem
	k, err := collector.New(o.collector)
	if err != nil {
		return fieldsAsFlags(o.connection.FlagNames(err))
	}
	o.sink.send.Logger, o.sink.send.Stderr = log, cmd.ErrOrStderr()
	sink, err := o.sink.open(o.collector.ID, &o.web)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := sink.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close the sink: %w", closeErr))
		}
	}()
	keeps := o.web.Sink != nil
	if keeps {
		kept.Sink, o.web.Sink = o.web.Sink, kept
	}
	if o.http != "" {
		end, err := serveHTTP(cmd.Context(), o.http, k, kept, log)
		if err != nil {
			return err
		}
		defer end()
	}
	pages, err := web.New(o.web)
	if err != nil {
		return cli.Usagef("%w", fieldsAsFlags(err))
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
	now := time.Now()
	p := &progress{
		collector: k, cfg: &o.collector, connection: &o.connection, log: log, tally: newTally(), every: o.status,
		began: now, logged: sample{at: now},
	}
	log.Info("collector takes tasks", zap.String("id", o.collector.ID), zap.Strings("servers", o.collector.Targets),
		zap.Strings("pools", o.collector.Pools), zap.Int("slots", o.collector.Slots))
	if !keeps {
		log.Info("no page is kept: neither --out, --warc, --send-command nor --send-url is given")
	}
	return p.watch(ctx, func(ctx context.Context) error { return k.Run(ctx, p.tally.counting(pages)) })
}

// collectOptions are the flags of a web collector.
type collectOptions struct {
	connection client.Connection
	collector  collector.Config
	web        web.Config
	log        cli.LogOptions
	sink       sinkOptions
	status     time.Duration
	untilEOF   bool
	http       string
}

// register gives the command its flags, by what they are about.
func (o *collectOptions) register(cmd *cobra.Command, c cli.Console) {
	var groups []*pflag.FlagSet
	group := func(title string) *pflag.FlagSet {
		groups = append(groups, pflag.NewFlagSet(title, pflag.ContinueOnError))
		return groups[len(groups)-1]
	}
	flags := group("Dispatchers")
	o.connection.Register(flags, "dispatchers, each `host:port`")

	flags = group("Tasks")
	flags.StringVar(&o.collector.ID, "id", cli.Hostname(), "its `name`, the same over restarts, another one for each process")
	cli.PairsVar(flags, &o.collector.Labels, "labels", "labels by which operators can hold it, with others, as region=eu,disk=ssd")
	flags.StringSliceVar(&o.collector.Pools, "pools", []string{"default"}, "`pools` to take tasks from")
	flags.StringSliceVar(&o.collector.Sources, "sources", nil, "only tasks of these `sources`")
	flags.StringSliceVar(&o.collector.Queues, "queues", nil, "only tasks of these `queues`")
	flags.IntVar(&o.collector.Slots, "slots", 8, "`number` of tasks to work on at once")
	flags.DurationVar(&o.collector.Wait, "wait", 0, "how long a fetch waits at the dispatcher (default 10s)")
	cli.SpanVar(flags, &o.collector.LeaseDuration, "lease", "how long leases run between renewals (default the source's)")
	flags.DurationVar(&o.collector.StopTimeout, "stop-timeout", 0, "how long running fetches may go on once it is to stop; negative: none (default 20s)")
	flags.BoolVar(&o.untilEOF, "until-eof", false, "stop when standard input ends")
	if err := flags.MarkHidden("until-eof"); err != nil {
		panic(err) // the flag is registered on the line above
	}

	flags = group("Fetching pages")
	flags.StringVar(&o.web.Contact, "contact", "", "`address`, URL or mail, that the user agent names: how to reach you")
	flags.StringVar(&o.web.UserAgent, "user-agent", "", "`text` to send instead of \"waggle (+CONTACT)\"")
	flags.StringVar(&o.web.RobotsAgent, "robots-agent", "", "`name` that robots.txt knows it by (default what the user agent begins with)")
	flags.BoolVar(&o.web.IgnoreRobots, "ignore-robots", false, "do not ask robots.txt: for hosts of your own")
	flags.DurationVar(&o.web.MaxCrawlDelay, "max-crawl-delay", 0, "how much of a robots.txt's Crawl-delay its queue is told to keep, at most 1h; negative: none (default 1h)")
	urlVar(flags, &o.web.Proxy, "proxy", "http, https or socks5 `URL` of a proxy; it resolves names, so it has to refuse private addresses itself (default as HTTP_PROXY, HTTPS_PROXY and NO_PROXY say)")
	flags.BoolVar(&o.web.AllowPrivate, "allow-private", false, "fetch from private and loopback addresses, too: for sites of your own")
	flags.DurationVar(&o.web.Timeout, "fetch-timeout", 0, "longest request, its body included (default 30s)")
	flags.Int64Var(&o.web.MaxBytes, "max-bytes", 0, "largest page in `bytes` (default 10 MiB); feeds may have 30 MiB, sitemaps 50 MiB")
	flags.IntVar(&o.web.MaxRatio, "max-ratio", 0, "how many `times` its compressed bytes a page of over 1 MiB may become (default 200)")
	flags.IntVar(&o.web.MaxRedirects, "max-redirects", 0, "most redirects from a page to its end, at most 100; negative: none (default 10)")

	flags = group("Finding links (a source's follow rule decides which of them become tasks)")
	flags.BoolVar(&o.web.Resources, "resources", false, "report images, scripts and style sheets, too")
	flags.BoolVar(&o.web.Sitemaps, "sitemaps", false, "report the sitemaps that robots.txt names, of the hosts of seeds: for whole sites")
	flags.BoolVar(&o.web.FollowNofollow, "follow-nofollow", false, "report links that say nofollow, and those of pages that do, too")
	flags.IntVar(&o.web.MaxDepth, "max-depth", 0, "`depth` from which pages report no links; seeds have 0 (default no limit)")
	flags.IntVar(&o.web.MaxLinks, "max-links", 0, "`number` of links that one page may have (default 20,000)")
	flags.IntVar(&o.web.MaxListed, "max-listed", 0, "`number` of entries that one feed, sitemap or list may have (default 50,000)")
	flags.IntVar(&o.web.MaxURLBytes, "max-url-bytes", 0, "longest URL in `bytes` (default 2048, which is the most)")
	flags.IntVar(&o.web.MaxPathSegments, "max-path-segments", 0, "`number` of segments that a URL's path may have, repeated parameters of its query counted; negative: any (default 30)")
	flags.IntVar(&o.web.MaxPathRepeats, "max-path-repeats", 0, "`times` that a path may have the same segments in a row, or a query the same parameter; negative: any (default 3)")

	flags = group("Keeping pages")
	flags.StringVar(&o.sink.out, "out", "", "`directory` for the pages, as lines of JSON with bodies beside them; without it and --warc they are only followed")
	flags.StringVar(&o.sink.warc, "warc", "", "`directory` for the pages, as WARC/1.1 files")
	flags.StringVar(&o.sink.send.Command, "send-command", "", "shell `command` that gets the pages on standard input, once for each batch: a line of JSON a page, the body in base64")
	urlVar(flags, &o.sink.send.URL, "send-url", "`URL` that gets batches of pages by POST, as the lines of --send-command")
	flags.Int64Var(&o.sink.rotation.MaxBytes, "file-size", 0, "`bytes` from which a file of pages gets no more (default no limit, 1 GiB with --warc)")
	cli.SpanVar(flags, &o.sink.rotation.MaxAge, "file-age", "age from which a file of pages gets no more, as 1h (default no limit)")
	cli.SpanVar(flags, &o.sink.rotation.Keep, "keep", "how long files and bodies are kept after their last page, as 30d (default for ever)")

	flags = group("Seeing it run")
	flags.DurationVar(&o.status, "status", 30*time.Second, "how often to log progress; 0: never")
	flags.StringVar(&o.http, "http", "", "`address` for /metrics, /healthz and /readyz, as 127.0.0.1:7090; anybody who reaches it may read them (default: none)")
	cli.EnvVar(flags, "http", "WAGGLE_COLLECT_HTTP") // an image, or a machine, has WAGGLE_HTTP for serve
	o.log.Register(flags)
	groupedUsage(cmd, c, groups)
}

// urlVar adds a flag for an absolute URL. It never repeats the URL, which may hold a password.
func urlVar(flags *pflag.FlagSet, into **url.URL, name, usage string) {
	cli.ValueVar(flags, name, "URL", usage, func(text string) (string, error) {
		u, err := url.Parse(text)
		if err != nil || u.Scheme == "" || u.Host == "" {
			return "", errors.New("want a URL with scheme and host, as http://proxy.example:3128")
		}
		*into = u
		return u.Redacted(), nil
	})
}

// fieldsAsFlags writes flags where an error names fields of a Config.
func fieldsAsFlags(err error) error {
	return cli.Rename(err, "collector config: ", "", "web config: ", "", "warc config: ", "", "field Targets", "--server", "field ID", "--id", "field Labels", "--labels", "field Pools", "--pools", "field Sources", "--sources",
		"field Queues", "--queues", "field Slots", "--slots", "field Wait", "--wait", "field LeaseDuration", "--lease",
		"field UserAgent", "--user-agent", "field Contact", "--contact", "field RobotsAgent", "--robots-agent", "field Proxy", "--proxy",
		"field Timeout", "--fetch-timeout", "field MaxBytes", "--max-bytes", "field MaxRatio", "--max-ratio",
		"field MaxLinks", "--max-links", "field MaxListed", "--max-listed", "field MaxDepth", "--max-depth", "field MaxURLBytes", "--max-url-bytes",
		"field MaxCrawlDelay", "--max-crawl-delay", "field Sitemaps", "--sitemaps", "IgnoreRobots", "--ignore-robots",
		"field MaxFileBytes", "--file-size", "field MaxFileAge", "--file-age", "field Keep", "--keep", "field CollectorID", "--id")
}

// sinkOptions are the flags that say where a collector keeps its pages.
type sinkOptions struct {
	out      string
	warc     string
	rotation web.Rotation
	send     web.SendConfig
}

// open gives the handler a sink, if one is wanted. The sink is to be closed when the collector has stopped.
func (o *sinkOptions) open(collectorID string, handler *web.Config) (io.Closer, error) {
	if err := o.rotation.Validate(); err != nil {
		return nil, cli.Usagef("%w", cli.Rename(err, "field MaxBytes", "--file-size", "field MaxAge", "--file-age", "field Keep", "--keep"))
	}
	sends := o.send.Command != "" || o.send.URL != nil
	switch {
	case o.out == "" && o.warc == "" && o.rotation != (web.Rotation{}):
		return nil, cli.Usagef("--file-size, --file-age and --keep: they need --out or --warc")
	case o.out != "" && o.warc != "":
		return nil, cli.Usagef("--out %q and --warc %q: say one of them", o.out, o.warc)
	case sends && (o.out != "" || o.warc != "" || o.send.Command != "" && o.send.URL != nil):
		return nil, cli.Usagef("--out, --warc, --send-command and --send-url: say one of them")
	case sends:
		sink, err := web.NewSendSink(o.send)
		if err != nil {
			return nil, cli.Usagef("%w", cli.Rename(err, "send config: ", "", "field Command", "--send-command", "field URL", "--send-url"))
		}
		handler.Sink = sink
		return sink, nil
	case o.out != "":
		sink, err := web.NewDirSink(o.out, collectorID, o.rotation)
		if err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
		handler.Sink = sink
		return sink, nil
	case o.warc != "":
		cfg := warc.Config{
			Dir: o.warc, CollectorID: collectorID, MaxFileBytes: o.rotation.MaxBytes, MaxFileAge: o.rotation.MaxAge, Keep: o.rotation.Keep, Software: "waggle " + cli.Version(), Operator: handler.Contact,
		}
		if err := cfg.Validate(); err != nil {
			return nil, cli.Usagef("--warc: %w", fieldsAsFlags(err))
		}
		sink, err := warc.New(cfg)
		if err != nil {
			return nil, fmt.Errorf("--warc: %w", err)
		}
		handler.Sink, handler.Exchanges = sink, true
		return sink, nil
	}
	return io.NopCloser(nil), nil
}

// groupedUsage gives a command flags, and help that tells of them group by group.
func groupedUsage(cmd *cobra.Command, c cli.Console, groups []*pflag.FlagSet) {
	all := pflag.NewFlagSet("all", pflag.ContinueOnError)
	for _, group := range groups {
		all.AddFlagSet(group)
	}
	cli.FromEnv(cmd, c, all)
	cmd.Flags().AddFlagSet(all)
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		if cmd.HasExample() {
			fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
		}
		rest := pflag.NewFlagSet("Other flags", pflag.ContinueOnError)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if all.Lookup(f.Name) == nil {
				rest.AddFlag(f)
			}
		})
		for _, group := range append(slices.Clone(groups), rest) {
			fmt.Fprintf(out, "\n%s:\n%s", group.Name(), group.FlagUsages())
		}
		return nil
	})
}
