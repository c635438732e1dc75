package protocol_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

const me, owner, other protocol.Process = 1, 2, 3

func TestMayAcquire(t *testing.T) {
	t.Parallel()
	of := func(process protocol.Process, released bool, standby protocol.Process) protocol.Record {
		return protocol.Record{Epoch: protocol.Epoch{Number: 5, Process: process}, Released: released, Standby: standby}
	}
	for _, c := range []struct {
		name    string
		found   protocol.Record
		watched time.Duration
		want    bool
	}{
		{"an owner that may live", of(owner, false, 0), term - 1, false},
		{"its standby", of(owner, false, me), term - 1, false},
		{"a silent owner", of(owner, false, 0), term, true},
		{"a silent owner, and I am its standby", of(owner, false, me), term, true},
		{"a silent owner with another standby", of(owner, false, other), term*5/4 - 1, false},
		{"a silent owner whose standby is silent", of(owner, false, other), term * 5 / 4, true},
		{"my own", of(me, false, other), 0, true},
		{"my own, released to a standby", of(me, true, other), 0, true},
		{"released to all", of(owner, true, 0), 0, true},
		{"released to me", of(owner, true, me), 0, true},
		{"released to another", of(owner, true, other), term*5/4 - 1, false},
		{"released to another, which is silent", of(owner, true, other), term * 5 / 4, true},
	} {
		if got := protocol.MayAcquire(me, c.found, c.watched, term); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestMayForce(t *testing.T) {
	t.Parallel()
	epoch := protocol.Epoch{Number: 5, Process: owner}
	named := protocol.Record{Epoch: epoch, Beat: 9, Standby: me}
	released, unnamed, renamed := named, named, named
	released.Released, unnamed.Standby, renamed.Standby = true, 0, other
	for _, c := range []struct {
		name  string
		found protocol.Record
		gone  protocol.Epoch
		tried uint64
		want  bool
	}{
		{"the standby", named, epoch, 4, true},
		{"a second try", named, epoch, 5, false},
		{"released", released, epoch, 0, false},
		{"no standby", unnamed, epoch, 0, false},
		{"another standby", renamed, epoch, 0, false},
		{"the stream is open", named, protocol.Epoch{}, 0, false},
		{"the stream was to an earlier owner", named, protocol.Epoch{Number: 4, Process: owner}, 0, false},
		{"the stream was to another owner", named, protocol.Epoch{Number: 5, Process: other}, 0, false},
	} {
		if got := protocol.MayForce(me, c.found, c.gone, c.tried); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// heads of an owner: h(n) has the sequence n.
func h(seq uint64) protocol.Head {
	return protocol.Head{Epoch: protocol.Epoch{Number: 5, Process: owner}, Seq: seq, Fence: 100 + seq}
}

func TestFollowing_Receive(t *testing.T) {
	t.Parallel()
	later, marked := h(6), h(5)
	later.Epoch.Number, marked.Rewriting = 6, true
	empty, none := protocol.Head{}, protocol.Following{}
	type following = protocol.Following
	for _, c := range []struct {
		name        string
		f           following
		after, head protocol.Head
		want        following
		step        protocol.Applied
	}{
		{"the first", following{Has: h(4)}, h(4), h(5), following{h(4), h(5)}, protocol.Hold},
		{"the first of a store", following{}, empty, h(1), following{empty, h(1)}, protocol.Hold},
		{"the next", following{h(4), h(5)}, h(5), h(7), following{h(5), h(7)}, protocol.ApplyHeld},
		{"the same again", following{h(4), h(5)}, h(4), h(5), following{h(4), h(5)}, protocol.Hold},
		{"the same under a new epoch", following{h(4), h(5)}, h(4), later, following{h(4), later}, protocol.DropHeld},
		{"a gap behind the held one", following{h(4), h(5)}, h(6), h(7), none, protocol.Behind},
		{"a gap", following{Has: h(4)}, h(5), h(6), none, protocol.Behind},
		{"an older one", following{h(4), h(5)}, h(3), h(4), none, protocol.Behind},
		{"a rewrite", following{Has: h(4)}, h(4), marked, none, protocol.Behind},
		{"a store that was emptied", following{Has: h(4)}, empty, h(5), none, protocol.Behind},
	} {
		if got, step := c.f.Receive(c.after, c.head); got != c.want || step != c.step {
			t.Errorf("%s: %+v, %v", c.name, got, step)
		}
	}
}

func TestFollowing_Takeover(t *testing.T) {
	t.Parallel()
	mine, marked, alien := h(4), h(4), h(5)
	mine.Fence, marked.Rewriting, alien.Epoch.Process = 0, true, other
	f := protocol.Following{Has: h(4), Next: h(5)}
	for _, c := range []struct {
		name  string
		f     protocol.Following
		found protocol.Head
		want  protocol.Applied
	}{
		{"what it has", f, h(4), protocol.Hold},
		{"what it has, by epoch and sequence", f, mine, protocol.Hold},
		{"what it holds", f, h(5), protocol.ApplyHeld},
		{"the sequence of another owner", f, alien, protocol.Behind},
		{"later", f, h(6), protocol.Behind},
		{"earlier", f, h(3), protocol.Behind},
		{"in a rewrite", f, marked, protocol.Behind},
		{"an empty store, and it holds nothing", protocol.Following{Has: h(4)}, protocol.Head{}, protocol.Behind},
		{"an empty store that it has", protocol.Following{}, protocol.Head{}, protocol.Hold},
	} {
		if got := c.f.Takeover(c.found); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
