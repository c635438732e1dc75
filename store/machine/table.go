package machine

import (
	"hash/maphash"
	"iter"
)

// A table of more than leastSparse places, of which no more than one in sparse is used,
// gives back what a peak has left of it. A Go map keeps what it ever had.
const (
	sparse      = 16
	leastSparse = 8192
)

// tableKey finds a value in a table.
type tableKey interface {
	comparable
	hash() uint32
}

// chunkSize is how many values a chunk of a table has: 256 of [ended] are one of the sizes in which Go gives out memory.
const chunkSize = 256

// tableValue is what a table keeps: it knows its key.
type tableValue[K tableKey] interface {
	comparable
	key() K
}

// table finds values by their keys. Values stand about in the order in which they came:
// with pointers in the index, at random places of the memory, following them would be most
// of what a garbage collection costs.
type table[K tableKey, V tableValue[K]] struct {
	index index
	// chunks have the values: a slice of all would be copied where it grows, and keep room for a quarter more.
	chunks [][]V
	size   int      // places that were ever used
	free   []uint32 // places that no key has
	// pinned: no value moves to another place, since somebody goes through them with pauses.
	pinned bool
}

// get is the value of the key, the zero value where there is none.
func (t *table[K, V]) get(k K) (found V) {
	if at := t.find(k, k.hash()); at >= 0 {
		found = *t.at(int(t.index.place(at)))
	}
	return found
}

// find is the slot of the key in the index; -1: it is not in.
func (t *table[K, V]) find(k K, hash uint32) int {
	for at := t.index.first(hash); at >= 0; at = t.index.next(at, hash) {
		if (*t.at(int(t.index.place(at)))).key() == k {
			return at
		}
	}
	return -1
}

// add takes in a value whose key is not in.
func (t *table[K, V]) add(v V) {
	place := uint32(t.size)
	if n := len(t.free); n > 0 {
		place, t.free = t.free[n-1], t.free[:n-1]
		*t.at(int(place)) = v
	} else {
		if t.size%chunkSize == 0 {
			t.chunks = append(t.chunks, nil)
		}
		last := &t.chunks[len(t.chunks)-1]
		*last = append(*last, v)
		t.size++
	}
	t.index.add(v.key().hash(), place)
}

// set takes in a value in place of the one of its key, if there is one.
func (t *table[K, V]) set(v V) {
	if at := t.find(v.key(), v.key().hash()); at >= 0 {
		*t.at(int(t.index.place(at))) = v
		return
	}
	t.add(v)
}

// remove takes the key out, if it is in.
func (t *table[K, V]) remove(k K) {
	at := t.find(k, k.hash())
	if at < 0 {
		return
	}
	place := t.index.place(at)
	t.index.remove(at)
	var none V
	*t.at(int(place)) = none
	t.free = append(t.free, place)
	t.shrink()
}

// shrink gives back what a peak has left.
func (t *table[K, V]) shrink() {
	if (t.len() == 0 && t.size > chunkSize || t.size > leastSparse && t.len() < t.size/sparse) && !t.pinned {
		var left table[K, V]
		for v := range t.all() {
			left.add(v)
		}
		*t = left
	}
}

func (t *table[K, V]) len() int { return t.index.used }

// places is how many places there are, used or free; at is what is in one.
func (t *table[K, V]) places() int { return t.size }

func (t *table[K, V]) at(place int) *V { return &t.chunks[place/chunkSize][place%chunkSize] }

// all gives the values. The table must not be changed meanwhile.
func (t *table[K, V]) all() iter.Seq[V] {
	return func(yield func(V) bool) {
		for next := 0; ; {
			v, after, ok := t.from(next)
			if !ok || !yield(v) {
				return
			}
			next = after
		}
	}
}

// from is the first value from that place on, and the place behind it.
func (t *table[K, V]) from(place int) (v V, after int, ok bool) {
	var none V
	for ; place < t.size; place++ {
		if v = *t.at(place); v != none {
			return v, place + 1, true
		}
	}
	return none, place, false
}

// index finds places by hashes, in open addressing: 9 to 14 bytes a place, where a Go map with the keys in it takes 40 and
// more. The keys stand with the values only.
type index struct {
	// slots have, each, a hash in the upper half and a place plus one in the lower; 0 is free. They are in about the order of the
	// hashes, so that the index grows from its begin to its end, in one pass over the memory.
	slots []uint64
	used  int
}

func (x *index) place(at int) uint32 { return uint32(x.slots[at]) - 1 }

// home is where a hash belongs.
func (x *index) home(hash uint32) int { return int(uint64(hash) * uint64(len(x.slots)) >> 32) }

// step is the slot behind a slot.
func (x *index) step(at int) int {
	if at++; at == len(x.slots) {
		return 0
	}
	return at
}

// first is the first slot of that hash; -1: there is none. next is the one behind it.
func (x *index) first(hash uint32) int {
	if x.used == 0 {
		return -1
	}
	return x.from(x.home(hash), hash)
}

func (x *index) next(at int, hash uint32) int { return x.from(x.step(at), hash) }

func (x *index) from(at int, hash uint32) int {
	for ; x.slots[at] != 0; at = x.step(at) {
		if x.slots[at]>>32 == uint64(hash) {
			return at
		}
	}
	return -1
}

func (x *index) add(hash, place uint32) {
	if x.used+1 > len(x.slots)/8*7 {
		old := x.slots
		x.slots = make([]uint64, max(8, len(old)/2*3))
		for _, slot := range old {
			if slot != 0 {
				x.put(slot)
			}
		}
	}
	x.put(uint64(hash)<<32 + uint64(place) + 1)
	x.used++
}

func (x *index) put(slot uint64) {
	at := x.home(uint32(slot >> 32))
	for x.slots[at] != 0 {
		at = x.step(at)
	}
	x.slots[at] = slot
}

// remove frees a slot, and moves those behind it that its use had put there.
func (x *index) remove(at int) {
	x.used--
	for next := x.step(at); x.slots[next] != 0; next = x.step(next) {
		// It stays where its home lies behind the free slot, up to where it is.
		home := x.home(uint32(x.slots[next] >> 32))
		stays := at < home && home <= next
		if next < at { // the end of the slots lies between
			stays = at < home || home <= next
		}
		if !stays {
			x.slots[at] = x.slots[next]
			at = next
		}
	}
	x.slots[at] = 0
}

// text is a key that is a text.
type text string

var seed = maphash.MakeSeed() // it decides about places in indexes, which nothing depends on

func (k text) hash() uint32 { return uint32(maphash.String(seed, string(k))) }
