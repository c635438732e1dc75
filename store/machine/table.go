package machine

import "iter"

// A table of more than leastSparse places, of which no more than one in sparse is used,
// gives back what a peak has left of it. A Go map keeps what it ever had.
const (
	sparse      = 16
	leastSparse = 8192
)

// table finds values by their keys. Values stand about in the order in which they came:
// with pointers in the map, at random places of the memory, following them would be most
// of what a garbage collection costs.
type table[K comparable, V comparable] struct {
	places map[K]uint32
	values []V
	free   []uint32 // places that no key has
	// pinned: no value moves to another place, since somebody goes through them with pauses.
	pinned bool
}

// get is the value of the key, the zero value where there is none.
func (t *table[K, V]) get(key K) (value V) {
	if place, ok := t.places[key]; ok {
		value = t.values[place]
	}
	return value
}

// add takes in the value of a key that is not in.
func (t *table[K, V]) add(key K, value V) {
	if t.places == nil {
		t.places = make(map[K]uint32)
	}
	place := uint32(len(t.values))
	if n := len(t.free); n > 0 {
		place, t.free = t.free[n-1], t.free[:n-1]
		t.values[place] = value
	} else {
		t.values = append(t.values, value)
	}
	t.places[key] = place
}

// remove takes the key out, if it is in.
func (t *table[K, V]) remove(key K) {
	place, ok := t.places[key]
	if !ok {
		return
	}
	delete(t.places, key)
	var none V
	t.values[place] = none
	t.free = append(t.free, place)
	if len(t.values) > leastSparse && len(t.places) < len(t.values)/sparse && !t.pinned {
		left := table[K, V]{places: make(map[K]uint32, len(t.places))}
		for key, place := range t.places {
			left.add(key, t.values[place])
		}
		*t = left
	}
}

func (t *table[K, V]) len() int { return len(t.places) }

// all gives the values. The table must not be changed meanwhile.
func (t *table[K, V]) all() iter.Seq[V] {
	return func(yield func(V) bool) {
		for next := 0; ; {
			value, after, ok := t.from(next)
			if !ok || !yield(value) {
				return
			}
			next = after
		}
	}
}

// from is the first value from that place on, and the place behind it.
func (t *table[K, V]) from(place int) (value V, after int, ok bool) {
	var none V
	for ; place < len(t.values); place++ {
		if value = t.values[place]; value != none {
			return value, place + 1, true
		}
	}
	return none, place, false
}
