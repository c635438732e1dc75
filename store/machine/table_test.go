package machine_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/store/machine"
)

func TestTable_AgreesWithAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, want := new(machine.Table), make(map[string]bool)
		key := strconv.Itoa
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				from := rapid.IntRange(0, 500).Draw(t, "from")
				for n := range rapid.IntRange(1, 600).Draw(t, "many") {
					if k := key(from + n); !want[k] {
						table.Add(k)
						want[k] = true
					}
				}
			},
			"remove": func(t *rapid.T) {
				from := rapid.IntRange(0, 500).Draw(t, "from")
				for n := range rapid.IntRange(1, 600).Draw(t, "many") {
					table.Remove(key(from + n)) // whether it is in or not
					delete(want, key(from+n))
				}
			},
			"": func(t *rapid.T) {
				for n := range 1100 {
					if k := key(n); table.Has(k) != want[k] {
						t.Fatalf("has %s: %t, want %t", k, table.Has(k), want[k])
					}
				}
				keys, size := table.Keys()
				slices.Sort(keys)
				if !slices.Equal(keys, slices.Sorted(maps.Keys(want))) || size != len(want) {
					t.Fatalf("has %d keys, says %d, want %d", len(keys), size, len(want))
				}
			},
		})
	})
}

// What is left of a peak is found where it was moved to, and so is what comes then.
func TestTable_Peak(t *testing.T) {
	t.Parallel()
	const peak, left = 20_000, 300
	table := new(machine.Table)
	for n := range peak {
		table.Add(strconv.Itoa(n))
	}
	for n := range peak {
		if n%(peak/left) != 0 {
			table.Remove(strconv.Itoa(n))
		}
	}
	for n := range peak / 2 {
		table.Add("new" + strconv.Itoa(n))
	}
	for n := range peak {
		if key := strconv.Itoa(n); table.Has(key) != (n%(peak/left) == 0) {
			t.Fatalf("has %s: %t", key, table.Has(key))
		}
		if key := "new" + strconv.Itoa(n); table.Has(key) != (n < peak/2) {
			t.Fatalf("has %s: %t", key, table.Has(key))
		}
	}
}
