package dispatch

import (
	"sync"
	"time"
)

// noted remembers which sessions the store has lately found to be the current
// ones of their collectors, so that not every fetch has to be noted there. What
// is older than [PollNoted] counts no more: the store would note the next poll.
type noted struct {
	mu sync.Mutex // guards what follows
	// recent sessions by collector, and those before them: two short-lived
	// generations, so that nobody has to look for what is to be forgotten.
	recent, before map[string]notedSession
	began          time.Time // of recent
}

type notedSession struct {
	session string
	at      time.Time
}

func newNoted() *noted { return &noted{recent: make(map[string]notedSession)} }

// note takes in that the store noted a poll of the session, at an instant or after it.
func (n *noted) note(collector, session string, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.began) >= PollNoted {
		n.recent, n.before, n.began = make(map[string]notedSession, len(n.recent)), n.recent, now
	}
	n.recent[collector] = notedSession{session, at}
}

// lately reports whether the session was noted less than [PollNoted] ago, and nothing
// was heard of a newer one since.
func (n *noted) lately(collector, session string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, ok := n.recent[collector]
	if !ok {
		was = n.before[collector]
	}
	return was.session == session && time.Since(was.at) < PollNoted
}

// forget forgets the sessions of a collector.
func (n *noted) forget(collector string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.recent, collector)
	delete(n.before, collector)
}

// forgetAll forgets all sessions.
func (n *noted) forgetAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recent, n.before = make(map[string]notedSession), nil
}
