//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
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
		return fault{"Redis is killed", server.Restart, time.Duration(w.random.Int64N(int64(4 * time.Second)))}
	})
}

// TestOwner_Parted parts the owner from Redis, one way or both ways: another dispatcher takes over, and the one before answers nothing
// that is not so any more.
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
		link := w.links[owner]
		answered := w.replace(t, owner, func() { f.set(link) })
		return fault{fmt.Sprintf("dispatcher %d is parted from Redis, %s", owner, f.name), func() {
			link.Pass()
			answered()
		}, time.Millisecond}
	})
}

// TestOwner_Frozen stops the process of the owner while calls wait there: another dispatcher takes over, and when it goes on it
// answers nothing that is not so any more. WAGGLE_E2E_ROUNDS=n: n times for 10 s.
func TestOwner_Frozen(t *testing.T) {
	t.Parallel()
	w := newOwned(t)
	rounds, least := ownedRounds(t, 1), time.Millisecond
	if os.Getenv("WAGGLE_E2E_ROUNDS") != "" {
		least = 10 * time.Second
	}
	w.check(t, rounds, func() fault {
		began, owner := time.Now(), w.owner(t)
		p := w.dispatchers[owner].process
		answered := w.replace(t, owner, func() { p.signal(syscall.SIGSTOP) })
		return fault{p.name + " is frozen", func() {
			p.signal(syscall.SIGCONT)
			answered()
		}, max(least-time.Since(began), time.Millisecond)}
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

// TestOwner_ClusterNodes kills or freezes one node of a Cluster after the other, until a replica of it is promoted: what was not
// replicated is written again. The shards of the others go on, whichever node it is.
func TestOwner_ClusterNodes(t *testing.T) {
	t.Parallel()
	const hosts, tasks, delay, calm = 64, 20_000, 200 * time.Millisecond, 2 * time.Second
	w := &takeovers{owned: ownedBy(onCluster(t), seeded(t))}
	w.raw, w.load.atOnce = 48, 1 // those that hold a task of the node wait for it
	w.owned.start(t)
	steady := make(map[string]bool)
	for _, id := range w.steadily(t, hosts, tasks, delay) {
		steady[id] = true
	}
	nodes := w.random.Perm(len(w.servers))
	var aways []away
	round := 0
	begin := func() fault {
		w.lasts(t, calm)
		n := nodes[round]
		victim, others := w.servers[n], slices.Delete(slices.Clone(w.servers), n, n+1)
		frozen := round%2 == 1
		round++
		aways = append(aways, away{time.Now(), shardsOf(t, victim)})
		f := fault{fmt.Sprintf("node %d is killed", n), victim.Restart, 2 * time.Second}
		if frozen {
			victim.Pause()
			f.name, f.end = fmt.Sprintf("node %d is frozen", n), victim.Resume
		} else {
			victim.Kill()
		}
		until(t, time.Minute, "there is a primary for each slot", func() bool {
			w.keepUp()
			n := 0
			for _, other := range others {
				if strings.HasPrefix(redisCLI(t, other, "ROLE"), "master") {
					n++
				}
			}
			return n == clusterPrimaries
		})
		back := f.end
		f.end = func() {
			back()
			until(t, time.Minute, "the node is a replica that has all", func() bool {
				w.keepUp()
				out, err := exec.CommandContext(t.Context(), "redis-cli", "-s", victim.Socket(), "ROLE").Output()
				return err == nil && strings.HasPrefix(string(out), "slave") && strings.Contains(string(out), "connected")
			})
		}
		return f
	}
	w.run(t, func() {
		w.rounds(t, min(len(nodes), ownedRounds(t, 1)), begin)
		w.settle(t)
	})
	w.showGaps(t)
	h, err := history.Read(w.logs...)
	if err != nil {
		t.Fatal(err)
	}
	w.count(t, h)
	for n, a := range aways {
		rate := func(from, to time.Duration) float64 {
			n := 0
			for _, e := range h.Events {
				at := time.UnixMicro(e.Time).Sub(a.at)
				if e.Kind == history.Granted && steady[e.Task] && at > from && at < to && !a.shards[w.shard(e.Task)] {
					n++
				}
			}
			return float64(n) / (to - from).Seconds()
		}
		before, first, after := rate(-calm, 0), rate(0, time.Second), rate(time.Second, 2*time.Second)
		t.Logf("round %d: the other %d shards were granted %.0f tasks/s before, %.0f %% of that in the first second after the node was away, and %.0f %% in the next",
			n, clusterShards-len(a.shards), before, 100*first/before, 100*after/before)
		if len(aways) == len(nodes) && after < 0.9*before { // with fewer of them, other tests run beside it
			t.Errorf("round %d: the other shards do not go on as before", n)
		}
	}
}

// away is a node of a Cluster that goes away with its shards.
type away struct {
	at     time.Time
	shards map[int]bool
}
