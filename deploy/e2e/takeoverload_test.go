//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	// takeoverRaw raw clients take a task at a time, takeoverSteady hosts always have one for them: 50 a second each.
	takeoverRaw, takeoverSteady = 4, 4
	// fullRounds and more are a full run, which holds the pauses against what is promised. With fewer rounds lenient is the most that
	// one may last: the machine is busy with other tests.
	fullRounds, lenient = 30, 15 * time.Second
	// heldLease is the lease of tasks that holders keep: a full run has as many as renewals each 10 s suffice for.
	heldLease, fullHeldLease = 6 * time.Second, 30 * time.Second
	// mostHeld leases are renewed by one call.
	mostHeld = 1000
)

// failures are the calls that dispatchers did not answer as they were asked.
type failures struct {
	mu  sync.Mutex // guards what follows
	all []failure
}

type failure struct {
	at         time.Time
	dispatcher int
	what       string
}

// note adds a call that a dispatcher answered with an error. Nobody counts those of nil.
func (f *failures) note(dispatcher int, err error) {
	if f == nil {
		return
	}
	what := err.Error()
	if why := reason(err); why != "" {
		what = why
	} else if st, ok := status.FromError(err); ok {
		what = fmt.Sprintf("%v: %.60s", st.Code(), st.Message())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, failure{time.Now(), dispatcher, what})
}

// between counts those of an interval by what they were: of one dispatcher, and of all others.
func (f *failures) between(from, to time.Time, dispatcher int) (of, others map[string]int) {
	of, others = make(map[string]int), make(map[string]int)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.all {
		switch {
		case one.at.Before(from) || one.at.After(to):
		case one.dispatcher == dispatcher:
			of[one.what]++
		default:
			others[one.what]++
		}
	}
	return of, others
}

// takeovers is a store with many tasks waiting and many leases held, whose owner goes away again and again while a standby is warm.
// Clients are granted a task at a time all the while.
type takeovers struct {
	*owned

	waiting int // tasks of the source waiting
	steady  int // tasks of the source steady
	holders []*holder
	changes []change
}

// change is a dispatcher that goes away, and how that ended.
type change struct {
	what     string
	gone     int // its number
	next     int // the owner then
	from, to time.Time
	at       []int         // the dispatcher of each raw client just before
	late     time.Duration // from the deadline of a lease that expired meanwhile until its task was granted again; 0: there was none
	loads    []string      // what dispatchers logged that loaded a shard when they came to own it
}

// newTakeovers is a world before anything was started there.
func newTakeovers(t *testing.T, dispatchers, shards int) *takeovers {
	t.Helper()
	server := redistest.Start(t, redistest.WithAOF(redistest.FsyncEverySecond))
	w := &takeovers{owned: ownedBy(newSoak(t, shards, server), seeded(t))}
	w.raw, w.load.atOnce = takeoverRaw, 1
	w.reach(t, dispatchers)
	return w
}

// start starts everything, and has tasks wait and leases held.
func (w *takeovers) start(t *testing.T) {
	t.Helper()
	w.owned.start(t)
	c := w.clients[0]
	tasks := numberOf(t, "WAGGLE_E2E_TASKS", 20_000)
	w.steadily(t, takeoverSteady, tasks/4, soakDelay)
	w.waiting = tasks - w.steady
	c.createSource(t, &pb.SourceSpec{Id: "waiting", Pool: "waiting"})
	c.submitMany(t, "waiting", "waiting-%d.example", 5000, w.waiting)
	w.hold(t, numberOf(t, "WAGGLE_E2E_LEASES", 2000))
}

// steadily has so many hosts always have a task for all clients, each time a delay has passed.
func (w *takeovers) steadily(t *testing.T, hosts, tasks int, delay time.Duration) (ids []string) {
	t.Helper()
	w.steady = tasks
	c := w.clients[0]
	c.setRule(t, "*.steady.example", delay, soakInFlight)
	c.createSource(t, &pb.SourceSpec{Id: "steady", LeaseDuration: durationpb.New(w.lease)})
	return c.submitMany(t, "steady", "s%d.steady.example", hosts, tasks)
}

