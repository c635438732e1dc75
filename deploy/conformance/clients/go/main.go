// Command go is the client program of the Go package, for the collector kit of deploy/conformance: it reads its
// configuration from stdin and has its handler do what each task's payload asks for.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// settings are the line on stdin.
type settings struct {
	Servers     []string          `json:"servers"`
	CollectorID string            `json:"collector_id"`
	Labels      map[string]string `json:"labels"`
	Pools       []string          `json:"pools"`
	Slots       int               `json:"slots"`
	WaitMS      int               `json:"wait_ms"`
	LeaseMS     int               `json:"lease_ms"`
	TokenFile   string            `json:"token_file"`
	TLSCA       string            `json:"tls_ca"`
	DrainMS     int               `json:"drain_ms"`
}

// work is a task's payload.
type work struct {
	WorkMS        int     `json:"work_ms"`
	Stubborn      bool    `json:"stubborn"`
	Block         bool    `json:"block"`
	Raise         string  `json:"raise"`
	Outcome       string  `json:"outcome"`
	Reason        string  `json:"reason"`
	RetryAfterMS  int     `json:"retry_after_ms"`
	Permanent     bool    `json:"permanent"`
	DelayMS       int     `json:"delay_ms"`
	HTTPStatus    int     `json:"http_status"`
	Bytes         int64   `json:"bytes"`
	Memo          string  `json:"memo"`
	MemoBytes     int     `json:"memo_bytes"`
	Cursor        string  `json:"cursor"`
	Progress      float64 `json:"progress"`
	Discovered    int     `json:"discovered"`
	DiscoverFirst int     `json:"discover_first"`
}

func main() {
	if err := run(); err != nil {
		events.write(event{Event: "error", Message: err.Error()})
		os.Exit(1)
	}
}

func run() error {
	faultName := flag.String("fault", "", "misbehave in this way, to show that the kit finds it")
	flag.Parse()
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	var s settings
	if err := json.Unmarshal(line, &s); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	log, err := zap.NewDevelopment()
	if err != nil {
		return err
	}
	config := collector.Config{
		Targets: s.Servers, ID: s.CollectorID, Labels: s.Labels, Pools: s.Pools, Slots: s.Slots,
		Wait: ms(s.WaitMS), LeaseDuration: ms(s.LeaseMS), StopTimeout: ms(s.DrainMS), TokenFile: s.TokenFile, Logger: log,
	}
	if s.TLSCA != "" {
		config.TLS = &collector.TLS{CAFile: s.TLSCA}
	}
	if *faultName != "" {
		if err := apply(*faultName, &config); err != nil {
			return err
		}
	}
	c, err := collector.New(config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in) // its end is what counts
		stop()
	}()
	return c.Run(ctx, collector.HandlerFunc(handle))
}

// handle does what the payload says, and writes what becomes of it.
func handle(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
	events.write(event{Event: "started", Task: t.ID})
	defer events.write(event{Event: "finished", Task: t.ID})
	var w work
	if err := json.Unmarshal(t.Payload, &w); err != nil {
		return collector.Succeeded{}, err
	}
	if w.Progress != 0 {
		t.SetProgress(w.Progress)
	}
	if w.Cursor != "" {
		if err := t.SetCursor([]byte(w.Cursor)); err != nil {
			return collector.Succeeded{}, err
		}
	}
	if w.Block || w.Stubborn {
		<-time.After(ms(w.WorkMS))
	} else {
		select {
		case <-time.After(ms(w.WorkMS)):
		case <-ctx.Done():
			events.write(event{Event: "canceled", Task: t.ID, Reason: reason(ctx)})
			return collector.Succeeded{}, context.Cause(ctx)
		}
	}
	if w.Raise != "" {
		panic(w.Raise)
	}
	switch w.Outcome {
	case "failed":
		return collector.Succeeded{}, &collector.Failed{
			Reason:     collector.Reason(wagglev1.FailureReason_value["FAILURE_REASON_"+w.Reason]),
			HTTPStatus: w.HTTPStatus, RetryAfter: ms(w.RetryAfterMS), Permanent: w.Permanent, Message: "as the payload says",
		}
	case "released":
		return collector.Succeeded{}, &collector.Released{Delay: ms(w.DelayMS)}
	}
	done := collector.Succeeded{HTTPStatus: w.HTTPStatus, Bytes: w.Bytes, FetchDuration: ms(w.WorkMS)}
	if w.Memo != "" {
		done.Memo = []byte(w.Memo)
	}
	if w.MemoBytes > 0 {
		done.Memo = make([]byte, w.MemoBytes)
	}
	for i := range w.DiscoverFirst + w.Discovered { // the package submits what does not fit the report
		done.Discovered = append(done.Discovered, collector.Discovered{URL: fmt.Sprintf("http://found.test/%s/%d", t.ID, i)})
	}
	return done, nil
}

// reason is the name of why a handler's context ended.
func reason(ctx context.Context) string {
	for _, known := range []struct {
		err  error
		name string
	}{
		{collector.ErrLeaseLost, "LEASE_LOST"},
		{collector.ErrCanceled, "CANCELED"},
		{collector.ErrHeld, "HELD"},
		{collector.ErrStopping, "STOPPING"},
		{collector.ErrReplaced, "REPLACED"},
	} {
		if errors.Is(context.Cause(ctx), known.err) {
			return known.name
		}
	}
	return "UNKNOWN"
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// event is a line on stdout.
type event struct {
	Event   string `json:"event"`
	Task    string `json:"task,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// output writes events, one at a time.
type output struct{ mu sync.Mutex }

var events output

func (o *output) write(e event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(e); err != nil {
		fmt.Fprintln(os.Stderr, "event not written:", err)
	}
}
