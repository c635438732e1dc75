package collector_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	outageBegins = "no answer from a dispatcher, or from its store; calls are repeated until there is one"
	outageEnds   = "dispatchers answer again"
)

// TestCollector_Outage holds that dispatchers, or a store, that go for a minute make two lines in the log, whatever fails,
// and that the lines of many short outages in a row are not all told, but those of a long one are, whatever came before.
func TestCollector_Outage(t *testing.T) {
	t.Parallel()
	long := []string{outageBegins, outageEnds}
	for name, test := range map[string]struct {
		blips int // of 2 s, 8 s apart, before the outage of a minute
		want  []string
	}{
		"alone":       {0, long},
		"after blips": {2, append(long, long...)}, // the second blip is not told
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.plain = true // a fetch that waits on a stream sees no short outage
				var away atomic.Bool
				answer := func() error {
					if away.Load() {
						return unavailable()
					}
					return nil
				}
				core, logs := observer.New(zap.InfoLevel)
				b := newBlocked()
				r := start(t, failing(d, answer, answer), b, func(c *collector.Config) { c.Logger, c.Wait, c.Slots = zap.New(core), time.Second, 2 })
				d.put("1-a")
				<-b.tasks
				pass(4 * time.Second)
				for range test.blips {
					away.Store(true)
					pass(2 * time.Second)
					away.Store(false)
					pass(8 * time.Second)
				}
				away.Store(true)
				pass(2 * time.Second)
				b.let <- struct{}{} // a report fails, too
				pass(time.Minute)
				away.Store(false)
				pass(time.Minute)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if got := said(logs); !slices.Equal(got, test.want) {
					t.Errorf("said %q", got)
				}
			})
		})
	}
}

