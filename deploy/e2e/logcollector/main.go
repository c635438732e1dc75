// Command logcollector is the collector of the e2e tests: it fetches nothing from anywhere, works on each task for as
// long as the task's metadata say, and writes down what its dispatchers told it (see package history).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/deploy/e2e/history"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) //nolint:forbidigo // main begins the context
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "logcollector:", err)
		os.Exit(1) //nolint:forbidigo // main ends the process
	}
}

// run collects until ctx ends, then stops.
func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("logcollector", flag.ContinueOnError)
	servers := flags.String("server", "127.0.0.1:7070", "dispatchers, each host:port")
	id := flags.String("id", "", "collector id")
	slots := flags.Int("slots", 1, "how many tasks to work on at once")
	lease := flags.Duration("lease", 0, "how long leases run; 0: the source's")
	stop := flags.Duration("stop-timeout", 0, "how long handlers may go on once it is to stop; 0: the library's default")
	labels := make(map[string]string)
	flags.Func("labels", "labels, as a=1,b=2", func(text string) error {
		for pair := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(pair, "=")
			labels[key] = value
		}
		return nil
	})
	path := flags.String("log", "", "file for the history")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log, err := history.Open(*path, *id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	c, err := collector.New(collector.Config{
		Targets: strings.Split(*servers, ","), ID: *id, Slots: *slots, LeaseDuration: *lease, StopTimeout: *stop, Labels: labels,
		DialOptions: log.DialOptions(), Logger: stderrLogger(),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx, worker{log})
}

// stderrLogger tells the test's output what went wrong.
func stderrLogger() *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), zap.InfoLevel))
}

// worker is the Handler.
type worker struct{ log *history.Log }

// Handle works for as long as the task's metadata "work" says, or until its lease ends.
func (w worker) Handle(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
	began := time.Now()
	e := history.Event{Kind: history.Started, Task: t.ID, Queue: t.Queue, Fence: t.Fence, Attempt: int32(t.Attempt)}
	w.log.Add(e)
	e.Kind, e.Code = history.Ended, history.Succeeded
	err := work(ctx, t.Metadata["work"])
	if err != nil {
		e.Code = err.Error()
	}
	w.log.Add(e)
	return collector.Succeeded{HTTPStatus: 200, FetchDuration: time.Since(began)}, err
}

// work takes as long as duration says.
func work(ctx context.Context, duration string) error {
	if duration == "" {
		return nil
	}
	d, err := time.ParseDuration(duration)
	if err != nil {
		return &collector.Failed{Reason: collector.ReasonBadRequest, Message: err.Error(), Permanent: true}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
