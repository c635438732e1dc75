// Package collect has the command that runs a web collector.
package collect

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

func New(c cli.Console) *cobra.Command {
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

On a terminal it shows how it goes, under its log; elsewhere, and with --quiet,
it logs that. "lag" is how long after their due times tasks were begun, on
average since the last time it was shown.

SIGTERM or SIGINT drains: nothing more is fetched, what runs is finished and
reported. A second signal ends the process at once; its tasks go to others when
their leases have run out.

Each flag can be set by the variable behind it.`,
		Example: `  waggle collect --out pages --contact https://example.com/crawler
  waggle collect --id paris-1 --server a:7070,b:7070 --slots 32 --pools default,eu
  waggle collect --warc archive --proxy socks5://127.0.0.1:1080 --max-depth 3`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.WithHeapFloor(c.Env, func() error { return o.run(cmd) })
		},
	}
	o.register(cmd, c)
	return cmd
}

// complete checks what the libraries do not, and gives them what no flag is for.
func (o *collectOptions) complete(cmd *cobra.Command, log *zap.Logger) (err error) {
	for i, queue := range o.collector.Queues {
		o.collector.Queues[i] = canonical.QueueName(queue)
	}
	if err := client.CheckServers(o.collector.Targets); err != nil {
		return err
	}
	if o.collector.Credentials, err = o.tls.Credentials(); err != nil {
		return err
	}
	o.collector.Version = cli.Version()
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

func (o *collectOptions) run(cmd *cobra.Command) (err error) {
	view := human.NewScreen(cmd.ErrOrStderr(), o.quiet || o.log.Format == "json")
	log, err := o.log.Logger(view.Log())
	if err != nil {
		return err
	}
	if err := o.complete(cmd, log); err != nil {
		return err
	}
	k, err := collector.New(o.collector)
	if err != nil {
		return cli.Usagef("%w", fieldsAsFlags(err))
	}
	sink, err := o.sink.open(o.collector.ID, &o.web)
	if err != nil {
		return err
	}
	defer func() { closeSink(sink, &err) }()
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
	p := newProgress(k, o, log, view)
	log.Info("collector takes tasks", zap.String("id", o.collector.ID), zap.Strings("servers", o.collector.Targets),
		zap.Strings("pools", o.collector.Pools), zap.Int("slots", o.collector.Slots))
	if o.web.Sink == nil {
		log.Info("no page is kept: neither --out nor --warc is given")
	}
	return p.watch(ctx, func(ctx context.Context) error { return k.Run(ctx, p.tally.counting(pages)) })
}
