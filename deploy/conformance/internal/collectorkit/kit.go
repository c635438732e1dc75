package collectorkit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// slack is how much later than the rule something may come: the machine may be busy.
	slack = 500 * time.Millisecond

	// soon is the time for what is to happen "at once".
	soon = 3 * time.Second

	// startLimit is how long a client program may take to make its first call.
	startLimit = 20 * time.Second
)

// work is the payload of a task: what the handler of the client program does. The fields without JSON are the store's.
type work struct {
	WorkMS        int     `json:"work_ms,omitempty"`
	Stubborn      bool    `json:"stubborn,omitempty"`
	Block         bool    `json:"block,omitempty"`
	Raise         string  `json:"raise,omitempty"`
	Outcome       string  `json:"outcome,omitempty"`
	Reason        string  `json:"reason,omitempty"`
	RetryAfterMS  int     `json:"retry_after_ms,omitempty"`
	Permanent     bool    `json:"permanent,omitempty"`
	DelayMS       int     `json:"delay_ms,omitempty"`
	HTTPStatus    int     `json:"http_status,omitempty"`
	Bytes         int     `json:"bytes,omitempty"`
	Memo          string  `json:"memo,omitempty"`
	MemoBytes     int     `json:"memo_bytes,omitempty"`
	Cursor        string  `json:"cursor,omitempty"`
	Progress      float64 `json:"progress,omitempty"`
	Discovered    int     `json:"discovered,omitempty"`
	DiscoverFirst int     `json:"discover_first,omitempty"`
	Padding       string  `json:"padding,omitempty"` // handlers know no such field

	id       string
	lease    time.Duration // zero: what the fetch asks for, else 30 s
	yearsOff int           // by which the clock of the store is ahead
}

func (w work) payload() []byte {
	if w.Outcome == "" {
		w.Outcome = "succeeded"
	}
	payload, err := json.Marshal(w)
	if err != nil {
		panic(err)
	}
	return payload
}

// hooks are what a script has the dispatchers do. A hook that returns nothing leaves the answer to the usual dispatcher.
type hooks struct {
	every  func(*call) error
	fetch  func(*call) (*wagglev1.FetchTaskResponse, error)
	beat   func(*call) (*wagglev1.LeaseStatus, error)
	stream func(*call) error
	report func(*call) (*wagglev1.ReportTaskResponse, error)
	submit func(*call) (*wagglev1.SubmitDiscoveredResponse, error)
}

// kit is one scenario under way: the store and the dispatchers, what they have seen, and the process under test.
type kit struct {
	ctx     context.Context //nolint:containedctx // it lives as long as the scenario
	command []string
	config  clientConfig
	dir     string // for files; it goes with the scenario
	servers []*server
	client  *client
	log     *tail

	mu      sync.Mutex // guards what follows, and what it points to
	changed chan struct{}
	hooks   hooks
	calls   []*call
	streams []*stream
	reports []*reported
	events  []event
	leases  []*lease
	due     []work
	tasks   int
	fence   int64
	codes   map[string]wagglev1.ReportCode // what a report of a task is answered, whatever the lease says
	held    bool                           // as beats answer

	// graceful takes reports after the deadline, as a store does after an outage.
	graceful bool
	nextBeat time.Duration // when nothing is held
}

// newKit starts two dispatchers. The client program is started by the script. It has to be closed, also after an error.
func newKit(ctx context.Context, s Scenario, o Options) (*kit, error) {
	k := &kit{
		ctx: ctx, command: o.Command, changed: make(chan struct{}), fence: 1000, log: &tail{},
		codes: map[string]wagglev1.ReportCode{}, nextBeat: idleBeat,
		config: clientConfig{
			Scenario: s.Name, Transport: cmp.Or(o.Transport, "grpc"), CollectorID: "kit-1", Labels: map[string]string{"zone": "a"},
			Pools: []string{"default"}, Slots: 4, WaitMS: 2000, DrainMS: 5000,
		},
	}
	var err error
	if k.dir, err = os.MkdirTemp("", "waggle-conformance-"); err != nil {
		return k, err
	}
	hosts := []string{"127.0.0.1", "127.0.0.1"}
	if s.certificates != nil {
		hosts[1] = "localhost" // another name for the certificate
	}
	for i := range 2 {
		one := &server{k: k, listen: "127.0.0.1:0"}
		if s.certificates != nil {
			config, err := s.certificates(k, hosts[i])
			if err != nil {
				return k, err
			}
			one.tls = config
		}
		if err := one.start(); err != nil {
			return k, err
		}
		k.servers = append(k.servers, one)
		_, port, err := net.SplitHostPort(one.listen)
		if err != nil {
			return k, err
		}
		k.config.Servers = append(k.config.Servers, net.JoinHostPort(hosts[i], port))
	}
	if s.config != nil {
		s.config(&k.config)
	}
	if k.config.TokenFile != "" {
		k.config.TokenFile = filepath.Join(k.dir, k.config.TokenFile)
	}
	return k, nil
}

