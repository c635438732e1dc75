// Package notify posts findings to a webhook, as Standard Webhooks has it: each when it begins, and when it ends. The owner of the store
// posts, and the store keeps what was posted. deploy/notify.md describes the messages.
package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// When a finding is posted, and how often that is tried.
const (
	storeLimit  = 5 * time.Second
	postLimit   = 10 * time.Second
	firstWait   = 2 * time.Second // before a message is sent again, then twice as long, with jitter
	longestWait = 10 * time.Minute
	giveUpAfter = 24 * time.Hour
	// newOwner is how long no end is posted after a takeover, in [Config.Gone]: an owner begins to count what collectors do, and finds
	// only after a minute or two what the last one had found.
	newOwner = 3
)

// Result is what became of a message.
type Result string

// The results of messages.
const (
	Sent    Result = "sent"
	Failed  Result = "failed"  // it is sent again
	Dropped Result = "dropped" // it was given up
)

// Config of a [Notifier].
type Config struct {
	// URL takes the messages, by http or https. Required.
	URL string
	// KeyFile has the keys that messages are signed with, one a line. It is read before each message. Default: they are not signed.
	KeyFile string
	// Dispatcher is the name of this one in the messages.
	Dispatcher string
	// After is how long a finding has lasted when its begin is posted; one that ends earlier is never posted. Default 30 s.
	After time.Duration
	// Gone is how long a finding has been gone when its end is posted; one that is back earlier has not ended. Default 60 s.
	Gone time.Duration
	// Logger is required, and Count, which counts what became of messages.
	Logger *zap.Logger
	Count  func(Result)
}

// Validate reports the first field that cannot be worked with, and fills defaults in.
func (c *Config) Validate() error {
	c.After, c.Gone = cmp.Or(c.After, 30*time.Second), cmp.Or(c.Gone, time.Minute)
	to, err := url.Parse(c.URL)
	switch {
	case err != nil: // it may be secret
		return errors.New("notify: Config.URL is no URL")
	case to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
		return fmt.Errorf("notify: Config.URL has the scheme %q and the host %q; it must be http or https, and a host", to.Scheme, to.Host)
	}
	if c.KeyFile != "" {
		if _, err := readKeys(c.KeyFile); err != nil {
			return fmt.Errorf("notify: Config.KeyFile: %w", err)
		}
	}
	return nil
}

// Notifier posts findings. It serves one term of an owner after the other.
type Notifier struct {
	cfg  Config
	host string      // of the URL, for the log
	stop atomic.Bool // the receiver wants no more
	send http.RoundTripper
}

// New makes a notifier.
func New(cfg Config) (*Notifier, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	to, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, err
	}
	return &Notifier{cfg: cfg, host: to.Host, send: newTransport()}, nil
}

// Run posts the findings of an owner until ctx ends, which is the end of its term.
func (n *Notifier) Run(ctx context.Context, o *operate.Operator) {
	looks := make(chan *operate.Findings, 1)
	o.HeedFindings(func(f *operate.Findings) {
		select {
		case <-looks: // a look that nobody had time for
		default:
		}
		select {
		case looks <- f:
		default:
		}
	})
	t := &term{Notifier: n, store: o.Dispatcher().Config().Store, open: make(map[string]*state), began: time.Now()}
	t.client = newClient(n.send)
	defer t.client.CloseIdleConnections()
	for wait := firstWait; ctx.Err() == nil; wait = longer(wait) {
		err := t.restore(ctx)
		if err == nil {
			break
		}
		n.cfg.Logger.Warn("cannot read which findings were posted; trying again", zap.Error(err))
		pause(ctx, jittered(wait))
	}
	for ctx.Err() == nil {
		due := time.NewTimer(t.untilNext())
		select {
		case f := <-looks:
			t.take(ctx, f)
		case <-due.C:
			t.sendNext(ctx)
		case <-ctx.Done():
		}
		due.Stop()
	}
}

