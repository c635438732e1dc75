package redistest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// await calls done until it is true, and fails the test when that takes 10 s.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("%s did not happen within 10 s", what)
		}
	}
}

func TestProxy_Pass(t *testing.T) {
	t.Parallel()
	s, prefix := shared.Server(t)
	p := redistest.NewProxy(t, s.Addr())
	c := client(t, p.URL())
	set(t, c, prefix, "v")
	wantValue(t, c, prefix, "v")
	large := string(make([]byte, 3<<20))
	set(t, c, prefix, large)
	if got := c.Get(t.Context(), prefix).Val(); got != large {
		t.Errorf("a reply of 3 MiB came as %d bytes", len(got))
	}
	if p.Faults() != 0 {
		t.Errorf("Faults = %d without a fault", p.Faults())
	}
}

func TestProxy_Pass_OrderlyEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("QUIT\r\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "+OK\r\n" {
		t.Errorf("QUIT answered %q, %v; want +OK and an orderly end", got, err)
	}
}

func TestProxy_Cut(t *testing.T) {
	t.Parallel()
	s, prefix := shared.Server(t)
	p := redistest.NewProxy(t, s.Addr())
	c := client(t, p.URL())
	set(t, c, prefix, "v")
	p.Cut()
	for range 2 { // the open connection, then a new one
		if err := c.Get(t.Context(), prefix).Err(); err == nil {
			t.Error("GET over a cut proxy succeeded")
		}
	}
	if p.Faults() < 2 {
		t.Errorf("Faults = %d, want the open connection and a new one", p.Faults())
	}
	p.Pass()
	wantValue(t, c, prefix, "v")
}

func TestProxy_CutFrom(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	ask := func(from string) error {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.DialContext(t.Context(), "tcp", p.Addr())
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return err
		}
		_, err = io.ReadFull(conn, make([]byte, len("+PONG\r\n")))
		return err
	}
	const one, other = "127.0.0.1", "127.0.0.2"
	for _, c := range []struct {
		set  func()
		cuts string
	}{{set: p.Pass}, {func() { p.CutFrom(other) }, other}, {func() { p.CutFrom(one) }, one}, {set: p.Pass}} {
		c.set()
		for _, from := range []string{one, other} {
			if err := ask(from); (err != nil) != (from == c.cuts) {
				t.Errorf("cut from %q: a client of %s gets %v", c.cuts, from, err)
			}
		}
	}
	if p.Faults() < 2 {
		t.Errorf("Faults = %d, want at least 2", p.Faults())
	}
}

func TestProxy_Blackhole(t *testing.T) {
	t.Parallel()
	s, prefix := shared.Server(t)
	p := redistest.NewProxy(t, s.Addr())
	c, direct := client(t, p.URL()), client(t, s.URL())
	wantValue(t, c, prefix, "")
	p.Blackhole()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.Set(ctx, prefix, "v", 0).Err(); err == nil {
		t.Error("SET was answered through a black hole")
	}
	await(t, "the swallowed reply", func() bool { return p.Faults() > 0 })
	wantValue(t, direct, prefix, "v") // it took effect all the same
	p.Pass()
	wantValue(t, c, prefix, "v") // and no later request gets the lost reply
}

func TestProxy_Delay(t *testing.T) {
	t.Parallel()
	s, prefix := shared.Server(t)
	p := redistest.NewProxy(t, s.Addr())
	c := client(t, p.URL())
	set(t, c, prefix, "v")
	const delay = 80 * time.Millisecond
	p.Delay(delay)
	begin := time.Now()
	wantValue(t, c, prefix, "v")
	if took := time.Since(begin); took < delay {
		t.Errorf("GET took %v, want at least %v", took, delay)
	}

	p.Delay(time.Hour)
	got := make(chan error, 1)
	go func() { got <- c.Get(t.Context(), prefix).Err() }()
	p.Pass() // ends the delay of what waits
	if err := <-got; err != nil {
		t.Errorf("GET after the delay ended: %v", err)
	}
}

func TestProxy_ResetAfter(t *testing.T) {
	t.Parallel()
	s, prefix := shared.Server(t)
	p := redistest.NewProxy(t, s.Addr())
	c := client(t, p.URL())
	set(t, c, prefix, "0")
	p.ResetAfter(0)
	if err := c.Incr(t.Context(), prefix).Err(); err == nil {
		t.Error("INCR was answered though its reply was to be reset")
	}
	wantValue(t, c, prefix, "1") // once: the next reply passes
	if p.Faults() != 1 {
		t.Errorf("Faults = %d, want 1", p.Faults())
	}

	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.ResetAfter(3)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(conn)
	if string(reply) != "+PO" || err == nil {
		t.Errorf("PING answered %q, %v; want three bytes and a reset", reply, err)
	}
}

func TestProxy_ResetAt(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		s, prefix := shared.Server(t)
		p := redistest.NewProxy(t, s.Addr())
		c := client(t, p.URL())
		set(t, c, prefix, "0")
		p.ResetAt("incr", 2, behind)
		set(t, c, prefix, "0") // has no such text
		if err := c.Incr(t.Context(), prefix).Err(); err != nil {
			t.Errorf("the first INCR: %v", err)
		}
		if err := c.Incr(t.Context(), prefix).Err(); err == nil {
			t.Errorf("behind %v: the second INCR was answered", behind)
		}
		want := "1"
		if behind {
			want = "2"
		}
		wantValue(t, c, prefix, want)
		if p.Faults() != 1 {
			t.Errorf("Faults = %d, want 1", p.Faults())
		}
	}
}

func TestProxy_Withhold(t *testing.T) {
	t.Parallel()
	s, prefix := shared.Server(t)
	p := redistest.NewProxy(t, s.Addr())
	c, direct := client(t, p.URL()), client(t, s.URL())
	set(t, c, prefix, "0")
	p.Withhold()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.Incr(ctx, prefix).Err(); err == nil {
		t.Error("INCR was answered though it was held back")
	}
	wantValue(t, direct, prefix, "0")
	p.Pass()
	await(t, "the request that was held back", func() bool { return direct.Get(t.Context(), prefix).Val() == "1" })
	wantValue(t, c, prefix, "1")
}

func TestProxy_TargetAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	c := client(t, p.URL())
	set(t, c, "k", "v")
	s.Kill()
	if err := c.Ping(t.Context()).Err(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("PING while the target is away: %v, want a broken connection", err)
	}
	s.Restart()
	wantValue(t, c, "k", "")
}
