package memstore

import (
	"hash/maphash"
	"iter"
)

// pageLength is how many values a page of an index has.
const pageLength = 512

// An index of more than leastSparse places of which not one in sparse is used gives back
// what a peak has left of it: late, since all of its values are moved then at once.
const (
	sparse      = 16
	leastSparse = 16 * pageLength
)

// hashIndex finds values by their keys. A map of them would have two pointers or more for
// each at a random place of the memory, and following them was most of what a collection
// of garbage cost. This one's map has none, and its pages have the values about in the
// order in which they came.
type hashIndex[K comparable, V any] struct {
	places map[uint64]uint32 // by the hash of the key
	pages  []*[pageLength]*V
	size   int      // of the places that were ever used
	free   []uint32 // those of them that are not now
	// clashing has the values whose hash is another one's, too: as good as never one.
	clashing map[K]*V
	key      func(*V) K
	hash     func(maphash.Seed, K) uint64
	seed     maphash.Seed
}

func newHashIndex[K comparable, V any](key func(*V) K, hash func(maphash.Seed, K) uint64) hashIndex[K, V] {
	return hashIndex[K, V]{
		places:   make(map[uint64]uint32),
		clashing: make(map[K]*V),
		key:      key,
		hash:     hash,
		seed:     maphash.MakeSeed(),
	}
}

// slot is where the value at a place is kept.
func (x *hashIndex[K, V]) slot(place uint32) **V {
	return &x.pages[place/pageLength][place%pageLength]
}

// get finds the value; nil when there is none.
func (x *hashIndex[K, V]) get(key K) *V {
	place, ok := x.places[x.hash(x.seed, key)]
	if !ok {
		return nil
	}
	if v := *x.slot(place); x.key(v) == key {
		return v
	}
	return x.clashing[key]
}

// add takes in a value whose key none has.
func (x *hashIndex[K, V]) add(v *V) {
	key := x.key(v)
	hash := x.hash(x.seed, key)
	if _, taken := x.places[hash]; taken {
		x.clashing[key] = v
		return
	}
	x.put(hash, v)
}

// put gives a value the place of its hash, which no other one's is.
func (x *hashIndex[K, V]) put(hash uint64, v *V) {
	place := uint32(x.size)
	if n := len(x.free); n > 0 {
		place, x.free = x.free[n-1], x.free[:n-1]
	} else if x.size++; int(place) == len(x.pages)*pageLength {
		x.pages = append(x.pages, new([pageLength]*V))
	}
	*x.slot(place) = v
	x.places[hash] = place
}

// remove takes out the value with the key, if there is one.
func (x *hashIndex[K, V]) remove(key K) {
	if _, clashes := x.clashing[key]; clashes {
		delete(x.clashing, key)
		return
	}
	hash := x.hash(x.seed, key)
	place, ok := x.places[hash]
	if !ok || x.key(*x.slot(place)) != key {
		return
	}
	for other, v := range x.clashing {
		if x.hash(x.seed, other) == hash {
			delete(x.clashing, other)
			*x.slot(place) = v
			return
		}
	}
	*x.slot(place) = nil
	delete(x.places, hash)
	x.free = append(x.free, place)
	if x.size > leastSparse && len(x.places) < x.size/sparse {
		x.shrink()
	}
}

// shrink moves the values into as much memory as they need. A map keeps what it ever had.
func (x *hashIndex[K, V]) shrink() {
	pages := x.pages
	x.places, x.pages, x.size, x.free = make(map[uint64]uint32, len(x.places)), nil, 0, nil
	for _, page := range pages {
		for _, v := range page {
			if v != nil {
				x.put(x.hash(x.seed, x.key(v)), v)
			}
		}
	}
}

func (x *hashIndex[K, V]) len() int { return len(x.places) + len(x.clashing) }

// all gives the values in no order.
func (x *hashIndex[K, V]) all() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		for _, place := range x.places {
			if !yield(*x.slot(place)) {
				return
			}
		}
		for _, v := range x.clashing {
			if !yield(v) {
				return
			}
		}
	}
}
