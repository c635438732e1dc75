package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/server/notify"
)

// received is a message that the receiver got.
type received struct {
	id   string
	when time.Time
	Type string
	Data notify.Finding
}

// receiver takes messages in virtual time.
type receiver struct {
	t      *testing.T
	mu     sync.Mutex          // guards what follows
	all    []received          // that it took
	tries  int                 // that it did not take
	status int                 // of its answers; 0: it cannot be reached
	kind   operate.FindingKind // of the messages that count
	counts map[notify.Result]int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	return &receiver{t: t, status: http.StatusNoContent, kind: "HELD", counts: make(map[notify.Result]int)}
}

// RoundTrip implements [http.RoundTripper].
func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	m := received{id: req.Header.Get("Webhook-Id"), when: time.Now()}
	if err := json.Unmarshal(body, &m); err != nil || len(body) > 64<<10 {
		r.t.Errorf("%d bytes: %v: %s", len(body), err, body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status
	switch {
	case m.Data.Kind != r.kind: // a world in which nothing happens has findings, too
		status = http.StatusOK
	case status == 0:
		r.tries++
		return nil, errors.New("nobody is there")
	case status/100 == 2:
		r.all = append(r.all, m)
	default:
		r.tries++
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(nil)), Header: http.Header{}}, nil
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// messages are those that were taken.
func (r *receiver) messages() []received {
	synctest.Wait() // one may be on its way
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// took are the types of the messages that were taken, with the names in them.
func (r *receiver) took() string {
	var all []string
	for _, m := range r.messages() {
		all = append(all, strings.TrimPrefix(m.Type, "finding.")+" "+strings.Join(m.Data.Names, ","))
	}
	return strings.Join(all, "; ")
}

func (r *receiver) refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tries
}

func (r *receiver) count(of notify.Result) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[of]
}

// runs has an operator's findings posted to the receiver until the returned function is called.
func (r *receiver) runs(o *operate.Operator, name string) (stop func()) {
	r.t.Helper()
	n, err := notify.New(notify.Config{
		URL: "http://receiver.test/", Dispatcher: name, Logger: zap.NewNop(), Count: func(result notify.Result) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.counts[result]++
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Through(r).Run(ctx, o) })
	return func() {
		cancel()
		running.Wait()
	}
}

// The notice of a source that succeeds and gives nothing has what it does not give; why pages fail is named.
func TestNotifier_silent(t *testing.T) {
	t.Parallel()
	const forbidden, notFound = 2, 1
	f := operate.Finding{
		Kind: "PAGES_FAIL", Count: 1, Names: []string{"news"}, Message: "12 of its last 14 pages failed",
		Reasons: map[dispatch.FailureReason]int{forbidden: 10, notFound: 2},
	}
	if got := notify.Texts(f); len(got) != 1 || got[0] != "PAGES_FAIL: news: 12 of its last 14 pages failed: FORBIDDEN, NOT_FOUND" {
		t.Errorf("the notice of pages that fail has %q", got)
	}
	f = operate.Finding{Kind: "EMPTY", Count: 1, Names: []string{"n.empty"}, Message: "no entries in its last 2 cycles"}
	if got := notify.Texts(f); len(got) != 1 || got[0] != "EMPTY: n.empty: no entries in its last 2 cycles" {
		t.Errorf("the notice of an empty source has %q", got)
	}
}

// hold puts a hold on a pool, which is a finding.
func hold(w *dispatchtest.World, pools ...string) {
	for _, pool := range pools {
		w.SetHold(dispatch.HoldTarget{Pool: pool}, time.Time{})
	}
}

func lift(w *dispatchtest.World, pools ...string) {
	for _, pool := range pools {
		w.LiftHold(dispatch.HoldTarget{Pool: pool})
	}
}

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, test func(t *testing.T, w *dispatchtest.World, r *receiver)) {
	t.Helper()
	dispatchtest.InWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *dispatchtest.World) {
		test(t, w, newReceiver(t))
	})
}