func (w *takeovers) full(t *testing.T) bool { return ownedRounds(t, 1) >= fullRounds }

// hold has collectors hold leases, and renew them.
func (w *takeovers) hold(t *testing.T, leases int) {
	t.Helper()
	lease := heldLease
	if w.full(t) {
		lease = fullHeldLease
	}
	c := w.clients[0]
	c.setRule(t, "*.held.example", 0, mostHeld)
	c.createSource(t, &pb.SourceSpec{
		Id: "held", Pool: "held", LeaseDuration: durationpb.New(lease), MaxHold: durationpb.New(24 * time.Hour),
	})
	c.submitMany(t, "held", "h%d.held.example", 100, leases)
	ctx, stop := context.WithCancel(t.Context())
	var holding sync.WaitGroup
	t.Cleanup(func() {
		stop()
		holding.Wait()
	})
	for held := 0; held < leases; {
		n := len(w.holders)
		h := &holder{id: fmt.Sprintf("holder-%d", n), session: uuid.NewString(), lease: lease, caller: newCaller(&w.failures, n%len(w.clients), w.clients)}
		w.holders = append(w.holders, h)
		held += h.fetch(t, min(mostHeld, leases-held))
		holding.Go(func() { h.hold(ctx) })
	}
}

// holder is a collector that keeps its leases.
type holder struct {
	*caller

	id, session string
	lease       time.Duration
	beats       []*pb.LeaseBeat

	mu    sync.Mutex // guards what follows
	ends  time.Time  // of the leases, by the last renewal
	over  int        // times that all had ended before a renewal was answered
	lost  []string   // leases that were lost though they were renewed in time
	gives bool       // the leases are reported: none is renewed any more
}

// fetch fetches the leases, and returns how many.
func (h *holder) fetch(t *testing.T, leases int) int {
	t.Helper()
	for len(h.beats) < leases {
		sent := time.Now()
		reply, err := h.all[0].dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
			CollectorId: h.id, Session: h.session, ClientToken: uuid.NewString(), Pools: []string{"held"},
			MaxTasks: int32(leases - len(h.beats)), Wait: durationpb.New(5 * time.Second),
		})
		if err != nil || len(reply.GetLeasedTasks()) == 0 {
			t.Fatalf("fetch a task to hold: %v, %v", reply, err)
		}
		if h.ends.IsZero() {
			h.ends = sent.Add(h.lease)
		}
		for _, task := range reply.GetLeasedTasks() {
			h.beats = append(h.beats, &pb.LeaseBeat{TaskId: task.GetTask().GetId(), LeaseToken: task.GetLease().GetLeaseToken()})
		}
	}
	return len(h.beats)
}

// hold renews the leases at each third of their duration, until ctx ends or they are reported.
func (h *holder) hold(ctx context.Context) {
	for ctx.Err() == nil {
		h.renew(ctx)
		lasts(ctx, h.lease/3)
	}
}

func (h *holder) renew(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gives {
		return
	}
	h.answered(ctx, func(ctx context.Context, c *client) error {
		sent := time.Now()
		reply, err := c.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: h.id, Session: h.session}, Leases: h.beats})
		if err != nil {
			return err
		}
		if sent.After(h.ends) {
			h.over++
		} else {
			for _, one := range reply.GetStatus().GetLost() {
				h.lost = append(h.lost, fmt.Sprintf("%s %v, %v before its end", one.GetTaskId(), one.GetReason(), h.ends.Sub(sent)))
			}
		}
		h.ends = sent.Add(h.lease)
		return nil
	})
}

