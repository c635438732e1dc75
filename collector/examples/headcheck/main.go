// Command headcheck asks every task's URL for its headers, and reports how it answers: a link checker in a page of code.
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
	"sync"
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
		fmt.Fprintln(os.Stderr, "headcheck:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	cfg := collector.Config{Slots: 8}
	flags := flag.NewFlagSet("headcheck", flag.ContinueOnError)
	server := flags.String("server", "127.0.0.1:7070", "dispatcher")
	flags.StringVar(&cfg.ID, "id", "headcheck-1", "this collector's id")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log, err := zap.NewProduction() // to standard error, as soon as no dispatcher answers
	if err != nil {
		return err
	}
	cfg.Targets, cfg.Logger = []string{*server}, log
	log.Info("takes tasks; ^C ends it", zap.String("server", *server), zap.String("id", cfg.ID))
	c, err := collector.New(cfg)
	if err != nil {
		return err
	}
	counts := &counts{}
	err = c.Run(ctx, newHandler(counts))
	fmt.Fprint(out, counts)
	return err
}

// newHandler puts around the function what most handlers want: counts on the outside, which see every end; then what the
// errors of a request mean; and inside a limit on its time.
func newHandler(counts *counts) collector.Handler {
	return collector.Wrap(collector.HandlerFunc(head),
		collector.Observe(counts.add),
		collector.Classify(collector.FailureOf),
		collector.Timeout(20*time.Second, collector.ReasonTimeout),
	)
}

// head is the handler: a plain function.
func head(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, t.URL, http.NoBody)
	if err != nil {
		return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonBadRequest, Message: err.Error(), Permanent: true}
	}
	began := time.Now()
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return collector.Succeeded{}, err
	}
	if err := reply.Body.Close(); err != nil {
		return collector.Succeeded{}, err
	}
	took := time.Since(began)
	switch {
	case reply.StatusCode == http.StatusNotFound:
		return collector.Succeeded{}, &collector.Failed{
			Reason: collector.ReasonNotFound, HTTPStatus: reply.StatusCode, FetchDuration: took, Message: t.URL + " is gone",
		}
	case reply.StatusCode >= 500:
		return collector.Succeeded{}, &collector.Failed{
			Reason: collector.ReasonServerError, HTTPStatus: reply.StatusCode, FetchDuration: took, Message: reply.Status,
		}
	}
	return collector.Succeeded{HTTPStatus: reply.StatusCode, FetchDuration: took}, nil
}

// counts are what a metrics library would keep.
type counts struct {
	mu           sync.Mutex // guards all below
	good, failed int
	took         time.Duration
}

func (c *counts) add(_ context.Context, e collector.Ended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took += e.Took
	if e.Err != nil {
		c.failed++
		return
	}
	c.good++
}

// String is one line for people.
func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d answered, %d failed, %s in all\n", c.good, c.failed, c.took.Round(time.Millisecond))
}