// A finding is posted when it has lasted 30 s, and its end when it has been gone for 60 s; what comes and goes between is not.
func TestNotifier_Run(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *dispatchtest.World, r *receiver) {
		defer r.runs(w.Operator, "d0")()
		time.Sleep(time.Minute)
		hold(w, "flap")
		time.Sleep(25 * time.Second)
		lift(w, "flap")
		time.Sleep(5 * time.Minute)
		if got := r.took(); got != "" {
			t.Fatalf("posted: %s", got)
		}
		begun := time.Now()
		hold(w, "a", "b")
		time.Sleep(5 * time.Minute)
		for range 3 { // it is gone for less than a minute
			lift(w, "a")
			time.Sleep(40 * time.Second)
			hold(w, "a")
			time.Sleep(2 * time.Minute)
		}
		if got := r.took(); got != "began pool a; began pool b" {
			t.Fatalf("posted: %s", got)
		}
		first := r.messages()[0]
		if after := first.when.Sub(begun); after < 30*time.Second || after > 55*time.Second {
			t.Errorf("posted after %v", after)
		}
		if f := first.Data; f.Kind != "HELD" || f.Count != 1 || f.Since.IsZero() || f.Began.Before(begun) || !f.Ended.IsZero() || f.Next == "" ||
			!strings.HasPrefix(f.Text, "HELD: pool a") || f.Dispatcher != "d0" || first.id != f.ID+".began" {
			t.Errorf("%+v", first)
		}
		ended := time.Now()
		lift(w, "a")
		time.Sleep(5 * time.Minute)
		if got := r.took(); got != "began pool a; began pool b; ended pool a" {
			t.Fatalf("posted: %s", got)
		}
		last := r.messages()[2]
		if after := last.when.Sub(ended); after < time.Minute || after > 85*time.Second {
			t.Errorf("posted after %v", after)
		}
		if last.Data.ID != first.Data.ID || last.id == first.id || last.Data.Ended.IsZero() {
			t.Errorf("the begin was %+v, the end %+v", first, last)
		}
		if n := r.count(notify.Sent); n < 3 {
			t.Errorf("%d sent", n)
		}
	})
}

// Many findings of a kind are one message, which names 10 and counts all.
func TestNotifier_Run_many(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *dispatchtest.World, r *receiver) {
		defer r.runs(w.Operator, "d0")()
		hold(w, "a")
		time.Sleep(2 * time.Minute)
		var pools []string
		for i := range 14 {
			pools = append(pools, fmt.Sprintf("p%02d", i))
		}
		hold(w, pools...)
		time.Sleep(5 * time.Minute)
		if len(r.messages()) != 2 || r.messages()[1].Data.Count != 15 || len(r.messages()[1].Data.Names) != 10 {
			t.Fatalf("posted: %+v", r.messages())
		}
		lift(w, pools[:9]...) // six are left
		time.Sleep(5 * time.Minute)
		if len(r.messages()) != 2 {
			t.Fatalf("posted: %s", r.took())
		}
		lift(w, pools[9:]...)
		time.Sleep(5 * time.Minute)
		if len(r.messages()) != 3 || r.messages()[2].Type != "finding.ended" || r.messages()[2].Data.ID != r.messages()[1].Data.ID {
			t.Fatalf("posted: %s", r.took())
		}
		lift(w, "a")
		time.Sleep(5 * time.Minute)
		if len(r.messages()) != 4 || r.messages()[3].Data.ID != r.messages()[0].Data.ID {
			t.Fatalf("posted: %s", r.took())
		}
	})
}

// A receiver that is away gets everything when it is back, the begin before the end; after a day a message is given up, and its end is
// not posted.
func TestNotifier_Run_away(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  int
		away    time.Duration
		want    string
		dropped int
	}{
		"not reached":    {0, 3 * time.Hour, "began pool a; ended pool a", 0},
		"503":            {503, 3 * time.Hour, "began pool a; ended pool a", 0},
		"redirects":      {302, 3 * time.Hour, "began pool a; ended pool a", 0},
		"for a day":      {500, 30 * time.Hour, "", 1},
		"wants no more":  {410, time.Hour, "", 1},
		"knows no fault": {200, time.Hour, "began pool a; ended pool a", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *dispatchtest.World, r *receiver) {
				defer r.runs(w.Operator, "d0")()
				r.answers(test.status)
				hold(w, "a")
				time.Sleep(test.away / 2)
				lift(w, "a")
				time.Sleep(test.away / 2)
				r.answers(200)
				time.Sleep(time.Hour)
				if got := r.took(); got != test.want {
					t.Errorf("posted: %q, want %q", got, test.want)
				}
				if n := r.count(notify.Dropped); n != test.dropped {
					t.Errorf("%d dropped, want %d", n, test.dropped)
				}
				if wanted := test.status != 410 && test.status != 200; (r.count(notify.Failed) > 0) != wanted || r.refused() > 700 {
					t.Errorf("%d of %d tries failed", r.count(notify.Failed), r.refused())
				}
				kept, err := w.Store.Notices(t.Context())
				if err != nil || test.status != 410 && slices.ContainsFunc(slices.Collect(maps.Keys(kept)), isHeld) {
					t.Errorf("kept: %v, %v", slices.Collect(maps.Keys(kept)), err)
				}
			})
		})
	}
}

