//go:build e2e

package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestOwner_Killed kills the dispatcher that owns the store again and again: another one takes over.
func TestOwner_Killed(t *testing.T) {
	t.Parallel()
	w := newOwned(t)
	w.check(t, ownedRounds(t, 3), func() fault {
		f := gone(w.dispatchers[w.owner(t)], syscall.SIGKILL)
		f.most = 0
		return f
	})
}

// TestOwner_RedisKilled kills Redis, which keeps each write.
func TestOwner_RedisKilled(t *testing.T) {
	t.Parallel()
	w := newOwned(t)
	server := w.servers[0]
	w.check(t, ownedRounds(t, 2), func() fault {
		server.Kill()
		return fault{"Redis is killed", server.Restart, time.Duration(w.random.Int64N(int64(time.Second)))}
	})
}

// TestOwner_Parted parts the owner from Redis, one way or both ways: another dispatcher takes over.
func TestOwner_Parted(t *testing.T) {
	t.Parallel()
	w := newOwned(t)
	faults := []struct {
		name string
		set  func(*redistest.Proxy)
	}{
		{"replies are lost", (*redistest.Proxy).Blackhole},
		{"requests are late", (*redistest.Proxy).Withhold},
		{"both ways", (*redistest.Proxy).Cut},
	}
	round := 0
	w.check(t, len(faults)*ownedRounds(t, 1), func() fault {
		owner, f := w.owner(t), faults[round%len(faults)]
		round++
		f.set(w.links[owner])
		return fault{fmt.Sprintf("dispatcher %d is parted from Redis, %s", owner, f.name), w.links[owner].Pass, 0}
	})
}

// TestOwner_Resets resets the connections of groups, before Redis gets them and behind that.
func TestOwner_Resets(t *testing.T) {
	t.Parallel()
	w := newOwned(t)
	round := 0
	w.check(t, 2*ownedRounds(t, 1), func() fault {
		owner, behind, every := w.owner(t), round%2 == 1, 2+w.random.IntN(20)
		round++
		link := w.links[owner]
		before := link.Faults()
		link.ResetAt("EXEC", every, behind)
		return fault{fmt.Sprintf("each %d-th group is reset, behind: %v", every, behind), func() {
			link.Pass()
			if link.Faults() == before {
				t.Errorf("no group was reset")
			}
		}, 2 * time.Second}
	})
}