// close ends everything.
func (k *kit) close() {
	if k.client != nil {
		k.client.kill()
	}
	for _, s := range k.servers {
		s.kill()
	}
	_ = os.RemoveAll(k.dir) // it is a temporary directory
}

// change changes what mu guards, and wakes whoever waits for a change.
func (k *kit) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.changed)
	k.changed = make(chan struct{})
}

// find finds a lease by its token; the caller holds mu.
func (k *kit) find(token string) *lease {
	for _, l := range k.leases {
		if l.token == token {
			return l
		}
	}
	return nil
}

func (k *kit) hooked() hooks {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.hooks
	if h.every == nil {
		h.every = func(*call) error { return nil }
	}
	return h
}

// What scripts have the dispatchers do.

// on sets hooks.
func (k *kit) on(set func(h *hooks)) { k.change(func() { set(&k.hooks) }) }

// add makes tasks due and returns their ids.
func (k *kit) add(list ...work) (ids []string) {
	k.change(func() {
		for _, w := range list {
			k.tasks++
			if w.id == "" {
				w.id = fmt.Sprintf("%d-task", k.tasks)
			}
			k.due = append(k.due, w)
			ids = append(ids, w.id)
		}
	})
	return ids
}

// many is n times the same work.
func many(n int, w work) []work { return slices.Repeat([]work{w}, n) }

// failing makes a hook that fails its first n calls, and leaves the others to the usual dispatcher.
func failing[T any](n int64, err error) func(*call) (*T, error) {
	var calls atomic.Int64
	return func(*call) (*T, error) {
		if calls.Add(1) <= n {
			return nil, err
		}
		return nil, nil //nolint:nilnil // the usual dispatcher answers
	}
}

// always is as many calls as it takes.
const always = 1 << 62

// once makes a hook that answers its first call by reply.
func once[T any](reply func(*call) (*T, error)) func(*call) (*T, error) {
	var called atomic.Bool
	return func(c *call) (*T, error) {
		if called.CompareAndSwap(false, true) {
			return reply(c)
		}
		return nil, nil //nolint:nilnil // the usual dispatcher answers
	}
}

// push sends a status to all open streams, as what happens between beats: it renews nothing.
func (k *kit) push(status *wagglev1.LeaseStatus) {
	k.check(func() { status.Held = k.held })
	k.pushMessage(&wagglev1.HeartbeatResponse{Status: status})
}

func (k *kit) pushMessage(message *wagglev1.HeartbeatResponse) {
	k.change(func() {
		for _, st := range k.streams {
			if st.ended.IsZero() {
				st.pushes <- message
			}
		}
	})
}

// endStreams ends all open streams with an error.
func (k *kit) endStreams(err error) {
	k.change(func() {
		for _, st := range k.streams {
			if st.ended.IsZero() {
				st.end <- err
			}
		}
	})
}

// lose ends leases without a report.
func (k *kit) lose(reason wagglev1.LostReason, ids ...string) (lost []*wagglev1.LostLease) {
	k.change(func() {
		for _, l := range k.leases {
			if slices.Contains(ids, l.work.id) {
				l.lost = reason
				lost = append(lost, &wagglev1.LostLease{TaskId: l.work.id, LeaseToken: l.token, Reason: reason})
			}
		}
	})
	return lost
}

// cancel notes that tasks are to end.
func (k *kit) cancel(reason wagglev1.CancelReason, ids ...string) (notices []*wagglev1.CancelNotice) {
	k.change(func() {
		for _, l := range k.leases {
			if slices.Contains(ids, l.work.id) {
				l.canceled = &wagglev1.CancelNotice{TaskId: l.work.id, Reason: reason}
				notices = append(notices, l.canceled)
			}
		}
	})
	return notices
}