// report reports all leases.
func (h *holder) report(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gives = true
	request := &pb.ReportTaskRequest{CollectorId: h.id, Session: h.session}
	for _, beat := range h.beats {
		request.Reports = append(request.Reports, &pb.TaskReport{TaskId: beat.GetTaskId(), LeaseToken: beat.GetLeaseToken(), Outcome: success()})
	}
	h.answered(t.Context(), func(ctx context.Context, c *client) error {
		reply, err := c.dispatch.ReportTask(ctx, request)
		for _, r := range reply.GetResults() {
			if r.GetCode() != pb.ReportCode_REPORT_CODE_OK && h.over == 0 {
				t.Errorf("the report of a lease that was held: %v", r)
			}
		}
		return err
	})
	for _, one := range h.lost[:min(5, len(h.lost))] {
		t.Errorf("%d leases of %s that were renewed in time were lost: %s", len(h.lost), h.id, one)
	}
	if h.over > 0 {
		t.Errorf("the leases of %s ended %d times before a renewal was answered", h.id, h.over)
	}
}

// warm waits until each shard has a standby that has it in memory. What has ended is started again.
func (w *takeovers) warm(t *testing.T) {
	t.Helper()
	until(t, time.Minute, "each shard has a warm standby", func() bool {
		w.keepUp()
		for shard := range w.shards {
			var record struct {
				Released bool   `json:"released"`
				Standby  string `json:"standby_name"`
			}
			text := redisCLI(t, w.servers[0], "GET", fmt.Sprintf("waggle:{%d}:owner", shard))
			if err := json.Unmarshal([]byte(text), &record); err != nil || record.Released || record.Standby == "" {
				return false
			}
		}
		return true
	})
}

// ready waits until a standby is warm, and each raw client calls a dispatcher of its own.
func (w *takeovers) ready(t *testing.T) {
	t.Helper()
	w.allServe(t)
	w.warm(t)
	for n, c := range w.callers {
		home := int32(n % len(w.clients))
		c.at.Store(home)
		before := c.answers.Load()
		until(t, ownedLimit, fmt.Sprintf("raw client %d calls dispatcher %d", n, home), func() bool {
			if c.at.Load() != home {
				c.at.Store(home)
				before = c.answers.Load()
			}
			return c.answers.Load() > before+3
		})
	}
}

// goes takes a dispatcher away, and waits until raw clients are granted tasks again: each, or those of living dispatchers only.
func (w *takeovers) goes(t *testing.T, what string, dispatcher int, each bool, away func()) {
	t.Helper()
	one := change{what: what, gone: dispatcher, from: time.Now()}
	written := make([]int, len(w.dispatchers))
	for n, d := range w.dispatchers {
		text, _ := d.out.text()
		written[n] = len(text)
	}
	before := make([]int64, len(w.callers))
	for n, c := range w.callers {
		one.at = append(one.at, int(c.at.Load()))
		before[n] = c.answers.Load()
	}
	away()
	w.granted(t, one.from)
	for n, c := range w.callers[:w.raw] {
		if each || one.at[n] != dispatcher {
			until(t, ownedLimit, fmt.Sprintf("raw client %d is answered", n), func() bool { return c.answers.Load() > before[n]+5 })
		}
	}
	w.lasts(t, 300*time.Millisecond)
	one.to, one.next = time.Now(), w.owner(t)
	for n, d := range w.dispatchers {
		text, _ := d.out.text()
		for line := range strings.Lines(text[min(written[n], len(text)):]) {
			if strings.Contains(line, "not what is kept") || strings.Contains(line, "the shard is loaded") {
				one.loads = append(one.loads, fmt.Sprintf("dispatcher %d: %s", n, strings.TrimSpace(line)))
			}
		}
	}
	w.changes = append(w.changes, one)
}

// endure runs rounds, lets all work end, and checks everything.
func (w *takeovers) endure(t *testing.T, rounds int, round func(n int)) *history.History {
	t.Helper()
	w.run(t, func() {
		for n := range rounds {
			w.ready(t)
			round(n)
		}
		w.ready(t)
		w.settle(t)
	})
	h, err := history.Read(w.logs...)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range h.RenewedInTime() {
		t.Error(v)
	}
	w.count(t, h)
	return h
}

