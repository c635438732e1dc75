package engine

import (
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// fading is a map that forgets what was not noted again for a life, at the latest
// after two: it has two generations, so that nobody has to look for what is to be
// forgotten. The zero value is empty.
type fading[V any] struct {
	recent, before map[string]V
	began          time.Time // of recent
}

func (f *fading[V]) note(key string, v V, life time.Duration) {
	if now := time.Now(); now.Sub(f.began) >= life {
		f.recent, f.before, f.began = make(map[string]V, len(f.recent)), f.recent, now
	}
	f.recent[key] = v
}

func (f *fading[V]) get(key string) (v V, ok bool) {
	if v, ok = f.recent[key]; !ok {
		v, ok = f.before[key]
	}
	return v, ok
}

func (f *fading[V]) forget(key string) {
	delete(f.recent, key)
	delete(f.before, key)
}

// noted remembers which sessions the store has lately found to be the current
// ones of their collectors, so that not every fetch has to be noted there. What
// is older than [PollNoted] counts no more: the store would note the next poll.
type noted struct {
	mu       sync.Mutex // guards sessions
	sessions fading[notedSession]
}

type notedSession struct {
	session string
	at      time.Time
}

func newNoted() *noted { return &noted{} }

// note takes in that the store noted a poll of the session, at an instant or after it.
func (n *noted) note(collector, session string, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sessions.note(collector, notedSession{session, at}, dispatch.PollNoted)
}

// lately reports whether the session was noted less than [PollNoted] ago, and nothing
// was heard of a newer one since.
func (n *noted) lately(collector, session string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, ok := n.sessions.get(collector)
	return ok && was.session == session && time.Since(was.at) < dispatch.PollNoted
}

// forget forgets the sessions of a collector.
func (n *noted) forget(collector string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sessions.forget(collector)
}

// forgetAll forgets all sessions.
func (n *noted) forgetAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sessions = fading[notedSession]{}
}
