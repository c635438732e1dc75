package memstore

import (
	"hash/maphash"
	"iter"

	"github.com/waggle-crawl/waggle/dispatch"
)

// pageLength is how many records a page of the index has.
const pageLength = 512

// recordIndex finds records by their ids. A map of records would have two pointers for
// each at a random place of the memory, and following them was most of what a collection
// of garbage cost. This one's map has none, and its pages have the records about in the
// order in which they were made.
type recordIndex struct {
	places map[uint64]uint32 // by the hash of the id
	pages  []*[pageLength]*record
	size   int      // of the places that were ever used
	free   []uint32 // those of them that are not now
	// clashing has the records whose hash is another one's, too: as good as never one.
	clashing map[dispatch.TaskID]*record
	hash     func(dispatch.TaskID) uint64
}

func newRecordIndex() recordIndex {
	seed := maphash.MakeSeed()
	return recordIndex{
		places:   make(map[uint64]uint32),
		clashing: make(map[dispatch.TaskID]*record),
		hash:     func(id dispatch.TaskID) uint64 { return maphash.String(seed, string(id)) },
	}
}

// slot is where the record at a place is kept.
func (x *recordIndex) slot(place uint32) **record {
	return &x.pages[place/pageLength][place%pageLength]
}

// get finds the record; nil when there is none.
func (x *recordIndex) get(id dispatch.TaskID) *record {
	place, ok := x.places[x.hash(id)]
	if !ok {
		return nil
	}
	if r := *x.slot(place); r.id == id {
		return r
	}
	return x.clashing[id]
}

// add takes in a record whose id none has.
func (x *recordIndex) add(r *record) {
	hash := x.hash(r.id)
	if _, taken := x.places[hash]; taken {
		x.clashing[r.id] = r
		return
	}
	place := uint32(x.size)
	if n := len(x.free); n > 0 {
		place, x.free = x.free[n-1], x.free[:n-1]
	} else if x.size++; int(place) == len(x.pages)*pageLength {
		x.pages = append(x.pages, new([pageLength]*record))
	}
	*x.slot(place) = r
	x.places[hash] = place
}

// remove takes out the record with the id, if there is one.
func (x *recordIndex) remove(id dispatch.TaskID) {
	if _, clashes := x.clashing[id]; clashes {
		delete(x.clashing, id)
		return
	}
	hash := x.hash(id)
	place, ok := x.places[hash]
	if !ok || (*x.slot(place)).id != id {
		return
	}
	for other, r := range x.clashing {
		if x.hash(other) == hash {
			delete(x.clashing, other)
			*x.slot(place) = r
			return
		}
	}
	*x.slot(place) = nil
	delete(x.places, hash)
	x.free = append(x.free, place)
}

func (x *recordIndex) len() int { return len(x.places) + len(x.clashing) }

// all gives the records in no order.
func (x *recordIndex) all() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for _, place := range x.places {
			if !yield(*x.slot(place)) {
				return
			}
		}
		for _, r := range x.clashing {
			if !yield(r) {
				return
			}
		}
	}
}
