// Command pagedapi reads lists that an API returns page by page, and writes their items to standard output. A task's URL
// names a list. If its collector dies, another one continues at the page where the first stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) { // which has been given
		fmt.Fprintln(os.Stderr, "pagedapi:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	cfg := collector.Config{Slots: 4}
	flags := flag.NewFlagSet("pagedapi", flag.ContinueOnError)
	server := flags.String("server", "127.0.0.1:7070", "dispatcher")
	pause := flags.Duration("pause", time.Second, "pause between two pages of a list")
	flags.StringVar(&cfg.ID, "id", "pagedapi-1", "this collector's id")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log, err := zap.NewProduction() // to standard error, as soon as no dispatcher answers
	if err != nil {
		return err
	}
	restore := zap.RedirectStdLog(log) // net/http reports what happens to connections there
	defer restore()
	cfg.Targets, cfg.Logger = []string{*server}, log
	log.Info("fetching tasks until ^C", zap.String("server", *server), zap.String("id", cfg.ID))
	c, err := collector.New(cfg)
	if err != nil {
		return err
	}
	handler := &pages{client: &http.Client{Timeout: 30 * time.Second}, store: &lines{out: out}, pause: *pause}
	return c.Run(ctx, collector.Wrap(handler, collector.Classify(collector.FailureOf)))
}
