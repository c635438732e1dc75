package redistest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// serverTime is what TIME answers, to the microsecond.
func serverTime(t *testing.T, c *redis.Client) time.Time {
	t.Helper()
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatalf("TIME: %v", err)
	}
	return now
}

func wantTime(t *testing.T, c *redis.Client, want time.Time) {
	t.Helper()
	if got := serverTime(t, c); !got.Equal(want) {
		t.Errorf("TIME = %s, want %s", got.UTC().Format(time.RFC3339Nano), want.UTC().Format(time.RFC3339Nano))
	}
}

// wantTimeNear allows for the time that a call takes on a busy machine.
func wantTimeNear(t *testing.T, c *redis.Client, want time.Time) {
	t.Helper()
	if got := serverTime(t, c); got.Sub(want).Abs() > 30*time.Second {
		t.Errorf("TIME = %s, want about %s", got, want)
	}
}

func TestClock_Set(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithClock())
	c := client(t, s.SocketURL())
	wantTimeNear(t, c, time.Now())

	noon := time.Date(2031, 5, 6, 12, 0, 0, 123_456_789, time.UTC)
	micros := noon.Truncate(time.Microsecond)
	s.Clock().Set(noon)
	for range 200 {
		wantTime(t, c, micros)
	}
	if got := s.Clock().Now(); !got.Equal(micros) {
		t.Errorf("Now = %s, want %s", got, micros)
	}

	t.Run("within a script", func(t *testing.T) {
		script := `local a = redis.call('TIME'); for i = 1, 200000 do end
			local b = redis.call('TIME'); return {a[1], a[2], b[1], b[2]}`
		got, err := c.Eval(t.Context(), script, nil).StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		if got[0] != got[2] || got[1] != got[3] || got[1] != "123456" {
			t.Errorf("TIME at the begin and the end of a script: %v", got)
		}
	})
	t.Run("back", func(t *testing.T) {
		earlier := micros.Add(-24 * time.Hour)
		s.Clock().Set(earlier)
		wantTime(t, c, earlier)
	})
	t.Run("over Restart", func(t *testing.T) {
		s.Clock().Set(noon)
		s.Restart()
		wantTime(t, c, micros)
	})
}

func TestClock_Advance(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithClock())
	c := client(t, s.SocketURL())
	begin := s.Clock().Freeze()
	wantTime(t, c, begin)

	lock := func() time.Duration {
		ttl, err := c.PTTL(t.Context(), "lock").Result()
		if err != nil {
			t.Fatal(err)
		}
		return ttl
	}
	if err := c.Set(t.Context(), "lock", "token", 30*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	s.Clock().Advance(29_999 * time.Millisecond)
	wantTime(t, c, begin.Add(29_999*time.Millisecond))
	if got := lock(); got != time.Millisecond {
		t.Errorf("PTTL a millisecond before the deadline = %v", got)
	}
	s.Clock().Advance(time.Millisecond)
	wantValue(t, c, "lock", "token") // Redis expires a key after its deadline, not at it
	s.Clock().Advance(time.Millisecond)
	wantValue(t, c, "lock", "")

	t.Run("expired keys are swept though time stands still", func(t *testing.T) {
		pipe := c.Pipeline()
		for i := range 5_000 {
			pipe.Set(t.Context(), "k"+strings.Repeat("x", i%50)+time.Duration(i).String(), "v", time.Second)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Clock().Advance(time.Second + time.Millisecond)
		deadline := time.NewTimer(10 * time.Second)
		defer deadline.Stop()
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			left, err := c.DBSize(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			if left == 0 {
				tick.Stop()
				return
			}
			select {
			case <-tick.C:
			case <-deadline.C:
				t.Fatalf("%d of 5000 expired keys are still there after 10 s", left)
			}
		}
	})
	t.Run("a running clock runs on from there", func(t *testing.T) {
		s.Clock().Offset(0)
		s.Clock().Advance(time.Hour)
		wantTimeNear(t, c, time.Now().Add(time.Hour))
		first := serverTime(t, c)
		for !serverTime(t, c).After(first) {
			if t.Context().Err() != nil {
				t.Fatal("the clock does not run")
			}
		}
	})
}

func TestClock_Offset(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithClock(), redistest.WithAOF(redistest.FsyncNo))
	c := client(t, s.URL())
	s.Clock().Offset(-10 * time.Minute)
	wantTimeNear(t, c, time.Now().Add(-10*time.Minute))
	s.Clock().Offset(48 * time.Hour)
	wantTimeNear(t, c, time.Now().Add(48*time.Hour))
	s.Clock().Offset(0)
	wantTimeNear(t, c, time.Now())
}

// Scripts that compare strings by themselves are found out by a server with a clock.
func TestWithClock_Locale(t *testing.T) {
	t.Parallel()
	for before, opts := range map[int64][]redistest.Option{1: nil, 0: {redistest.WithClock()}} {
		c := client(t, redistest.Start(t, opts...).URL())
		if got, err := c.Eval(t.Context(), "return 'a' < 'b' and 1 or 0", nil).Int64(); err != nil || got != before {
			t.Errorf("with %d options 'a' < 'b' is %d, %v, want %d", len(opts), got, err, before)
		}
	}
}

func TestServer_Clock_Missing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	defer func() {
		if recover() == nil {
			t.Error("Clock of a server without WithClock does not panic")
		}
	}()
	s.Clock()
}

func TestWithClock_MissingCompiler(t *testing.T) {
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(redis, filepath.Join(bin, "redis-server")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	spy := &recorder{TB: t}
	spy.do(func() { redistest.Start(spy, redistest.WithClock()) })
	if want := "apt-get install -y gcc"; !strings.Contains(spy.fatal, want) {
		t.Errorf("WithClock without a compiler: %q, want it to say %q", spy.fatal, want)
	}
}