// wgError is a dispatcher's error; retry is what its RetryInfo asks for, 0 for none.
func wgError(code codes.Code, reason string, retry time.Duration) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: "waggle", Metadata: map[string]string{"limit": "of the kit"}}}
	if retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	with, err := status.New(code, "the kit answers "+reason).WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return with.Err()
}

// errLost stands for an answer that did not arrive.
var errLost = status.Error(codes.Unavailable, "connection lost")

// errSilent as the answer of a hook is none at all.
var errSilent = status.Error(codes.Unavailable, "silence")

// What scripts do with the client program.

// launch starts the client program.
func (k *kit) launch() {
	started, err := startClient(k.ctx, k.command, k.config, k.log, func(e event) { k.change(func() { k.events = append(k.events, e) }) })
	if err != nil {
		verdict.Fail("%v", err)
	}
	k.client = started
}

// relaunch starts another process of the client program, once the first has ended.
func (k *kit) relaunch() {
	k.change(func() { k.events = nil })
	k.launch()
}

// start starts the client program and waits for its first call.
func (k *kit) start() {
	k.launch()
	k.await(startLimit, "first call", func() bool { return len(k.calls) > 0 })
}

// stop has the client program stop by plan.
func (k *kit) stop() { _ = k.client.stdin.Close() } // it may have ended

// signal sends a signal to the client program.
func (k *kit) signal(sig syscall.Signal) {
	if err := k.client.signal(sig); err != nil {
		verdict.Fail("%v", err)
	}
}

// exited waits for the end of the client program and returns its code.
func (k *kit) exited(limit time.Duration) int {
	k.await(limit, "end of the client program", func() bool { return k.hasEvent("exit", "") })
	return k.client.cmd.ProcessState.ExitCode()
}

// endedByItself waits until the client program has ended with an error event.
func (k *kit) endedByItself(why string) {
	code := k.exited(soon + 5*time.Second) // handlers may take theirs
	k.check(func() {
		verdict.Want(k.hasEvent("error", ""), "the collector ended with code %d after %s, without an error event", code, why)
	})
	verdict.Want(code == 1, "the collector ended with code %d after %s, want 1", code, why)
}

// What scripts judge by.

// await waits until isSo, which is called with mu held.
func (k *kit) await(limit time.Duration, what string, isSo func() bool) {
	over := time.After(limit)
	for {
		var ok, gone bool
		var last string
		var changed <-chan struct{}
		k.check(func() { ok, gone, last, changed = isSo(), k.hasEvent("exit", ""), k.lastError(), k.changed })
		switch {
		case ok:
			return
		case gone:
			verdict.Fail("no %s: the client program has ended (%s)%s", what, k.client.cmd.ProcessState, last)
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // what depends on the time alone
		case <-over:
			verdict.Fail("no %s within %s", what, limit)
		case <-k.ctx.Done():
			verdict.Fail("no %s: the scenario's time is over", what)
		}
	}
}

// awaitEvents waits until the handlers whose reports counted are known to have finished. A report may arrive before the event that its
// handler wrote, and a handler that outlives the drain may write none: that is no verdict.
func (k *kit) awaitEvents() {
	_ = verdict.Of(func() {
		k.await(soon, "end of the handlers", func() bool {
			return !slices.ContainsFunc(k.leases, func(l *lease) bool {
				return l.result != nil && k.hasEvent("started", l.work.id) && !k.hasEvent("finished", l.work.id)
			})
		})
	})
}

// lastError is the message of the last error event; the caller holds mu.
func (k *kit) lastError() string {
	for _, e := range slices.Backward(k.events) {
		if e.Event == "error" {
			return ": " + strings.TrimSpace(e.Message)
		}
	}
	return ""
}

// check judges with mu held.
func (k *kit) check(judge func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	judge()
}

// pass lets time pass. It is for what must not happen in that time.
func (k *kit) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-k.ctx.Done():
		verdict.Fail("the scenario's time is over")
	}
}

// next waits for a call that came after a moment and fits, and returns it.
func (k *kit) next(limit time.Duration, what string, after time.Time, fits func(*call) bool) (found *call) {
	k.await(limit, what, func() bool {
		found = k.first(after, fits)
		return found != nil
	})
	return found
}

// first is the first call after a moment that fits; the caller holds mu.
func (k *kit) first(after time.Time, fits func(*call) bool) *call {
	for _, c := range k.calls {
		if c.at.After(after) && fits(c) {
			return c
		}
	}
	return nil
}

