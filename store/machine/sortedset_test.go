package machine_test

import (
	"cmp"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/store/machine"
)

// member is what the sorted slice holds that the sorted set is compared with.
type member struct {
	band, since int64
	name        string
}

func (m member) score() int64 { return machine.BandScore(m.band, m.since) }

func compareMembers(a, b member) int {
	return cmp.Or(cmp.Compare(a.score(), b.score()), cmp.Compare(a.name, b.name))
}

// model is a sorted slice that does what an open set does.
type model []member

func (m model) oldest() (found member, ok bool) {
	for i, e := range m {
		firstOfBand := i == 0 || m[i-1].band != e.band
		if firstOfBand && (!ok || e.since < found.since) {
			found, ok = e, true
		}
	}
	return found, ok
}

func TestSortedSet_AgreesWithASortedSlice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var set machine.SortedSet
		var sorted model
		draw := func() member {
			return member{
				band:  rapid.Int64Range(0, 9).Draw(t, "band"),
				since: rapid.Int64Range(0, 20).Draw(t, "since"),
				name:  strconv.Itoa(rapid.IntRange(0, 30).Draw(t, "name")),
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(*rapid.T) {
				e := draw()
				i, found := slices.BinarySearchFunc(sorted, e, compareMembers)
				if found {
					return
				}
				set.Insert(e.score(), e.name)
				sorted = slices.Insert(sorted, i, e)
			},
			"insert many": func(t *rapid.T) {
				e := draw()
				for n := range rapid.IntRange(50, 300).Draw(t, "many") {
					e.name = strconv.Itoa(n)
					if i, found := slices.BinarySearchFunc(sorted, e, compareMembers); !found {
						set.Insert(e.score(), e.name)
						sorted = slices.Insert(sorted, i, e)
					}
				}
			},
			"remove many": func(t *rapid.T) {
				from := rapid.IntRange(0, len(sorted)).Draw(t, "from")
				to := rapid.IntRange(from, len(sorted)).Draw(t, "to")
				step := rapid.IntRange(1, 3).Draw(t, "step") // 2 and 3 leave others between them
				for i := from; i < to && i < len(sorted); i += step - 1 {
					set.Remove(sorted[i].score(), sorted[i].name)
					sorted = slices.Delete(sorted, i, i+1)
				}
			},
			"remove": func(t *rapid.T) {
				if len(sorted) == 0 {
					t.Skip("nothing to remove")
				}
				i := rapid.IntRange(0, len(sorted)-1).Draw(t, "index")
				set.Remove(sorted[i].score(), sorted[i].name)
				sorted = slices.Delete(sorted, i, i+1)
			},
			"remove what is not in": func(*rapid.T) {
				if e := draw(); !slices.Contains(sorted, e) {
					set.Remove(e.score(), e.name)
				}
			},
			"": func(t *rapid.T) { compareSets(t, &set, sorted, draw()) },
		})
	})
}

// compareSets fails the test where the set answers otherwise than the slice.
func compareSets(t *rapid.T, set *machine.SortedSet, sorted model, place member) {
	t.Helper()
	probe := place.score()
	names := make([]string, len(sorted))
	inBand, upTo, from := 0, 0, len(sorted)
	for i, e := range sorted {
		names[i] = e.name
		if e.score() >= probe {
			from = min(from, i)
		}
		if e.score() <= probe {
			upTo++
		}
		if machine.BandScore(e.band, 0) <= probe && probe < machine.BandScore(e.band+1, 0) {
			inBand++
		}
	}
	if got := set.Members(); !slices.Equal(got, names) {
		t.Fatalf("members %v, want %v", got, names)
	}
	behind, in := slices.BinarySearchFunc(sorted, place, compareMembers)
	if in {
		behind++
	}
	if got := set.After(probe, place.name); !slices.Equal(got, names[behind:]) {
		t.Fatalf("after %+v %v, want %v", place, got, names[behind:])
	}
	if set.Len() != len(sorted) {
		t.Fatalf("length %d, want %d", set.Len(), len(sorted))
	}
	if got := set.InBand(probe); got != inBand {
		t.Fatalf("%d members in the band of %d, want %d", got, probe, inBand)
	}
	if got := set.UpTo(probe); got != upTo {
		t.Fatalf("%d members up to %d, want %d", got, probe, upTo)
	}
	check := func(what string, score int64, name string, ok bool, want member, wantOK bool) {
		if ok != wantOK || ok && (score != want.score() || name != want.name) {
			t.Fatalf("%s is %d %q %t, want %+v %t", what, score, name, ok, want, wantOK)
		}
	}
	at := func(i int) (member, bool) {
		if i < 0 || i >= len(sorted) {
			return member{}, false
		}
		return sorted[i], true
	}
	score, name, ok := set.First()
	want, wantOK := at(0)
	check("first", score, name, ok, want, wantOK)
	score, name, ok = set.Last()
	want, wantOK = at(len(sorted) - 1)
	check("last", score, name, ok, want, wantOK)
	score, name, ok = set.FirstFrom(probe)
	want, wantOK = at(from)
	check("first from", score, name, ok, want, wantOK)
	score, name, ok = set.Oldest()
	want, wantOK = sorted.oldest()
	check("oldest", score, name, ok, want, wantOK)
}
