package machine

// Freeze begins a snapshot of the shard as it is. apart: the tasks that are over are not in it, but go apart.
func (s *Shard) Freeze(snapshot uint32, apart bool) {
	if apart {
		s.packEnded() // what is over from here on has changed since, and so the snapshot has it as a record
	}
	s.Saving = newSaver(s, snapshot, apart)
	if apart {
		s.Saving.left = s.apart.freeze()
	}
	s.pin(true)
	s.Saving.begin()
}

// Thaw ends a snapshot of the shard.
func (s *Shard) Thaw() {
	s.Saving = nil
	s.pin(false)
}

// pin keeps the places of what a snapshot goes through.
func (s *Shard) pin(pinned bool) {
	s.records.pinned, s.ended.pinned, s.grants.pinned, s.sources.pinned, s.holders.pinned, s.queues.pinned = pinned, pinned, pinned, pinned, pinned, pinned
	s.apart.lanes.pinned = pinned
}

// walk is how far a snapshot has gone through a shard.
type walk struct {
	record, ended, over, grant, source, holder, queue int
	lane                                              int64 // of that source
	done                                              bool
}

// SavePage appends the next page of a shard, and what was changed meanwhile, and to entries what goes apart; it reports whether there is
// more.
func (s *Shard) SavePage(out, entries []byte, items int) (page, apart []byte, more bool) {
	w := s.Saving
	switch {
	case w.saveUsed(items):
	case len(w.left) > 0:
		entries = w.saveLeft(entries, items)
	default:
		for range items {
			k := s.next(&w.at)
			if w.at.done {
				break
			}
			w.save(k)
		}
		entries = append(entries, w.entries...)
		w.entries = w.entries[:0]
	}
	out = append(out, w.out...)
	w.out = w.out[:0]
	return out, entries, !w.at.done
}

// next is the next thing that is kept; it sets done after the last one. Most of them are saved earlier, with a task
// that names them. A table is looked through once: behind its last task it may have many free places.
func (s *Shard) next(at *walk) kept {
	var ok bool
	var r *record
	if r, at.record, ok = s.records.from(at.record); ok {
		return r
	}
	if _, at.ended, ok = s.ended.from(at.ended); ok {
		return s.ended.at(at.ended - 1)
	}
	var l overLane
	if l, at.over, ok = s.apart.lanes.from(at.over); ok {
		return l.lane
	}
	if n, after, ok := s.grants.from(at.grant); ok {
		at.grant = after
		return n
	}
	if src, after, ok := s.sources.from(at.source); ok {
		if lanes := src.lanes.from(at.lane + 1); len(lanes) > 0 {
			at.lane = lanes[0].number
			return lanes[0]
		}
		at.source, at.lane = after, 0
		return src
	}
	if h, after, ok := s.holders.from(at.holder); ok {
		at.holder = after
		return h
	}
	if q, after, ok := s.queues.from(at.queue); ok {
		at.queue = after
		return q
	}
	at.done = true
	return nil
}
