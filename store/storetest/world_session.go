package storetest

import (
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// met is what the session rules answer to a poll or beat, of which the last of a session
// that is not the current one changes nothing.
func (w *world) met(collector, session string, last bool) (replaced, fresh bool) {
	s := w.sessions[collector]
	now := w.now()
	if s == nil || now.Sub(s.seen) >= dispatch.CollectorMemory {
		s = &modelSession{current: session, replaced: map[string]bool{}}
		w.sessions[collector] = s
	}
	if s.replaced[session] {
		w.count("session REPLACED")
		return true, false
	}
	if last && s.current != session {
		w.count("session's stray GOODBYE")
		return false, false
	}
	if s.current != session {
		w.count("session NEW")
		s.replaced[s.current] = true
		s.current, s.fresh = session, true
	}
	s.seen = now
	if s.fresh {
		w.keepSession(w.shardOf(collector), collector, session)
	}
	return false, s.fresh
}

// keepSession notes that only one session of a collector may claim in a shard.
func (w *world) keepSession(shard int, collector, session string) {
	w.parts[shard].keeps[collector] = keptSession{session, w.now().Add(dispatch.CollectorMemory)}
}

// polled checks the answers to polls.
func (w *world) polled(polls []dispatch.Poll, got []dispatch.PollState) error {
	if len(got) != len(polls) {
		return broken("%d polls answered %d states", len(polls), len(got))
	}
	for i, p := range polls {
		replaced, fresh := w.met(p.Collector, p.Session, false)
		if got[i].Replaced != replaced || got[i].NewSession != fresh {
			return broken("poll of session %s of %s answered replaced %v and new %v, want %v and %v",
				p.Session, p.Collector, got[i].Replaced, got[i].NewSession, replaced, fresh)
		}
		if replaced {
			continue
		}
		if err := w.polledToken(p, got[i]); err != nil {
			return err
		}
		w.polls[p.ClientToken] = w.now()
	}
	return nil
}

// pollable reports whether a store of several shards knows a client token which was noted
// at an instant: that holds for [dispatch.TokenMemory], and over a step back of the clock
// by as much.
func (w *world) pollable(at time.Time) bool {
	return w.highest.Sub(at) < dispatch.TokenMemory && at.Sub(w.now()) < dispatch.TokenMemory
}

// polledToken checks what a poll finds of its client token.
func (w *world) polledToken(p dispatch.Poll, got dispatch.PollState) error {
	for shard := range w.parts {
		note := w.noted(shard, [2]string{p.Collector, p.ClientToken})
		if note == nil {
			continue
		}
		note.answered(p.Call)
		if at := w.polls[p.ClientToken]; dispatch.TokenStep(at) > dispatch.TokenStep(w.now()) && shard != w.shardOf(p.Collector) {
			w.count("poll after a step back")
		}
		if !got.Used {
			return broken("poll of token %s answered that it was not used (P7)", p.ClientToken)
		}
		w.count("poll TOKEN_USED")
		if len(got.Replay) > 0 {
			w.count("poll replay with grants")
		}
		return w.replayed("poll", note, got.Replay)
	}
	if got.Used || len(got.Replay) > 0 {
		return broken("poll of the fresh token %s answered used %v with %d grants", p.ClientToken, got.Used, len(got.Replay))
	}
	return nil
}

// beaten checks the answers to beats.
func (w *world) beaten(beats []dispatch.CollectorInfo, got []dispatch.PollState) error {
	if len(got) != len(beats) {
		return broken("%d beats answered %d states", len(beats), len(got))
	}
	for i, b := range beats {
		replaced, fresh := w.met(b.ID, b.Session, b.Ended)
		if got[i].Replaced != replaced || got[i].NewSession != fresh {
			return broken("beat of session %s of %s answered replaced %v and new %v, want %v and %v",
				b.Session, b.ID, got[i].Replaced, got[i].NewSession, replaced, fresh)
		}
	}
	return nil
}

// sessionEnded checks what EndSession returns, put in the order of the ids: what
// other sessions of the collector hold.
func (w *world) sessionEnded(shard int, collector, keep string, limit int, got []*dispatch.Task, sessionOf func(dispatch.LeaseToken) string) error {
	if s := w.sessions[collector]; s != nil && w.now().Sub(s.seen) < dispatch.CollectorMemory {
		if s.current != keep && s.replaced[keep] {
			w.count("session ended too late")
			if len(got) > 0 {
				return broken("the end of all sessions of %s but %s, which was replaced, returned %d tasks", collector, keep, len(got))
			}
			return nil
		}
		if s.current == keep && len(got) == 0 && w.shardOf(collector) == shard {
			s.fresh = false
		}
	}
	w.keepSession(shard, collector, keep)
	var want []*modelTask
	for _, t := range w.all() {
		if t.shard == shard && t.Lease != nil && t.Lease.Token.Collector == collector && sessionOf(t.Lease.Token) != keep {
			want = append(want, t)
		}
	}
	slices.SortFunc(want, func(a, b *modelTask) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	want = want[:min(len(want), limit)]
	if len(got) != len(want) {
		return broken("the end of all sessions of %s but %s returned %d tasks, want %d", collector, keep, len(got), len(want))
	}
	for i, task := range got {
		w.count("session ended a lease")
		if err := w.compare("end session", task, want[i], false, false); err != nil {
			return err
		}
	}
	return nil
}
