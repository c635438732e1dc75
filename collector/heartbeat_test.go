package collector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_BeatInterval holds that beats come at a third of the shortest lease, every 15 s with none, and sooner as
// soon as a shorter lease comes in.
func TestCollector_BeatInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Slots = 2 })
		pass(2 * time.Minute)
		idle := len(d.beatCalls())
		if idle < 8 || idle > 10 {
			t.Errorf("%d idle beats in 2 min, want about 8", idle)
		}
		d.put("1-a")
		task := <-b.tasks
		pass(30 * time.Second)
		busy := d.beatCalls()[idle:]
		if len(busy) < 29 || len(busy) > 36 {
			t.Errorf("%d beats in 30 s with a lease of 3 s, want 30 to 34", len(busy))
		}
		for i, beat := range busy {
			if len(beat.leases) != 1 || beat.leases[0].GetTaskId() != task.ID {
				t.Fatalf("beat %d names %v", i, beat.leases)
			}
			if !beat.streamed {
				t.Errorf("beat %d did not go over the stream", i)
			}
		}
		if d.streams != 1 {
			t.Errorf("%d streams, want 1", d.streams)
		}
		if len(b.causes) != 0 {
			t.Errorf("the handler was stopped: %v", <-b.causes)
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_Replaced holds that a replaced collector stops at once, however it learns of it.
func TestCollector_Replaced(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(*dispatcher){
		"by a beat": func(d *dispatcher) {
			d.onBeat = func(n int, b beat) (*wagglev1.HeartbeatResponse, error) {
				if n > 1 {
					return nil, replaced()
				}
				return d.renewal(b), nil
			}
		},
		"between beats": func(d *dispatcher) {
			d.onCall = func(int, *wagglev1.ReportTaskRequest) error {
				d.broke <- replaced()
				return nil
			}
		},
		"by a report": func(d *dispatcher) {
			d.onCall = func(int, *wagglev1.ReportTaskRequest) error { return replaced() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				hook(d)
				d.put("1-a", "1-b")
				b := newBlocked()
				r := start(t, d, b, func(c *collector.Config) { c.Slots = 3 })
				<-b.tasks
				<-b.tasks
				b.let <- struct{}{} // one is reported
				begin := time.Now()
				if err := r.wait(); !errors.Is(err, collector.ErrReplaced) {
					t.Errorf("Run: %v, want %v", err, collector.ErrReplaced)
				}
				if cause := <-b.causes; !errors.Is(cause, collector.ErrReplaced) {
					t.Errorf("cause %v, want %v", cause, collector.ErrReplaced)
				}
				if took := time.Since(begin); took > 21*time.Second {
					t.Errorf("stopped after %s", took)
				}
				if slices.ContainsFunc(d.beatCalls(), func(b beat) bool { return b.info.GetEnded() }) {
					t.Error("it said that it ends, though another session goes on")
				}
			})
		})
	}
}

// TestCollector_BeatRefused holds that a collector whose beats are refused for what they say stops: it would lose every lease.
func TestCollector_BeatRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onBeat = func(int, beat) (*wagglev1.HeartbeatResponse, error) {
			return nil, failure(codes.InvalidArgument, "INVALID_FIELD", 0)
		}
		begin := time.Now()
		r := start(t, d, newBlocked(), nil)
		if err := r.wait(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("Run: %v, want what refused the beat", err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("stopped after %s", took)
		}
	})
}