func isHeld(notice string) bool { return strings.HasPrefix(notice, "HELD") }

// What was posted survives a takeover: the next owner posts the end, and no second begin. What was not, it posts with the same id.
func TestNotifier_Run_takeover(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *dispatchtest.World, first *receiver) {
		w.Start(dispatchtest.Setup{})
		stop := first.runs(w.O[0], "d0")
		defer func() { stop() }()
		hold(w, "a")
		time.Sleep(2 * time.Minute)
		first.answers(503)
		hold(w, "b")
		time.Sleep(2 * time.Minute)
		stop()
		second := newReceiver(t)
		stop = second.runs(w.O[1], "d1")
		time.Sleep(10 * time.Minute)
		if got := first.took() + " | " + second.took(); got != "began pool a | began pool b" {
			t.Fatalf("posted: %s", got)
		}
		lift(w, "a")
		time.Sleep(10 * time.Minute)
		if got := second.took(); got != "began pool b; ended pool a" || second.messages()[1].Data.ID != first.messages()[0].Data.ID {
			t.Fatalf("the second posted: %s", got)
		}
		stop()
		lift(w, "b")
		third := newReceiver(t)
		stop = third.runs(w.O[0], "d0")
		time.Sleep(2 * time.Minute) // a new owner may need as long to find again what is there
		hold(w, "b")
		time.Sleep(10 * time.Minute)
		if got := third.took(); got != "" {
			t.Fatalf("the third posted what was back soon: %s", got)
		}
		lift(w, "b")
		time.Sleep(10 * time.Minute)
		stop()
		if got := third.took(); got != "ended pool b" || third.messages()[0].Data.ID != second.messages()[0].Data.ID {
			t.Fatalf("the third posted: %s", got)
		}
	})
}

// A collector that has fetched and reported nothing, as one that died with its first task, is posted.
func TestNotifier_Run_collectorWithoutReports(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *dispatchtest.World, r *receiver) {
		r.kind = "GONE"
		defer r.runs(w.Operator, "d0")()
		w.AddSource("s", nil)
		w.Submit("s", "", 1, 0)
		w.HoldTasks("c1", 1)
		time.Sleep(5 * time.Minute)
		if got := r.took(); got != "began c1" {
			t.Errorf("posted: %q", got)
		}
	})
}

// A store that cannot keep a notice, as one whose disk is full, is posted all the same.
func TestNotifier_Run_storeCannotKeep(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *dispatchtest.World, r *receiver) {
		w.Inject(dispatchtest.Hang(dispatchtest.Calls("PutNotice")))
		defer r.runs(w.Operator, "d0")()
		hold(w, "a", "b")
		time.Sleep(5 * time.Minute)
		if got := r.took(); got != "began pool a; began pool b" {
			t.Fatalf("posted: %s", got)
		}
		w.Heal()
		time.Sleep(time.Minute)
		if kept, err := w.Store.Notices(t.Context()); err != nil || kept["HELD pool a"] == nil || kept["HELD pool b"] == nil {
			t.Errorf("%d are kept, %v", len(kept), err)
		}
		lift(w, "a", "b")
		time.Sleep(5 * time.Minute)
		if got := r.took(); got != "began pool a; began pool b; ended pool a; ended pool b" {
			t.Errorf("posted: %s", got)
		}
	})
}

// A finding that comes back while the store cannot drop its last notice is posted again.
func TestNotifier_Run_storeCannotDrop(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *dispatchtest.World, r *receiver) {
		defer r.runs(w.Operator, "d0")()
		hold(w, "a")
		time.Sleep(5 * time.Minute)
		w.Inject(dispatchtest.Hang(dispatchtest.Calls("PutNotice")))
		lift(w, "a")
		for r.took() != "began pool a; ended pool a" {
			if time.Sleep(time.Second); time.Since(r.messages()[0].when) > time.Hour {
				t.Fatalf("posted: %s", r.took())
			}
		}
		hold(w, "a")
		time.Sleep(2 * time.Minute)
		w.Heal()
		time.Sleep(2 * time.Minute)
		if got := r.took(); got != "began pool a; ended pool a; began pool a" {
			t.Errorf("posted: %s", got)
		}
		if kept, err := w.Store.Notices(t.Context()); err != nil || len(kept) != 1 {
			t.Errorf("%d are kept, %v", len(kept), err)
		}
	})
}
