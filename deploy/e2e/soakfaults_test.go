//go:build e2e

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// fault is something that fails for a while.
type fault struct {
	name string
	end  func()
	most time.Duration // that it lasts
}

// lane lets one kind of thing fail, one after the other.
type lane struct {
	name   string
	random *rand.Rand
	pause  time.Duration // at most, between two faults
	begin  []func(*rand.Rand) fault

	now   *fault
	until time.Duration // of the fault, or of the pause
	count int
}

// goOn ends a fault and begins the next one, when it is time.
func (l *lane) goOn(t *testing.T, now time.Duration) {
	t.Helper()
	switch {
	case now < l.until:
	case l.now != nil:
		l.calm()
		l.rest(now)
	default:
		f := l.begin[l.random.IntN(len(l.begin))](l.random)
		l.now, l.count = &f, l.count+1
		lasts := 50*time.Millisecond + time.Duration(l.random.Int64N(int64(f.most)))
		l.until = now + lasts
		t.Logf("%7v %s, for %v", now.Round(time.Millisecond), f.name, lasts.Round(time.Millisecond))
	}
}

// rest lets nothing fail for a while.
func (l *lane) rest(now time.Duration) {
	l.until = now + time.Duration(l.random.Int64N(int64(l.pause)))
}

// calm ends what fails.
func (l *lane) calm() {
	if l.now != nil {
		l.now.end()
		l.now = nil
	}
}

// lanes are what can fail at once: a dispatcher, a collector, the connections of a dispatcher to Redis, and Redis. Each
// has its own random source, so that when one of them ends changes nothing of the others.
func (w *soak) lanes(random *rand.Rand, redis []func(*rand.Rand) fault) []*lane {
	lanes := []*lane{
		{name: "dispatchers", pause: time.Second, begin: processFaults(w.dispatchers)},
		{name: "collectors", pause: time.Second, begin: processFaults(w.collectors)},
		{name: "connections", pause: time.Second, begin: w.linkFaults()},
		{name: "Redis", pause: 6 * time.Second, begin: redis},
	}
	for _, l := range lanes {
		l.random = rand.New(rand.NewPCG(random.Uint64(), 0))
		l.rest(0)
	}
	return lanes
}

// processFaults are what can happen to one of several processes.
func processFaults(posts []*post) []func(*rand.Rand) fault {
	one := func(r *rand.Rand) *post { return posts[r.IntN(len(posts))] }
	return []func(*rand.Rand) fault{
		func(r *rand.Rand) fault { return gone(one(r), syscall.SIGKILL) },
		func(r *rand.Rand) fault { return gone(one(r), syscall.SIGTERM) },
		func(r *rand.Rand) fault { return freezes(one(r)) },
	}
}

// gone ends a process, which is started again at the end of the fault.
func gone(p *post, sig syscall.Signal) fault {
	p.down = true
	p.signal(sig)
	return fault{fmt.Sprintf("%s is %v", p.name, sig), func() {
		p.kill()
		p.down = false
	}, soakLease}
}

// freezes stops a process, which goes on at the end of the fault, if it is still there.
func freezes(p *post) fault {
	frozen := p.process
	frozen.signal(syscall.SIGSTOP)
	return fault{p.name + " is frozen", func() { frozen.signal(syscall.SIGCONT) }, 2 * soakLease}
}

// redisFaults are what can happen to Redis. What it has answered is on the disk.
func (w *soak) redisFaults() []func(*rand.Rand) fault {
	server := w.servers[0]
	return []func(*rand.Rand) fault{
		func(*rand.Rand) fault {
			server.Kill()
			return fault{"Redis is killed", server.Restart, time.Second}
		},
		func(*rand.Rand) fault {
			server.Pause()
			return fault{"Redis is frozen", server.Resume, soakLease}
		},
	}
}

// linkFaults are what a proxy can do to the connections of a dispatcher to Redis.
func (w *soak) linkFaults() []func(*rand.Rand) fault {
	on := func(what string, set func(*rand.Rand, *redistest.Proxy)) func(*rand.Rand) fault {
		return func(r *rand.Rand) fault {
			i := r.IntN(len(w.links))
			set(r, w.links[i])
			return fault{fmt.Sprintf("connections to Redis, %d: %s", i, what), w.links[i].Pass, 2 * soakLease}
		}
	}
	return []func(*rand.Rand) fault{
		on("cut", func(_ *rand.Rand, p *redistest.Proxy) { p.Cut() }),
		on("replies are lost", func(_ *rand.Rand, p *redistest.Proxy) { p.Blackhole() }),
		on("replies are late", func(r *rand.Rand, p *redistest.Proxy) { p.Delay(time.Duration(r.Int64N(int64(time.Second)))) }),
		on("one reply breaks off", func(r *rand.Rand, p *redistest.Proxy) { p.ResetAfter(r.IntN(5000)) }),
	}
}