// settle ends the work on tasks of others than the soak, and counts those that are DONE.
func (w *takeovers) settle(t *testing.T) {
	t.Helper()
	for _, h := range w.holders {
		h.report(t)
		w.others += len(h.beats)
	}
	c := w.clients[0]
	if _, err := c.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{
		Targets: []*pb.HoldTarget{{SourceId: "steady"}}, By: "e2e", Reason: "the end",
	}); err != nil {
		t.Fatal(err)
	}
	until(t, time.Minute, "no task of the source is leased", func() bool { return c.counts(t, "steady").GetLeased() == 0 })
	w.others += int(c.counts(t, "steady").GetDone())
}

// count checks that no task is lost that was not to be done: those of soak are checked one by one.
func (w *takeovers) count(t *testing.T, h *history.History) {
	t.Helper()
	if w.waiting > 0 {
		if n := int(w.client.counts(t, "waiting").GetReady()); n != w.waiting {
			t.Errorf("%d tasks are READY, of %d that wait", n, w.waiting)
		}
	}
	steady := w.client.counts(t, "steady")
	if n := int(steady.GetReady() + steady.GetDone()); n != w.steady {
		t.Errorf("%d tasks are READY and %d DONE, of %d", steady.GetReady(), steady.GetDone(), w.steady)
	}
	succeeded, accepted := make(map[string]bool), make(map[string]bool)
	for _, e := range h.Events {
		switch {
		case e.Kind == history.ReportSent && e.Code == history.Succeeded:
			succeeded[e.Token] = true
		case e.Kind == history.Reported && (e.Code == history.OK || e.Code == history.AlreadyReported) && succeeded[e.Token]:
			accepted[e.Task] = true
		}
	}
	for _, id := range w.ids {
		delete(accepted, id)
	}
	if len(accepted) == int(steady.GetDone()) {
		return
	}
	t.Errorf("%d tasks of the source steady were reported with success, and %d are DONE", len(accepted), steady.GetDone())
	for id := range accepted {
		if task := w.client.task(t, id); task.GetState() != pb.TaskState_TASK_STATE_DONE {
			t.Errorf("task %s was reported with success, and is %v", id, task)
		}
	}
}

// Kinds of clients, by the dispatcher that they call when one goes away.
const (
	byLiving  = "through a living dispatcher"
	byGone    = "through the one that is gone"
	byLibrary = "library"
)

// pauses is the longest time between two grants of each client, by its kind, over the time of a change.
func (w *takeovers) pauses(grants map[string][]time.Time, c change) map[string][]time.Duration {
	of := make(map[string][]time.Duration)
	add := func(kind, id string) { of[kind] = append(of[kind], longestPause(grants[id], c.from, c.to)) }
	for n := range w.raw {
		kind := byLiving
		if c.at[n] == c.gone {
			kind = byGone
		}
		add(kind, fmt.Sprintf("raw-%d", n))
	}
	for n := range w.crew {
		add(byLibrary, fmt.Sprintf("collector-%d", n))
	}
	return of
}

// grantsOf is when each client was granted something.
func grantsOf(h *history.History) map[string][]time.Time {
	of := make(map[string][]time.Time)
	for _, e := range h.Events {
		if e.Kind == history.Granted {
			of[e.Collector] = append(of[e.Collector], time.UnixMicro(e.Time))
		}
	}
	return of
}

// longestPause is the longest time between two grants, of which the first comes by the end of an interval and the second after its
// begin.
func longestPause(grants []time.Time, from, to time.Time) (longest time.Duration) {
	for i := 1; i < len(grants) && !grants[i-1].After(to); i++ {
		if grants[i].After(from) {
			longest = max(longest, grants[i].Sub(grants[i-1]))
		}
	}
	return longest
}

