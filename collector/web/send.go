package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Sent is a record as a SendSink sends it: a Page in a line of JSON, with its body.
type Sent struct {
	Page

	// Body is the page's, in JSON as base64; nil if the server said that nothing has changed: it was sent with an earlier record of the
	// same digest.
	Body []byte `json:"body,omitempty"`
}

// SendConfig says where a SendSink sends records: set one of Command and URL.
type SendConfig struct {
	// Command is run by sh -c, and gets a line of JSON for each page on its standard input; its output goes to Stderr. A batch is taken
	// when it has been written, its input was closed, and the command has ended with 0: so it is run once for each batch.
	Command string
	// Stderr gets what the command writes, to either. Default: nothing.
	Stderr io.Writer

	// URL gets the lines of a batch by POST, as application/x-ndjson. An answer of 2xx has taken it.
	URL *url.URL
	// Client sends the requests. Default: http.DefaultClient.
	Client *http.Client

	// MaxBatch is the most records of a batch. Default 100.
	MaxBatch int
	// Linger is how long a batch waits for more records before it is sent. Default 50 ms.
	Linger time.Duration
	// Timeout is the longest that one batch may take. Default 1 minute.
	Timeout time.Duration

	// Logger gets failures, which are repeated. Default: none.
	Logger *zap.Logger
}

// Validate checks the configuration; its error names the field and the value.
func (c *SendConfig) Validate() error {
	switch {
	case (c.Command == "") == (c.URL == nil):
		return errors.New("field Command and field URL: want one of them")
	case c.URL != nil && (c.URL.Scheme != "http" && c.URL.Scheme != "https" || c.URL.Host == ""):
		return fmt.Errorf("field URL: %q: want http or https and a host", c.URL.Redacted())
	case c.MaxBatch < 0 || c.Linger < 0 || c.Timeout < 0:
		return errors.New("field MaxBatch, Linger or Timeout: want 0 or more")
	}
	return nil
}

// SendSink is a Sink that sends records to a command or a URL, at least once each: Put returns when its record was taken. A batch that
// was not taken is sent again, with growing waits, until those who wait for it give up because their leases end; then their tasks are
// handed out again. So whoever takes records must cope with one that comes twice: it has the same TaskID, Cycle and Fence.
// It can read nothing back.
type SendSink struct {
	cfg     SendConfig
	records chan sending
	done    chan struct{}
	stop    context.CancelFunc
	closing sync.Once

	mu     sync.Mutex // guards what follows
	failed error
	since  time.Time
}

// sending is a record that waits to be taken.
type sending struct {
	ctx   context.Context //nolint:containedctx // of the caller that waits for it
	line  []byte
	taken chan struct{}
}

// Limits of a SendSink.
const (
	defaultBatch  = 100
	defaultLinger = 50 * time.Millisecond
	firstRetry    = 500 * time.Millisecond
	lastRetry     = 30 * time.Second
	maxBatchBytes = 32 << 20
	maxQuoted     = 500 // bytes of an answer
)

// NewSendSink makes a SendSink. Close it when the collector has stopped.
func NewSendSink(cfg SendConfig) (*SendSink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("send config: %w", err)
	}
	if cfg.MaxBatch == 0 {
		cfg.MaxBatch = defaultBatch
	}
	if cfg.Linger == 0 {
		cfg.Linger = defaultLinger
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.Client == nil {
		cfg.Client = http.DefaultClient
	}
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives until Close
	s := &SendSink{cfg: cfg, records: make(chan sending), done: make(chan struct{}), stop: stop}
	go s.run(ctx)
	return s, nil
}

// Close ends what is being sent. Put fails with os.ErrClosed from then on.
func (s *SendSink) Close() error {
	s.closing.Do(s.stop)
	<-s.done
	return nil
}

// Put sends the record of a page, and returns when it was taken, or when ctx ends.
func (s *SendSink) Put(ctx context.Context, page Page, content Content) error {
	line, err := json.Marshal(Sent{Page: page, Body: content.Body})
	if err != nil {
		return fmt.Errorf("encode page %s: %w", page.URL, err)
	}
	one := sending{ctx: ctx, line: append(line, '\n'), taken: make(chan struct{})}
	select {
	case s.records <- one:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return fmt.Errorf("send page %s: %w", page.URL, os.ErrClosed)
	}
	select {
	case <-one.taken:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return fmt.Errorf("send page %s: %w", page.URL, os.ErrClosed)
	}
}

// Failing is why the last batch was not taken, and since when none was; nil: it was, or there was none.
func (s *SendSink) Failing() (since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since, s.failed
}

// Body has nothing.
func (s *SendSink) Body(context.Context, string) ([]byte, error) { return nil, os.ErrNotExist }

// run sends batches until ctx ends.
func (s *SendSink) run(ctx context.Context) {
	defer close(s.done)
	for {
		select {
		case one := <-s.records:
			s.send(ctx, s.batch(ctx, one))
		case <-ctx.Done():
			return
		}
	}
}

// batch gathers the records that come soon.
func (s *SendSink) batch(ctx context.Context, first sending) []sending {
	batch, size := []sending{first}, len(first.line)
	linger := time.NewTimer(s.cfg.Linger)
	defer linger.Stop()
	for len(batch) < s.cfg.MaxBatch && size < maxBatchBytes {
		select {
		case one := <-s.records:
			batch, size = append(batch, one), size+len(one.line)
		case <-linger.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// send sends a batch until it is taken, or nobody waits for it.
func (s *SendSink) send(ctx context.Context, batch []sending) {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		var lines bytes.Buffer
		awaited := batch[:0:0]
		for _, one := range batch {
			if one.ctx.Err() == nil {
				awaited = append(awaited, one)
				lines.Write(one.line)
			}
		}
		if batch = awaited; len(batch) == 0 || ctx.Err() != nil {
			return
		}
		err := s.try(ctx, lines.Bytes())
		s.tried(err)
		if err == nil {
			for _, one := range batch {
				close(one.taken)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		s.cfg.Logger.Warn("pages were not taken; they are sent again", zap.Int("pages", len(batch)), zap.Duration("in", wait), zap.Error(err))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// tried notes how it went.
func (s *SendSink) tried(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.failed == nil {
		s.since = time.Now()
	}
	s.failed = err
}

// try sends the lines once.
func (s *SendSink) try(ctx context.Context, lines []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if s.cfg.Command != "" {
		return s.command(ctx, lines)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL.String(), bytes.NewReader(lines))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	answer, err := s.cfg.Client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(bufio.NewReader(answer.Body), maxQuoted))
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("%s answered %s: %q", s.cfg.URL.Redacted(), answer.Status, text)
	}
	return err
}

// command runs the command for the lines. At the end of its time the shell is killed, not what it has started.
func (s *SendSink) command(ctx context.Context, lines []byte) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", s.cfg.Command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(lines), s.cfg.Stderr, s.cfg.Stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("command %q: %w", s.cfg.Command, err)
	}
	return nil
}
