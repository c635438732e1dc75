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
