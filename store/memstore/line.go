package memstore

import (
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// hand is what one want is served with.
type hand struct {
	want   *dispatch.Want
	note   *grantNote
	holder uint64 // digest of who will hold
	held   *holder
	room   int
	bytes  int
	// full: the next task did not fit the limit on bytes.
	full   bool
	grants []dispatch.Grant
}

// line is wants of a claim that follow each other and take anything of the pool: a
// queue's turn goes on from one to the next. One that names queues or sources is a
// line of its own.
type line struct {
	hands []hand
	at    int // who is served
	asks  int // of all, at most MaxClaimTasks
}

// join puts a want at the end of the line.
func (n *line) join(want *dispatch.Want) {
	room := max(want.Max, 1)
	n.hands, n.asks = append(n.hands, hand{want: want, room: room}), min(n.asks+room, dispatch.MaxClaimTasks)
}

// open is the hand to give a task to, one that has room; nil when there is none.
func (n *line) open() *hand {
	for ; n.at < len(n.hands); n.at++ {
		if h := &n.hands[n.at]; h.room > 0 {
			return h
		}
	}
	return nil
}

// room is what the hand that is served and those behind it have.
func (n *line) room() (room int) {
	for i := n.at; i < len(n.hands); i++ {
		room += n.hands[i].room
	}
	return room
}

// moved notes what a turn did to a queue's next grant, which began with the hand at a
// place, when that had so many tasks.
func (n *line) moved(at, had int, queue string, before, after int64) {
	for i := at; i < min(n.at+1, len(n.hands)); i++ {
		h := &n.hands[i]
		if count := len(h.grants) - had; count > 0 {
			h.note.moved = append(h.note.moved, movedGrant{queue: queue, before: before, after: after, first: had, count: count})
		}
		had = 0
	}
}

// serve gives the wants what they get, in their order, and tells whose client token is
// used.
func (c *claim) serve(wants []dispatch.Want, reply *dispatch.ClaimReply) {
	for i := 0; i < len(wants); {
		if c.s.replaced(wants[i].Collector, wants[i].Session) {
			i++
			continue
		}
		if note, used := c.s.grantOf(&wants[i].Poll); used {
			reply.Grants[i], reply.Used[i] = c.s.replay(note, wants[i].Call), true
			i++
			continue
		}
		n := c.lineFrom(wants[i:])
		c.serveLine(&n)
		for k := range n.hands {
			if h := &n.hands[k]; h.note != nil {
				c.s.grants.add(h.note.key, h.note)
				reply.Grants[i], reply.Used[i] = h.grants, true
			}
			i++
		}
	}
}

// lineFrom is the line that begins with the first want, which is to be granted
// something.
func (c *claim) lineFrom(wants []dispatch.Want) line {
	if narrow(&wants[0]) {
		wants = wants[:1]
	}
	n := line{hands: make([]hand, 0, len(wants))}
	n.join(&wants[0])
	if len(wants) == 1 {
		return n
	}
	met := map[grantKey]struct{}{{wants[0].Collector, wants[0].ClientToken}: {}}
	for i := 1; i < len(wants); i++ {
		want := &wants[i]
		key := grantKey{want.Collector, want.ClientToken}
		_, twice := met[key]
		_, used := c.s.grantOf(&want.Poll)
		if twice || used || narrow(want) || c.s.replaced(want.Collector, want.Session) {
			break
		}
		met[key] = struct{}{}
		n.join(want)
	}
	return n
}

// narrow reports whether the want names queues or sources.
func narrow(want *dispatch.Want) bool { return len(want.Queues)+len(want.SourceUIDs) > 0 }

func (c *claim) serveLine(n *line) {
	want := n.hands[0].want
	switch {
	case c.pool == nil:
	case len(want.Queues) > 0:
		c.serveQueues(n)
	case len(want.SourceUIDs) > 0:
		c.serveSources(n)
	default:
		c.serveAny(n)
	}
}

// serveAny gives the queues of the pool their turns.
func (c *claim) serveAny(n *line) {
	for h := n.open(); h != nil; h = n.open() {
		if h.full {
			n.at++
			continue
		}
		if c.bounded() {
			c.stopped = true
			return
		}
		e, ok := pick(&c.pool.open, &c.pool.picks)
		if !ok {
			return
		}
		c.turn(n, e.value, nil)
	}
}

// serveQueues gives turns to the queues that the want names, ascending.
func (c *claim) serveQueues(n *line) {
	h := &n.hands[0]
	names := slices.Clone(h.want.Queues)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		for h.room > 0 && !h.full {
			if c.bounded() {
				c.left = true
				return
			}
			qp := c.part(name)
			if qp == nil || qp.open.len()+qp.wait.len() == 0 {
				break
			}
			if !c.turn(n, qp, nil) {
				at := c.againAt(h.want, qp)
				c.again = min(c.again, at)
				c.left = c.left || at <= c.s.now // more was due than is promoted at once
				break
			}
		}
	}
}