// TestCollector_OutageOfStore holds that a collector that is busy, and only beats, says that its beats are not answered, as
// where the dispatcher's store hangs: before its lease is lost for that, and once.
func TestCollector_OutageOfStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 30 * time.Second
		var hangs atomic.Bool
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			if hangs.Load() {
				return nil, nil
			}
			return d.renewal(b), nil
		}
		core, logs := observer.New(zap.InfoLevel)
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Logger, c.Slots = zap.New(core), 1 })
		d.put("1-a")
		<-b.tasks
		pass(time.Minute)
		hangs.Store(true)
		for i := 0; i < 25 && logs.Len() == 0; i++ { // a beat is due in 10 s, and tried twice for 5 s each
			pass(time.Second)
		}
		if got := said(logs); !slices.Equal(got, []string{outageBegins}) {
			t.Errorf("said %q", got)
		} else if told := logs.All()[0].ContextMap()["error"]; told != "no answer to a heartbeat in time" {
			t.Errorf("the error told is %q", told)
		}
		hangs.Store(false)
		pass(time.Minute)
		if got := said(logs); !slices.Equal(got, []string{outageBegins, outageEnds}) {
			t.Errorf("said %q", got)
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_OutageOfOne holds that nothing is said of a dispatcher that goes while another answers: each call fails
// once, and its repetition goes to the other.
func TestCollector_OutageOfOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		var gone, fetches, beats atomic.Bool
		once := func(failed *atomic.Bool) func() error {
			return func() error {
				if gone.Load() && failed.CompareAndSwap(false, true) {
					return unavailable()
				}
				return nil
			}
		}
		core, logs := observer.New(zap.InfoLevel)
		r := start(t, failing(d, once(&fetches), once(&beats)), newBlocked(), func(c *collector.Config) { c.Logger, c.Wait = zap.New(core), time.Second })
		pass(4 * time.Second)
		gone.Store(true)
		pass(time.Minute)
		if !fetches.Load() || !beats.Load() {
			t.Error("not each call has failed")
		}
		if got := said(logs); len(got) > 0 {
			t.Errorf("said %q", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_OutageOfOne_severalCalls holds that as well where several slots make the same call at once.
func TestCollector_OutageOfOne_severalCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		var submits atomic.Int64
		d.onSubmit = func(int, *wagglev1.SubmitDiscoveredRequest) error {
			if submits.Add(1) <= 2 {
				return unavailable()
			}
			return nil
		}
		core, logs := observer.New(zap.InfoLevel)
		many := collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			var s collector.Succeeded
			for i := range 1500 {
				s.Discovered = append(s.Discovered, collector.Discovered{URL: fmt.Sprintf("https://a.example/%d", i)})
			}
			return s, nil
		})
		r := start(t, d, many, func(c *collector.Config) { c.Logger, c.Slots = zap.New(core), 2 })
		d.put("1-a")
		d.put("1-b")
		pass(time.Minute)
		if n := submits.Load(); n < 4 {
			t.Errorf("%d calls were made, want 2 that fail and their repetitions", n)
		}
		if got := said(logs); len(got) > 0 {
			t.Errorf("said %q", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_OutageOfFetches holds that answers to other calls do not end an outage: dispatchers may well renew leases
// while a shard is away that fetches go to.
func TestCollector_OutageOfFetches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		var away atomic.Bool
		core, logs := observer.New(zap.InfoLevel)
		b := newBlocked()
		failing(d, func() error {
			if away.Load() {
				return unavailable()
			}
			return nil
		}, func() error { return nil })
		r := start(t, d, b, func(c *collector.Config) { c.Logger, c.Wait, c.Slots = zap.New(core), time.Second, 2 })
		d.put("1-a")
		<-b.tasks // its lease is renewed all the time
		away.Store(true)
		pass(10 * time.Minute)
		if got := said(logs); !slices.Equal(got, []string{outageBegins}) {
			t.Errorf("said %q of fetches that fail", got)
		}
		away.Store(false)
		pass(time.Minute)
		if got := said(logs); !slices.Equal(got, []string{outageBegins, outageEnds}) {
			t.Errorf("said %q", got)
		}
		b.let <- struct{}{}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// failing lets a dispatcher's fetches, and all its other calls, end with these errors.
func failing(d *dispatcher, fetch, rest func() error) *dispatcher {
	d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
		return nil, fetch()
	}
	d.onStream = func(int) error { return rest() }
	d.onCall = func(int, *wagglev1.ReportTaskRequest) error { return rest() }
	d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) { return d.renewal(b), rest() }
	return d
}

// said is what was logged.
func said(logs *observer.ObservedLogs) []string {
	var lines []string
	for _, line := range logs.All() {
		lines = append(lines, line.Message)
	}
	return lines
}

// TestCollector_DispatcherStops holds that a dispatcher's stop is logged, once for several that are restarted in turn, and
// whatever call tells of it first; and that a fetch that tells of it is made again.
func TestCollector_DispatcherStops(t *testing.T) {
	t.Parallel()
	const stops = "a dispatcher is about to stop; going on with another, or with it when it is back"
	drain := func(d *dispatcher, draining *atomic.Bool) {
		draining.Store(true)
		d.answerParked(wagglev1.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING)
	}
	push := func(d *dispatcher) { d.pushes <- &wagglev1.HeartbeatResponse{Reconnect: true} }
	for name, tell := range map[string]func(d *dispatcher, draining *atomic.Bool){
		"by the heartbeat": func(d *dispatcher, _ *atomic.Bool) { push(d) },
		"by a fetch":       func(d *dispatcher, draining *atomic.Bool) { drain(d, draining) },
		"by both": func(d *dispatcher, draining *atomic.Bool) {
			drain(d, draining)
			push(d)
		},
		"by a fetch first": func(d *dispatcher, draining *atomic.Bool) {
			drain(d, draining)
			pass(2 * time.Second)
			push(d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				var draining atomic.Bool
				d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
					if !draining.Load() {
						return nil, nil
					}
					return &wagglev1.FetchTaskResponse{EmptyReason: wagglev1.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING}, nil
				}
				core, logs := observer.New(zap.InfoLevel)
				r := start(t, d, collector.HandlerFunc(succeed), func(c *collector.Config) { c.Logger, c.Wait = zap.New(core), time.Second })
				pass(time.Second)
				var want []string
				for n := range 2 { // of the second, 40 s later
					want = append(want, stops)
					for range 2 {
						tell(d, &draining)
						pass(5 * time.Second)
						draining.Store(false)
						pass(15 * time.Second)
					}
					if got := said(logs); !slices.Equal(got, want) {
						t.Errorf("said %q, want %q", got, want)
					}
					id := fmt.Sprintf("1-%d", n)
					d.put(id)
					pass(5 * time.Second)
					if !slices.ContainsFunc(d.reported(), func(r reportCall) bool { return r.GetTaskId() == id }) {
						t.Error("it does not fetch again")
					}
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_HeldByFetch holds that a fetch that says so stops fetching until a heartbeat says otherwise; one is asked
// once the dispatcher that answers it has had time to learn of the hold, or of its end.
func TestCollector_HeldByFetch(t *testing.T) {
	t.Parallel()
	const holds, lifted = "a hold stops this collector; it fetches no tasks", "no hold stops this collector any more; it fetches again"
	for name, test := range map[string]struct {
		heard time.Duration // when heartbeats say so, after the fetch did
		until time.Duration // when the hold ends
		late  time.Duration // how long after its end fetches go on at most
		slots int           // with more than one a fetch that carries a report does not park
	}{
		"heard late":     {heard: 3 * time.Second, until: time.Minute, late: 5 * time.Second, slots: 1},
		"while at work":  {heard: 3 * time.Second, until: time.Minute, late: 5 * time.Second, slots: 2},
		"lifted unheard": {heard: time.Minute, until: 3 * time.Second, late: 1400 * time.Millisecond, slots: 1},
		"lifted at work": {heard: time.Minute, until: 3 * time.Second, late: 1400 * time.Millisecond, slots: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.lease = 5 * time.Minute // no beat is due soon
				begin := time.Now().Add(5 * time.Second)
				stands := func(after time.Duration) bool {
					return time.Since(begin) >= after && time.Since(begin) < test.until
				}
				d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
					if !stands(0) {
						return nil, nil
					}
					return &wagglev1.FetchTaskResponse{
						EmptyReason: wagglev1.EmptyReason_EMPTY_REASON_COLLECTOR_HELD, RetryAfter: durationpb.New(3 * time.Second),
					}, nil
				}
				d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
					answer := d.renewal(b)
					if answer.Status.Held = stands(test.heard); answer.Status.Held {
						answer.Status.NextHeartbeat = durationpb.New(5 * time.Second)
					}
					return answer, nil
				}
				core, logs := observer.New(zap.InfoLevel)
				work := func(context.Context, *collector.Task) (collector.Succeeded, error) {
					time.Sleep(time.Second)
					return collector.Succeeded{}, nil
				}
				r := start(t, d, collector.HandlerFunc(work), func(c *collector.Config) {
					c.Logger, c.Slots, c.Wait = zap.New(core), test.slots, 3*time.Second
				})
				pass(time.Until(begin))
				d.put([]string{"1-a", "1-b"}[:test.slots]...) // to a fetch that waits; the next one, which carries reports, meets the hold
				pass(test.until + 8*time.Second)
				fetched := d.fetchCalls()
				first := slices.IndexFunc(fetched, func(f fetchCall) bool { return !f.at.Before(begin) })
				if woke := fetched[first+1].at.Sub(begin); woke < test.until || woke > test.until+test.late {
					t.Errorf("fetched again after %s, held for %s", woke, test.until)
				}
				if got, want := said(logs), []string{holds, lifted}; !slices.Equal(got, want) {
					t.Errorf("said %q, want %q", got, want)
				}
				if stats := r.collector.Stats(); int(stats.Succeeded) != test.slots || stats.Held {
					t.Errorf("stats %+v", stats)
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_Trouble holds that a call that fails for a reason of its own is told of once a minute.
func TestCollector_Trouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			return nil, status.Error(codes.ResourceExhausted, "too many")
		}
		core, logs := observer.New(zap.InfoLevel)
		r := start(t, d, newBlocked(), func(c *collector.Config) { c.Logger = zap.New(core) })
		pass(10*time.Minute + 30*time.Second)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if n := logs.FilterMessage("fetch failed, will be repeated").Len(); n < 10 || n > 11 {
			t.Errorf("%d lines in ten minutes", n)
		}
	})
}

// TestCollector_TasksFail holds that failures of a collector or of hosts are warnings, of each reason one at once and one a
// minute with their number, that pages that are gone are none, and that each failure is a line at level debug.
func TestCollector_TasksFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		core, logs := observer.New(zap.DebugLevel)
		ways := []error{
			&collector.Failed{Reason: collector.ReasonDisk, Message: "no space"}, &collector.Failed{Reason: collector.ReasonDNS, Message: "no such host"},
			&collector.Failed{Reason: collector.ReasonNotFound}, errors.New("a bug"), nil,
		}
		work := func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			n, err := strconv.Atoi(strings.TrimPrefix(task.ID, "1-"))
			return collector.Succeeded{}, cmp.Or(err, ways[n%len(ways)])
		}
		r := start(t, d, collector.HandlerFunc(work), func(c *collector.Config) { c.Logger, c.Wait, c.Slots = zap.New(core), time.Second, 1 })
		const each = 90 // a second each, so that the second line of a reason comes after a minute
		for n := range each * len(ways) {
			d.put("1-" + strconv.Itoa(n))
			if pass(0); n%len(ways) == len(ways)-1 {
				pass(time.Second)
			}
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		got := map[string][]int64{}
		for _, line := range logs.FilterMessageSnippet("tasks fail").All() {
			of := fmt.Sprint(line.Level, " ", line.ContextMap()["reason"])
			got[of] = append(got[of], line.ContextMap()["failed"].(int64))
		}
		want := map[string][]int64{
			"warn FAILURE_REASON_DISK": {1, 60}, "warn FAILURE_REASON_DNS": {1, 60}, "info FAILURE_REASON_NOT_FOUND": {1, 60}, "warn FAILURE_REASON_HANDLER": {1, 60},
		}
		if !maps.EqualFunc(got, want, slices.Equal[[]int64]) {
			t.Errorf("logged %v", got)
		}
		if n := logs.FilterLevelExact(zap.DebugLevel).FilterMessage("task failed").Len(); n != each*4 {
			t.Errorf("%d lines of failures at level debug, want %d", n, each*4)
		}
	})
}
