package collector

import (
	"context"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/stats"
)

const (
	// served is how long a connection has to last to count: one to a frozen dispatcher is given up before.
	served = keepaliveTimeout + time.Second

	// missed is how long a dispatcher may be away unsaid. It is longer than a restart, and the wait before the next try
	// to connect, take.
	missed = 20 * time.Second

	// proven is how long after it let a heartbeat go unanswered a connection that still stands counts again: one to a
	// dispatcher that is frozen is given up by then.
	proven = keepaliveTime + keepaliveTimeout + time.Second

	// maxMissing bounds the dispatchers that are remembered while they are away: behind a name they may be others ever
	// again.
	maxMissing = 100
)

// attendance tells by two lines in the log of a dispatcher that goes while another serves on: once it is missed, or a
// heartbeat that it did not answer was answered by another, and once it is back. Other calls that fail do not tell, since
// others answer them at once. It watches one connection, to all dispatchers.
type attendance struct {
	log *zap.Logger

	mu      sync.Mutex // guards what follows
	closed  bool
	present map[string]*attendant // by address
	silent  map[string]struct{}   // addresses that did not answer a heartbeat, and no other has since
}

// attendant is a dispatcher.
type attendant struct {
	open    map[*connection]struct{}
	seen    time.Time // when a connection that counts stood last; zero: never
	missing bool      // that is told
	timer   *time.Timer
	due     time.Time // when it is looked at next; zero: only when something changes
}

// connection is one of the transport.
type connection struct {
	address   string
	began     time.Time
	suspected time.Time // when it let a heartbeat go unanswered last
}

// counts reports whether there is somebody at the other end.
func (c *connection) counts(now time.Time) bool {
	return now.Sub(c.began) >= served && now.Sub(c.suspected) >= proven
}

func newAttendance(log *zap.Logger) *attendance {
	return &attendance{log: log, present: make(map[string]*attendant), silent: make(map[string]struct{})}
}

// unanswered notes that a dispatcher did not answer a heartbeat in time. It is told when another one does: else it is an
// outage.
func (a *attendance) unanswered(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silent[address] = struct{}{}
}

// answers notes that a dispatcher has answered a heartbeat.
func (a *attendance) answers(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, was := a.silent[address]; was {
		clear(a.silent) // an outage of what stands behind them all: who is frozen does not answer the next either
		return
	}
	now := time.Now()
	for silent := range a.silent {
		delete(a.silent, silent)
		one := a.present[silent]
		if one == nil || a.closed {
			continue
		}
		for c := range one.open {
			c.suspected = now
		}
		if !one.missing {
			a.forgetMissing()
			one.missing = true
			a.log.Info("a dispatcher does not answer heartbeats; others do", zap.String("dispatcher", silent))
		}
		a.lookIn(silent, one, now, proven)
	}
}

// close ends what is told: connections end now because the collector does.
func (a *attendance) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

type connectionKey struct{}

// TagConn implements [stats.Handler].
func (a *attendance) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{address: addressOf(info.RemoteAddr), began: time.Now()})
}

func addressOf(remote net.Addr) string {
	if remote == nil {
		return ""
	}
	return remote.String()
}

// HandleConn implements [stats.Handler].
func (a *attendance) HandleConn(ctx context.Context, event stats.ConnStats) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, one := time.Now(), a.present[c.address]
	switch event.(type) {
	case *stats.ConnBegin:
		if one == nil {
			one = &attendant{open: make(map[*connection]struct{})}
			a.present[c.address] = one
		}
		one.open[c] = struct{}{}
		a.lookIn(c.address, one, now, served)
	case *stats.ConnEnd:
		if one != nil {
			one.look(now)
			delete(one.open, c)
			a.lookIn(c.address, one, now, missed)
		}
	}
}

// TagRPC implements [stats.Handler].
func (a *attendance) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements [stats.Handler].
func (a *attendance) HandleRPC(context.Context, stats.RPCStats) {}

// look notes whether a connection that counts stands now.
func (one *attendant) look(now time.Time) (stands bool) {
	for c := range one.open {
		if c.counts(now) {
			one.seen = now
			return true
		}
	}
	return false
}

// lookIn looks at a dispatcher after a wait, or before that where it was going to.
func (a *attendance) lookIn(address string, one *attendant, now time.Time, wait time.Duration) {
	due := now.Add(wait)
	if !one.due.IsZero() && !due.Before(one.due) {
		return
	}
	if one.timer != nil {
		one.timer.Stop()
	}
	one.due, one.timer = due, time.AfterFunc(wait, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.closed && a.present[address] == one {
			one.due = time.Time{}
			a.look(address, one, time.Now())
		}
	})
}

// look tells what has become of a dispatcher.
func (a *attendance) look(address string, one *attendant, now time.Time) {
	away := now.Sub(one.seen)
	switch stands := one.look(now); {
	case stands:
		if one.missing {
			one.missing = false
			a.log.Info("a dispatcher is back", zap.String("dispatcher", address))
		}
		return
	case one.missing:
	case one.seen.IsZero():
		if len(one.open) == 0 {
			delete(a.present, address)
		}
	case away < missed:
		a.lookIn(address, one, now, missed-away)
	case !a.anyServes(now, address):
		a.lookIn(address, one, now, missed) // an outage, which is told as such
	default:
		a.forgetMissing()
		one.missing = true
		a.log.Info("a dispatcher is gone; others serve on", zap.String("dispatcher", address), zap.Duration("away", away.Round(time.Millisecond)))
	}
	if len(one.open) > 0 {
		a.lookIn(address, one, now, served)
	}
}

// othersServe reports whether connections stand to other dispatchers than the one at an address.
func (a *attendance) othersServe(address string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.anyServes(time.Now(), address)
}

// anyServes reports whether a connection stands to a dispatcher at another address than but.
func (a *attendance) anyServes(now time.Time, but string) bool {
	for address, one := range a.present {
		if address != but && one.look(now) {
			return true
		}
	}
	return false
}

// forgetMissing makes room for one more that is missing: by the one that is for longest.
func (a *attendance) forgetMissing() {
	longest, missing := "", 0
	for address, one := range a.present {
		if !one.missing {
			continue
		}
		if missing++; missing == 1 || one.seen.Before(a.present[longest].seen) {
			longest = address
		}
	}
	if missing >= maxMissing {
		delete(a.present, longest)
	}
}
