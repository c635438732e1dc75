// Command browser renders pages that need JavaScript, by Chromium through the DevTools protocol, and reports the links
// they have once their scripts have run. It is a Go module of its own, so that who uses Waggle does not get chromedp with
// it. It needs Chromium: on Debian, apt-get install chromium.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/waggle-crawl/waggle/collector"
)

// maxPage is the longest that a page may take to be rendered.
const maxPage = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) { // which has been given
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	cfg := collector.Config{}
	flags := flag.NewFlagSet("browser", flag.ContinueOnError)
	server := flags.String("server", "127.0.0.1:7070", "dispatcher")
	pool := flags.String("pool", "browser", "pool to take tasks from")
	out := flags.String("out", "out", "directory for pages")
	program := flags.String("chromium", "", "program to run; empty: look for it")
	flags.StringVar(&cfg.ID, "id", "browser-1", "this collector's id")
	flags.IntVar(&cfg.Slots, "slots", 2, "tabs at once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	// The browser outlives ctx: the collector finishes first.
	b, err := startBrowser(context.WithoutCancel(ctx), *program, os.Geteuid() != 0)
	if err != nil {
		return err
	}
	defer b.close()
	cfg.Targets, cfg.Pools = []string{*server}, []string{*pool}
	c, err := collector.New(cfg)
	if err != nil {
		return err
	}
	h := &handler{browser: b, keep: func(t *collector.Task, html string) error {
		return os.WriteFile(filepath.Join(*out, t.ID+".html"), []byte(html), 0o600)
	}}
	return c.Run(ctx, collector.Wrap(h, collector.Timeout(maxPage, collector.ReasonTimeout)))
}