// show prints the pauses of each change, and returns the longest of each, over all clients of these kinds.
func (w *takeovers) show(t *testing.T, h *history.History, kinds ...string) (worst []time.Duration) {
	t.Helper()
	grants := grantsOf(h)
	all := make(map[string][]time.Duration)
	loaded := 0
	for n, c := range w.changes {
		pauses := w.pauses(grants, c)
		text := fmt.Sprintf("change %d: %s, then dispatcher %d owns", n, c.what, c.next)
		longest := time.Duration(0)
		for _, kind := range []string{byLiving, byGone, byLibrary} {
			text += fmt.Sprintf("; %s %s", kind, seconds(pauses[kind]...))
			if len(pauses[kind]) > 0 {
				all[kind] = append(all[kind], slices.Max(pauses[kind]))
			}
			if slices.Contains(kinds, kind) {
				longest = max(longest, slices.Max(append(pauses[kind], 0)))
			}
		}
		worst = append(worst, longest)
		calm := c
		calm.from, calm.to = c.from.Add(-2*time.Second), c.from.Add(-time.Second)
		before := time.Duration(0)
		for _, of := range w.pauses(grants, calm) {
			before = max(before, slices.Max(of))
		}
		text += fmt.Sprintf("; any, in the second before last %s", seconds(before))
		if c.late > 0 {
			text += fmt.Sprintf("; an expired lease was granted again %s after its deadline", seconds(c.late))
		}
		if failed := failedCalls(h, c); len(failed) > 0 {
			text += fmt.Sprintf("; errors of the library's calls: %v", failed)
		}
		if len(c.loads) > 0 {
			loaded++
			text += "; loaded: " + strings.Join(c.loads, ", ")
		}
		t.Log(text)
	}
	for _, kind := range []string{byLiving, byGone, byLibrary} {
		t.Logf("%s: longest pause of grants a change: %s", kind, summary(all[kind]))
	}
	t.Logf("all that count: %s; %d changes loaded the store", summary(worst), loaded)
	return worst
}

// failedCalls counts the calls of library collectors that failed over the time of a change. The library repeats them.
func failedCalls(h *history.History, c change) map[string]int {
	failed := make(map[string]int)
	for _, e := range h.Events {
		at := time.UnixMicro(e.Time)
		if e.Kind == history.Failed && strings.HasPrefix(e.Collector, "collector-") && at.After(c.from) && at.Before(c.to) {
			failed[e.Code]++
		}
	}
	return failed
}

// summary has median, longest and how many are over what is promised.
func summary(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(all))
	over := func(limit time.Duration) int {
		n, _ := slices.BinarySearch(sorted, limit+1)
		return len(sorted) - n
	}
	return fmt.Sprintf("median %s, longest %s s; %d of %d over 1.0 s, %d over 1.5 s",
		seconds(sorted[len(sorted)/2]), seconds(sorted[len(sorted)-1]), over(time.Second), len(sorted), over(1500*time.Millisecond))
}

func seconds(all ...time.Duration) string {
	text := make([]string, len(all))
	for i, d := range all {
		text[i] = fmt.Sprintf("%.2f", d.Seconds())
	}
	return strings.Join(text, " ")
}

// moved checks that dispatchers that went away owned nothing then.
func (w *takeovers) moved(t *testing.T) {
	t.Helper()
	for n, c := range w.changes {
		if c.next == c.gone {
			t.Errorf("change %d: %s, and it owns the store then", n, c.what)
		}
	}
}

// bound holds pauses against what is promised: in a full run 29 of 30 may last as long as usual, and the others as long as worst.
func (w *takeovers) bound(t *testing.T, pauses []time.Duration, usual, worst time.Duration) {
	t.Helper()
	if !w.full(t) {
		usual, worst = lenient, lenient
	}
	over := 0
	for _, d := range pauses {
		if d > usual {
			over++
		}
		if d > worst {
			t.Errorf("grants paused for %v, want at most %v", d, worst)
		}
	}
	if over > len(pauses)/fullRounds {
		t.Errorf("%d of %d pauses were longer than %v, want at most %d", over, len(pauses), usual, len(pauses)/fullRounds)
	}
}

// handled checks that no handler ended with an error.
func handled(t *testing.T, h *history.History) {
	t.Helper()
	failed := make(map[string]int)
	for _, e := range h.Events {
		if e.Kind == history.Ended && e.Code != history.Succeeded {
			failed[e.Code]++
		}
	}
	if len(failed) > 0 {
		t.Errorf("handlers ended with %v", failed)
	}
}

// errDraining is of a fetch that was answered that the dispatcher drains.
var errDraining = errors.New("a fetch was answered DISPATCHER_DRAINING")