// count counts the calls between two moments that fit.
func (k *kit) count(after, before time.Time, fits func(*call) bool) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.calls {
		if c.at.After(after) && c.at.Before(before) && fits(c) {
			n++
		}
	}
	return n
}

func isFetch(c *call) bool { return c.fetch != nil }
func isBeat(c *call) bool  { return c.beat != nil }

// at narrows to one server.
func at(s *server, fits func(*call) bool) func(*call) bool {
	return func(c *call) bool { return c.server == s && fits(c) }
}

// names reports whether a beat names a task.
func names(c *call, id string) bool {
	return slices.ContainsFunc(c.beat.GetLeases(), func(b *wagglev1.LeaseBeat) bool { return b.GetTaskId() == id })
}

// hasEvent reports whether the client program wrote an event, of a task or of any; the caller holds mu.
func (k *kit) hasEvent(name, task string) bool { return k.event(name, task) != nil }

// event is the first such event; the caller holds mu.
func (k *kit) event(name, task string) *event {
	for i, e := range k.events {
		if e.Event == name && (task == "" || e.Task == task) {
			return &k.events[i]
		}
	}
	return nil
}

// started waits until the handler of a task has begun.
func (k *kit) started(ids ...string) {
	for _, id := range ids {
		k.await(soon+slack, "start of the handler of "+id, func() bool { return k.hasEvent("started", id) })
	}
}

// canceled waits until the handler of a task saw its cancellation and returns when.
func (k *kit) canceled(limit time.Duration, id string) (when time.Time) {
	k.await(limit, "cancellation of the handler of "+id, func() bool {
		e := k.event("canceled", id)
		if e != nil {
			when = e.at
		}
		return e != nil
	})
	return when
}

// settled waits until reports of tasks counted.
func (k *kit) settled(limit time.Duration, ids ...string) {
	for _, id := range ids {
		k.await(limit, "report of "+id+" that counts", func() bool { return k.lease(id) != nil && k.lease(id).result != nil })
	}
}

// lease is the last lease of a task; the caller holds mu.
func (k *kit) lease(id string) *lease {
	for _, l := range slices.Backward(k.leases) {
		if l.work.id == id {
			return l
		}
	}
	return nil
}

// outcome is that of the report of a task that counted.
func (k *kit) outcome(id string) *wagglev1.Outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease(id).result.GetOutcome()
}

// reportsOf are the reports of a task that came.
func (k *kit) reportsOf(id string) []*reported {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reportsLocked(id)
}

// awaitStream waits for an open stream that was opened after a moment.
func (k *kit) awaitStream(after time.Time) {
	k.await(soon, "heartbeat stream", func() bool {
		return slices.ContainsFunc(k.streams, func(st *stream) bool { return st.opened.After(after) && st.ended.IsZero() })
	})
}

// seen are the calls that fit.
func (k *kit) seen(fits func(*call) bool) (list []*call) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.callsLocked(fits)
}

// callsLocked is seen for who holds mu.
func (k *kit) callsLocked(fits func(*call) bool) (list []*call) {
	for _, c := range k.calls {
		if fits(c) {
			list = append(list, c)
		}
	}
	return list
}

// lastLocked is the last call that fits; the caller holds mu, and there is one.
func (k *kit) lastLocked(fits func(*call) bool) *call {
	for _, c := range slices.Backward(k.calls) {
		if fits(c) {
			return c
		}
	}
	verdict.Fail("a call is missing")
	return nil
}

// eventsLocked counts events; the caller holds mu.
func (k *kit) eventsLocked(name string) (n int) {
	for _, e := range k.events {
		if e.Event == name {
			n++
		}
	}
	return n
}

// early fails if something came before a moment.
func early(what string, at, least time.Time) {
	verdict.Want(!at.Before(least), "%s %s too early", what, least.Sub(at).Round(time.Millisecond))
}

// late says by how much something came later than a limit, and fails if it did.
func late(what string, at, limit time.Time) {
	verdict.Want(!at.After(limit), "%s %s too late", what, at.Sub(limit).Round(time.Millisecond))
}

// leaseOf is the last lease of a task.
func (k *kit) leaseOf(id string) lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return *k.lease(id)
}

// reportsLocked is reportsOf for who holds mu.
func (k *kit) reportsLocked(id string) (list []*reported) {
	for _, one := range k.reports {
		if one.report.GetTaskId() == id {
			list = append(list, one)
		}
	}
	return list
}
