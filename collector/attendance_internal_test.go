package collector

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/stats"
)

// Of more dispatchers that are gone than are remembered, those that went first are forgotten.
func TestAttendance_forgetsTheLongestGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		a := newAttendance(zap.New(core))
		defer a.close()
		connect := func(n int) context.Context {
			ctx := a.TagConn(t.Context(), &stats.ConnTagInfo{RemoteAddr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: n}})
			a.HandleConn(ctx, &stats.ConnBegin{})
			return ctx
		}
		connect(1) // serves on
		const extra = 10
		for n := range maxMissing + extra {
			ctx := connect(100 + n)
			time.Sleep(served)
			a.HandleConn(ctx, &stats.ConnEnd{})
			time.Sleep(time.Second)
		}
		time.Sleep(2 * missed)
		for n := range maxMissing + extra {
			connect(100 + n)
			time.Sleep(served)
			synctest.Wait()
			told := lines.FilterMessage("a dispatcher is back").Len() > 0
			if lines.TakeAll(); told != (n >= extra) {
				t.Fatalf("the return of number %d of %d that went, of which %d are remembered, is told: %t", n+1, maxMissing+extra, maxMissing, told)
			}
		}
	})
}

// Of dispatchers none of which has answered heartbeats, as when their store hangs, nothing is
// told: they are as good as each other.
func TestAttendance_outageOfAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		a := newAttendance(zap.New(core))
		defer a.close()
		address := func(n byte) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, n), Port: 7070} }
		for n := range byte(2) {
			a.HandleConn(a.TagConn(t.Context(), &stats.ConnTagInfo{RemoteAddr: address(n)}), &stats.ConnBegin{})
		}
		time.Sleep(time.Minute)
		for n := range byte(2) {
			a.unanswered(address(n).String())
		}
		for n := range byte(2) {
			a.answers(address(n).String())
		}
		time.Sleep(time.Minute)
		if lines.Len() != 0 {
			t.Errorf("said of an outage: %v", lines.All())
		}
		a.unanswered(address(0).String())
		a.answers(address(1).String())
		if lines.Len() != 1 {
			t.Errorf("said of the one that does not answer then: %v; want one line", lines.All())
		}
	})
}

// A beat of which no try was answered is an outage at once, unless both tries met one
// dispatcher and others stand, by one of which the next may be answered.
func TestHeartbeat_unheard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttendance(zap.NewNop())
		defer a.close()
		addresses := make([]string, 2)
		connect := func(n int) {
			address := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7070 + n}
			addresses[n] = address.String()
			a.HandleConn(a.TagConn(t.Context(), &stats.ConnTagInfo{RemoteAddr: address}), &stats.ConnBegin{})
			time.Sleep(served)
		}
		h := heartbeat{run: &run{attendance: a}}
		check := func(name string, want bool, silent ...string) {
			if h.silent = silent; h.unheard() != want {
				t.Errorf("%s: told as an outage: %t, want %t", name, !want, want)
			}
		}
		connect(0)
		check("one try", false, addresses[0])
		check("both at the only dispatcher", true, addresses[0], addresses[0])
		connect(1)
		check("both at one of two", false, addresses[0], addresses[0])
		check("one at each", true, addresses[0], addresses[1])
	})
}
