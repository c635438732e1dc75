package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// client returns a client of url that neither retries nor waits long, and is closed with the test.
func client(t *testing.T, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	opts.MaxRetries = -1
	opts.DialTimeout = time.Second
	opts.ReadTimeout = time.Second
	c := redis.NewClient(opts)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func set(t *testing.T, c *redis.Client, key, value string) {
	t.Helper()
	if err := c.Set(t.Context(), key, value, 0).Err(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

// wantValue checks what key holds; "" means that it must not exist.
func wantValue(t *testing.T, c *redis.Client, key, want string) {
	t.Helper()
	got, err := c.Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("GET %s: %v", key, err)
	}
	if got != want {
		t.Errorf("GET %s = %q, want %q", key, got, want)
	}
}

func TestServer_URL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	byTCP, bySocket := client(t, s.URL()), client(t, s.SocketURL())
	set(t, byTCP, "k", "v")
	wantValue(t, bySocket, "k", "v")
	if !strings.HasSuffix(s.URL(), "://"+s.Addr()+"/0") {
		t.Errorf("URL %s does not hold the address %s", s.URL(), s.Addr())
	}
	if len(s.Socket()) > 100 {
		t.Errorf("socket path of %d bytes: %s", len(s.Socket()), s.Socket())
	}
}

func TestServer_Kill(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	pid := s.PID()
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("process %d of a running server: %v", pid, err)
	}
	s.Kill()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after Kill: %v, want ESRCH", pid, err)
	}
	if s.PID() != 0 {
		t.Errorf("PID after Kill = %d, want 0", s.PID())
	}
	if err := client(t, s.URL()).Ping(t.Context()).Err(); err == nil {
		t.Error("a killed server answers PING")
	}
	s.Kill() // again: does nothing
}

func TestServer_Restart(t *testing.T) {
	t.Parallel()
	t.Run("keeps nothing without AOF", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		set(t, client(t, s.URL()), "k", "v")
		addr, pid := s.Addr(), s.PID()
		s.Restart()
		if s.Addr() != addr || s.PID() == pid {
			t.Errorf("after Restart: %s as process %d, before: %s as %d", s.Addr(), s.PID(), addr, pid)
		}
		wantValue(t, client(t, s.URL()), "k", "")
	})
	t.Run("keeps all with AOF always", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t, redistest.WithAOF(redistest.FsyncAlways))
		set(t, client(t, s.URL()), "k", "v")
		s.Kill()
		s.Restart()
		wantValue(t, client(t, s.SocketURL()), "k", "v")
	})
}

func TestServer_Pause(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := client(t, s.URL())
	set(t, c, "k", "v")
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Get(ctx, "k").Err(); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("GET of a paused server: %v, want a deadline exceeded", err)
	}
	s.Resume()
	wantValue(t, c, "k", "v")
}

func TestServer_Cleanup(t *testing.T) {
	t.Parallel()
	var dir string
	var pid int
	t.Run("a test that leaves its server paused", func(t *testing.T) {
		s := redistest.Start(t)
		dir, pid = s.Dir(), s.PID()
		s.Pause()
	})
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after its test: %v, want ESRCH", pid, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory %s after its test: %v, want none", dir, err)
	}
}

func TestWithConfig(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t,
		redistest.WithMaxMemory(64<<20),
		redistest.WithConfig("maxmemory-policy", "allkeys-lru"),
	)
	got, err := client(t, s.URL()).ConfigGet(t.Context(), "maxmemory*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if got["maxmemory"] != "67108864" || got["maxmemory-policy"] != "allkeys-lru" {
		t.Errorf("CONFIG GET maxmemory* = %v", got)
	}
}

func TestWithPort(t *testing.T) {
	t.Parallel()
	first := redistest.Start(t)
	_, port, err := net.SplitHostPort(first.Addr())
	if err != nil {
		t.Fatal(err)
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("free", func(t *testing.T) {
		first.Kill()
		second := redistest.Start(t, redistest.WithPort(number))
		if second.Addr() != first.Addr() {
			t.Errorf("listens on %s, want %s", second.Addr(), first.Addr())
		}
	})
	t.Run("taken", func(t *testing.T) {
		first.Restart()
		spy := &recorder{TB: t}
		spy.do(func() { redistest.Start(spy, redistest.WithPort(number)) })
		if !strings.Contains(spy.fatal, "port "+port) {
			t.Errorf("Start on a taken port: %q, want it to name the port", spy.fatal)
		}
	})
}

func TestStart_MissingTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	spy := &recorder{TB: t}
	spy.do(func() { redistest.Start(spy) })
	if want := "apt-get install -y redis-server"; !strings.Contains(spy.fatal, want) {
		t.Errorf("Start without redis-server: %q, want it to say %q", spy.fatal, want)
	}
}

func TestShared_Server(t *testing.T) {
	t.Parallel()
	server, first := shared.Server(t)
	again, second := shared.Server(t)
	if server != again {
		t.Error("two calls gave two servers")
	}
	if first == second {
		t.Errorf("two calls gave the prefix %q", first)
	}
	t.Run("name with {braces}: and more", func(t *testing.T) {
		_, prefix := shared.Server(t)
		if strings.ContainsAny(prefix, "{}:/ ") {
			t.Errorf("prefix %q holds a separator", prefix)
		}
	})
	c := client(t, server.SocketURL())
	set(t, c, first+":k", "v")
	wantValue(t, c, second+":k", "")
}

func TestShared_Wrap(t *testing.T) {
	t.Parallel()
	own := redistest.NewShared()
	spy := &recorder{TB: t}
	spy.do(func() { own.Server(spy) })
	if !strings.Contains(spy.fatal, "Wrap") {
		t.Errorf("Server outside Wrap: %q, want it to name Wrap", spy.fatal)
	}
	var pid int
	code := own.Wrap(runner(func() int {
		server, _ := own.Server(t)
		pid = server.PID()
		return 3
	})).Run()
	if code != 3 {
		t.Errorf("Run = %d, want the tests' 3", code)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after Run: %v, want ESRCH", pid, err)
	}
}

// runner stands for a package's tests.
type runner func() int

func (r runner) Run() int { return r() }

// recorder is a test that notes its end by Fatal instead of failing.
type recorder struct {
	testing.TB
	fatal string
}

// do runs f, which may end by Fatal, in a goroutine of its own.
func (r *recorder) do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *recorder) Fatal(args ...any) { r.stop(fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) { r.stop(fmt.Sprintf(format, args...)) }

func (r *recorder) stop(text string) {
	r.fatal = text
	runtime.Goexit()
}