// term is what a notifier knows while its dispatcher owns the store.
type term struct {
	*Notifier
	store  dispatch.NoticeLog
	client *http.Client
	open   map[string]*state // by the names of notices
	began  time.Time         // the term
	// unable: the store could not keep a notice of this look, and need not be asked for each.
	unable bool
}

// state is a finding that is there, or was posted and has not ended yet.
type state struct {
	notice
	begun   bool // the notice is kept, or to be
	unsaved bool
	over    bool      // its end was posted, and the store could not drop it yet: if the finding is back, that is another one
	gone    time.Time // since when it is not found; zero: it is

	wait time.Duration // before the last failed try is repeated; 0: none has failed
	next time.Time     // when its message may be sent
}

// restore reads what earlier owners have posted.
func (t *term) restore(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	kept, err := t.store.Notices(call)
	if err != nil {
		return err
	}
	for name, record := range kept {
		s := &state{begun: true}
		if err := json.Unmarshal(record, &s.notice); err != nil {
			t.cfg.Logger.Error("a notice that was kept cannot be read", zap.String("notice", name), zap.Error(err))
			continue
		}
		t.open[name] = s
	}
	return nil
}

// save has the store keep a notice. A store that cannot, as one with a full disk, is a finding that must be posted all the same: the
// notice is saved later, and should the owner change before, its message comes again.
func (t *term) save(ctx context.Context, name string, s *state, record []byte) error {
	if t.unable {
		s.unsaved = true
		return dispatch.ErrStoreUnavailable
	}
	call, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	err := t.store.PutNotice(call, name, record)
	s.unsaved = err != nil
	if err != nil && !errors.Is(err, dispatch.ErrInvalid) {
		t.unable = true
		t.cfg.Logger.Warn("cannot keep that a finding was posted; trying again", zap.String("notice", name), zap.Error(err))
	}
	return err
}

// take compares what was posted with the findings of a look.
func (t *term) take(ctx context.Context, f *operate.Findings) {
	now := time.Now()
	t.unable = false
	there := sort(f.All, func(kind operate.FindingKind) bool {
		s := t.open[string(kind)]
		return s != nil && s.begun && s.Ended.IsZero()
	})
	partial := !f.Whole || slices.ContainsFunc(f.All, func(f operate.Finding) bool { return f.Kind == "UNREAD" })
	for name, finding := range there.by {
		s := t.open[name]
		if s == nil || s.over {
			s = &state{notice: notice{Finding: finding}}
			s.ID, s.Began, s.Dispatcher = uuid.NewString(), now, t.cfg.Dispatcher
			t.open[name] = s
		}
		if s.gone = (time.Time{}); s.begun {
			continue
		}
		finding.ID, finding.Began, finding.Dispatcher = s.ID, s.Began, s.Dispatcher
		if s.Finding = finding; now.Sub(s.Began) >= t.cfg.After {
			t.begin(ctx, name, s)
		}
	}
	for name, s := range t.open {
		_, still := there.by[name]
		apart := name != string(s.Kind)
		switch {
		case s.unsaved && s.begun:
			_ = t.save(ctx, name, s, s.record()) // it is logged, and tried again at the next look
		case still || !s.Ended.IsZero():
		case !s.begun && (apart && there.many[s.Kind] || !partial):
			delete(t.open, name)
		case partial || apart && there.many[s.Kind]: // whether it is gone is not known
		case s.gone.IsZero():
			s.gone = now
		case now.Sub(s.gone) >= t.cfg.Gone && now.Sub(t.began) >= newOwner*t.cfg.Gone:
			t.end(ctx, name, s)
		}
	}
}

func (t *term) begin(ctx context.Context, name string, s *state) {
	s.begun = true
	if err := t.save(ctx, name, s, s.record()); errors.Is(err, dispatch.ErrInvalid) {
		t.cfg.Logger.Warn("a finding is not posted: there are too many", zap.String("notice", name), zap.Error(err))
		s.Silent, s.unsaved = true, false
		t.cfg.Count(Dropped)
	}
}