// TestCollector_Held holds that nothing is fetched while a hold stops the collector, and reports go out at once.
func TestCollector_Held(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		begin := time.Now()
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			answer.Status.Held = time.Since(begin) < time.Minute && len(b.leases)+int(time.Since(begin)/time.Second) > 0
			return answer, nil
		}
		b := newBlocked()
		r := start(t, d, b, nil)
		pass(20 * time.Second)
		if !r.collector.Stats().Held {
			t.Fatal("not held")
		}
		close(b.let)
		pass(time.Second)
		if reports := d.reported(); len(reports) != 1 || reports[0].carried {
			t.Errorf("reports %v, want one by a call of its own", reports)
		}
		d.put("1-b")
		pass(30 * time.Second)
		if calls := len(d.fetchCalls()); calls != 1 {
			t.Errorf("%d fetches, want 1", calls)
		}
		beats := d.beatCalls()
		if beats[len(beats)-1].info.GetStopping() {
			t.Error("the beat says that the collector stops")
		}
		pass(30 * time.Second)
		if got := r.collector.Stats(); got.Held || got.Granted != 2 {
			t.Errorf("stats %+v", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_BeatParts holds that all leases are named, in messages that fit the limits.
func TestCollector_BeatParts(t *testing.T) {
	t.Parallel()
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams %t", streams), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const tasks = 80
				d := newDispatcher()
				d.lease = 3 * time.Second
				for i := range tasks {
					d.put(fmt.Sprintf("1-%d", i))
				}
				if !streams {
					d.onStream = func(int) error { return status.Error(codes.Unimplemented, "no streams here") }
				}
				b := newBlocked()
				r := start(t, d, b, func(c *collector.Config) { c.Slots = tasks })
				for range tasks {
					if err := (<-b.tasks).SetCursor(make([]byte, 64<<10)); err != nil {
						t.Fatal(err)
					}
				}
				pass(time.Minute)
				cursors := map[string]bool{}
				for _, beat := range d.beatCalls() {
					bytes := 0
					for _, l := range beat.leases {
						bytes += len(l.GetCursor())
						if l.Cursor != nil && cursors[l.GetTaskId()] {
							t.Errorf("the cursor of %s went out twice", l.GetTaskId())
						}
						cursors[l.GetTaskId()] = cursors[l.GetTaskId()] || l.Cursor != nil
					}
					if bytes > 2<<20 {
						t.Errorf("a beat with %d bytes of cursors", bytes)
					}
				}
				if len(cursors) != tasks || len(b.causes) != 0 {
					t.Errorf("%d tasks named, %d stopped", len(cursors), len(b.causes))
				}
				close(b.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_BeatNews holds that news are not taken for answers.
func TestCollector_BeatNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease, d.noisy = 3*time.Second, true
		d.put("1-a")
		b := newBlocked()
		r := start(t, d, b, nil)
		pass(time.Minute)
		if len(b.causes) != 0 {
			t.Errorf("the handler was stopped: %v", <-b.causes)
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_Beat_narrowed holds that beats tell what fetches are narrowed to.
func TestCollector_Beat_narrowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		r := start(t, d, newBlocked(), func(c *collector.Config) {
			c.Pools, c.Sources, c.Queues = []string{"eu"}, []string{"s"}, []string{"a.example"}
		})
		pass(time.Second)
		told := d.beatCalls()[0].info
		if !slices.Equal(told.GetPools(), []string{"eu"}) || !slices.Equal(told.GetSources(), []string{"s"}) || !slices.Equal(told.GetQueues(), []string{"a.example"}) {
			t.Errorf("told %v", told)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A heartbeat carries what keeps the collector from its work, in a form that dispatchers take, and how long that has lasted.
func TestCollector_Problem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		var problem atomic.Pointer[error]
		problem.Store(new(error))
		began := time.Now()
		r := start(t, d, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			return collector.Succeeded{}, nil
		}), func(c *collector.Config) {
			c.Problem = func() (time.Time, error) { return began, *problem.Load() }
		})
		for text, want := range map[string]string{
			"": "", "no page is taken": "no page is taken", "bell \a,\nbyte \xff": "bell  , byte \uFFFD",
			strings.Repeat("ä", 200): strings.Repeat("ä", 147) + " [cut]",
		} {
			var err error
			if text != "" {
				err = errors.New(text)
			}
			problem.Store(&err)
			pass(16 * time.Second)
			beats := d.beatCalls()
			info := beats[len(beats)-1].info
			if lasted := info.GetProblemDuration().AsDuration(); info.GetProblem() != want || (lasted > 0) != (text != "") || lasted > time.Since(began) {
				t.Errorf("of %q the beat has %q for %v, want %q", text, info.GetProblem(), lasted, want)
			}
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
