package collector_test

import (
	"context"
	"fmt"
	"slices"
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
// whatever call tells of it first; and that a fetch that tells of it has a beat ask what it means, and is made again.
func TestCollector_DispatcherStops(t *testing.T) {
	t.Parallel()
	const stops = "a dispatcher is about to stop; going on with another, or with it when it is back"
	push := func(d *dispatcher) { d.pushes <- &wagglev1.HeartbeatResponse{Reconnect: true} }
	for name, test := range map[string]struct {
		tell func(d *dispatcher, draining *atomic.Bool)
		told bool
	}{
		"by the heartbeat": {func(d *dispatcher, _ *atomic.Bool) { push(d) }, true},
		"by a fetch":       {func(_ *dispatcher, draining *atomic.Bool) { draining.Store(true) }, false}, // no beat says it is a stop
		"by both": {func(d *dispatcher, draining *atomic.Bool) {
			draining.Store(true)
			push(d)
		}, true},
		"by a fetch first": {func(d *dispatcher, draining *atomic.Bool) {
			draining.Store(true)
			pass(2 * time.Second)
			push(d)
		}, true},
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
					return &wagglev1.FetchTaskResponse{EmptyReason: wagglev1.EmptyReason_EMPTY_REASON_DRAINING}, nil
				}
				core, logs := observer.New(zap.InfoLevel)
				r := start(t, d, collector.HandlerFunc(succeed), func(c *collector.Config) { c.Logger, c.Wait = zap.New(core), time.Second })
				pass(time.Second)
				var want []string
				for n := range 2 { // of the second, 40 s later
					if test.told {
						want = append(want, stops)
					}
					for range 2 {
						beats := len(d.beatCalls())
						test.tell(d, &draining)
						pass(5 * time.Second)
						if asked := len(d.beatCalls()) - beats; draining.Load() && asked < 2 { // one may have been due
							t.Errorf("%d beats asked what it means", asked)
						}
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

// TestCollector_DrainHeardLate holds that operators' drain is not told as the stop of a dispatcher where fetches go to one
// that knows of it sooner than the one that answers heartbeats.
func TestCollector_DrainHeardLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		begin := time.Now()
		since := func(after time.Duration) bool { return time.Since(begin) >= after }
		d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if !since(4 * time.Second) {
				return nil, nil
			}
			return &wagglev1.FetchTaskResponse{
				EmptyReason: wagglev1.EmptyReason_EMPTY_REASON_DRAINING, RetryAfter: durationpb.New(3 * time.Second),
			}, nil
		}
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			answer.Drain = since(6 * time.Second)
			return answer, nil
		}
		core, logs := observer.New(zap.InfoLevel)
		r := start(t, d, collector.HandlerFunc(succeed), func(c *collector.Config) { c.Logger, c.Wait = zap.New(core), time.Second })
		pass(10 * time.Second) // sooner than a beat is due
		if got, want := said(logs), []string{"operators changed whether this collector fetches"}; !slices.Equal(got, want) {
			t.Errorf("said %q, want %q", got, want)
		}
		fetches := len(d.fetchCalls())
		pass(time.Minute)
		if n := len(d.fetchCalls()) - fetches; n > 0 || logs.Len() != 1 {
			t.Errorf("%d fetches of one that is drained; said %q", n, said(logs))
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
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