func (t *term) end(ctx context.Context, name string, s *state) {
	if s.Silent {
		t.forget(ctx, name, s)
		return
	}
	s.Ended = s.gone
	_ = t.save(ctx, name, s, s.record()) // it is logged, and tried again at the next look
}

// forget drops a notice. One that the store still has ends again with the next owner.
func (t *term) forget(ctx context.Context, name string, s *state) {
	if err := t.save(ctx, name, s, nil); err == nil || errors.Is(err, dispatch.ErrInvalid) {
		delete(t.open, name)
		return
	}
	s.Silent, s.Ended, s.unsaved, s.over = true, time.Time{}, false, true
	s.gone = time.Now() // it is tried again when that has ended
}

// due reports whether a notice has a message to send.
func (s *state) due() bool { return s.begun && !s.Silent && (!s.Posted || !s.Ended.IsZero()) }

// first is the notice whose message comes next; nil: none does.
func (t *term) first() (name string, first *state) {
	if t.stop.Load() {
		return "", nil
	}
	for n, s := range t.open {
		if !s.due() {
			continue
		}
		if first == nil || cmp.Or(s.next.Compare(first.next), s.Began.Compare(first.Began), cmp.Compare(n, name)) < 0 {
			name, first = n, s
		}
	}
	return name, first
}

// untilNext is the time until a message is to be sent.
func (t *term) untilNext() time.Duration {
	_, s := t.first()
	if s == nil {
		return longestWait
	}
	return max(time.Until(s.next), 0)
}

// sendNext sends the message that is due: of a notice whose begin was not taken yet that one, also if it has ended.
func (t *term) sendNext(ctx context.Context) {
	name, s := t.first()
	if s == nil || time.Until(s.next) > 0 {
		return
	}
	m := message{Type: "finding.began", Timestamp: s.Began, Data: s.Finding}
	m.Data.Ended = time.Time{}
	if s.Posted {
		m = message{Type: "finding.ended", Timestamp: s.Ended, Data: s.Finding}
	}
	answer := t.post(ctx, &m)
	if ctx.Err() != nil { // the next owner sends it, or again
		return
	}
	switch {
	case answer.err == nil:
		t.cfg.Count(Sent)
		s.wait, s.next = 0, time.Time{}
		t.done(ctx, name, s)
	case answer.stop:
		t.stop.Store(true)
		t.cfg.Count(Dropped)
		t.cfg.Logger.Error("the receiver of notices wants no more (410); start the dispatcher again to send them", zap.String("host", t.host))
	case time.Since(m.Timestamp) > giveUpAfter:
		t.cfg.Count(Dropped)
		t.cfg.Logger.Error("a notice was given up", zap.String("notice", name), zap.String("type", m.Type), zap.Error(answer.err))
		s.Silent = !s.Posted
		s.wait, s.next = 0, time.Time{}
		t.done(ctx, name, s)
	default:
		t.cfg.Count(Failed)
		t.cfg.Logger.Warn("a notice was not taken; trying again", zap.String("host", t.host), zap.String("notice", name), zap.Error(answer.err))
		s.wait = longer(s.wait)
		s.next = time.Now().Add(max(jittered(s.wait), min(answer.after, longestWait)))
	}
}

// done goes on from a message that was taken or given up.
func (t *term) done(ctx context.Context, name string, s *state) {
	if s.Posted || s.Silent && !s.Ended.IsZero() {
		t.forget(ctx, name, s)
		return
	}
	s.Posted = true
	_ = t.save(ctx, name, s, s.record()) // it is logged, and tried again at the next look
}

func longer(wait time.Duration) time.Duration {
	return min(max(2*wait, firstWait), longestWait)
}

func jittered(wait time.Duration) time.Duration { return wait/2 + rand.N(wait/2) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
