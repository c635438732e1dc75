package collector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_BeatFallback holds that leases live on whatever becomes of the stream.
func TestCollector_BeatFallback(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lease    time.Duration
		onStream func(n int) error
		silent   func(n int, b beat) bool
		streams  [2]int // fewest and most opened in a minute
		single   [2]int // fewest and most beats as single calls
	}{
		"no streams": {
			lease:    3 * time.Second,
			onStream: func(int) error { return status.Error(codes.Unimplemented, "no streams here") },
			streams:  [2]int{8, 40}, single: [2]int{55, 80},
		},
		"silent stream": {
			lease:   3 * time.Second,
			silent:  func(_ int, b beat) bool { return b.streamed },
			streams: [2]int{8, 40}, single: [2]int{30, 80},
		},
		"silent stream, shortest lease": {
			lease:   time.Second,
			silent:  func(_ int, b beat) bool { return b.streamed },
			streams: [2]int{8, 40}, single: [2]int{60, 400},
		},
		"one silent beat": {
			lease:   3 * time.Second,
			silent:  func(n int, _ beat) bool { return n == 10 },
			streams: [2]int{2, 2}, single: [2]int{1, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.lease = test.lease
				d.put("1-a")
				d.onStream = test.onStream
				d.onBeat = func(n int, b beat) (*wagglev1.HeartbeatResponse, error) {
					if test.silent != nil && test.silent(n, b) {
						return nil, nil
					}
					return d.renewal(b), nil
				}
				b := newBlocked()
				r := start(t, d, b, nil)
				pass(time.Minute)
				single := 0
				for _, beat := range d.beatCalls() {
					if !beat.streamed {
						single++
					}
				}
				if single < test.single[0] || single > test.single[1] {
					t.Errorf("%d single beats, want %v", single, test.single)
				}
				if d.streams < test.streams[0] || d.streams > test.streams[1] {
					t.Errorf("%d streams, want %v", d.streams, test.streams)
				}
				if len(b.causes) != 0 {
					t.Errorf("the handler was stopped: %v", <-b.causes)
				}
				close(b.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_BeatReconnect holds that a stream is opened anew when a dispatcher wants so, or breaks it, and that
// beats go on.
func TestCollector_BeatReconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		d.put("1-a")
		d.onBeat = func(n int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			switch n {
			case 5:
				answer.Reconnect = true
			case 10:
				d.pushes <- &wagglev1.HeartbeatResponse{Reconnect: true}
			case 15:
				return nil, failure(codes.Unavailable, "DISPATCHER_DRAINING", 0)
			}
			return answer, nil
		}
		b := newBlocked()
		r := start(t, d, b, nil)
		pass(time.Minute)
		if d.streams != 4 {
			t.Errorf("%d streams, want 4", d.streams)
		}
		if !r.collector.Stats().Streaming {
			t.Error("no stream at the end")
		}
		beats := d.beatCalls()
		for i := 1; i < len(beats); i++ {
			if gap := beats[i].at.Sub(beats[i-1].at); gap > 1100*time.Millisecond {
				t.Errorf("%s between beats %d and %d", gap, i-1, i)
			}
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

// TestCollector_BeatOutage holds that an outage shorter than the lease costs nothing, and brings no storm.
func TestCollector_BeatOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		begin := time.Now()
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			if since := time.Since(begin); since > 20*time.Second && since < 40*time.Second {
				return nil, unavailable()
			}
			return d.renewal(b), nil
		}
		b := newBlocked()
		r := start(t, d, b, nil)
		pass(2 * time.Minute)
		if len(b.causes) != 0 {
			t.Errorf("the handler was stopped: %v", <-b.causes)
		}
		if beats := len(d.beatCalls()); beats > 60 {
			t.Errorf("%d beats in 2 min", beats)
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_BeatStreamLost holds that a stream that breaks between two beats is replaced within a second, and that
// streams that break ever again cost no more beats than there would be.
func TestCollector_BeatStreamLost(t *testing.T) {
	t.Parallel()
	const interval = 10 * time.Second // of a lease of 30 s
	for name, test := range map[string]struct {
		breaks  time.Duration // how old each stream becomes
		quiet   time.Duration // since the last beat when it breaks, at least
		beats   int           // most of twenty minutes
		without time.Duration // most that passes from the end of a stream to the next one
	}{
		"once in a while":    {breaks: 27 * time.Second, beats: 200, without: time.Second},
		"just before a beat": {breaks: 15 * time.Second, quiet: 9200 * time.Millisecond, beats: 240, without: time.Second},
		"at once":            {breaks: time.Second, beats: 144, without: interval},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.put("1-a")
				b := newBlocked()
				r := start(t, d, b, nil)
				var with, without, longest time.Duration
				const look = 50 * time.Millisecond
				pass(interval)
				for range 20 * time.Minute / look {
					pass(look)
					if r.collector.Stats().Streaming {
						with, without = with+look, 0
					} else {
						with, without = 0, without+look
					}
					longest = max(longest, without)
					beats := d.beatCalls()
					if with >= test.breaks && time.Since(beats[len(beats)-1].at) >= test.quiet {
						d.broke <- failure(codes.Unavailable, "", 0)
					}
				}
				if longest > test.without+look {
					t.Errorf("%s without a stream, want at most %s", longest, test.without)
				}
				if n := len(d.beatCalls()); n > test.beats {
					t.Errorf("%d beats, want at most %d", n, test.beats)
				}
				close(b.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
