package memstore_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore"
)

func TestRecordIndex_AgreesWithAMap(t *testing.T) {
	t.Parallel()
	for _, hashes := range []int{2, 1 << 30} {
		t.Run(strconv.Itoa(hashes)+" hashes", func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				index, want := memstore.NewRecordIndex(hashes), make(map[dispatch.TaskID]bool)
				id := func(n int) dispatch.TaskID { return dispatch.TaskID("1-" + strconv.Itoa(n)) }
				t.Repeat(map[string]func(*rapid.T){
					"add": func(t *rapid.T) {
						from := rapid.IntRange(0, 500).Draw(t, "from")
						for n := range rapid.IntRange(1, 600).Draw(t, "many") {
							if id := id(from + n); !want[id] && (hashes > 2 || len(want) < 20) {
								index.Add(id)
								want[id] = true
							}
						}
					},
					"remove": func(t *rapid.T) {
						from := rapid.IntRange(0, 500).Draw(t, "from")
						for n := range rapid.IntRange(1, 600).Draw(t, "many") {
							index.Remove(id(from + n)) // whether it is in or not
							delete(want, id(from+n))
						}
					},
					"": func(t *rapid.T) {
						for n := range 1100 {
							if id := id(n); index.Has(id) != want[id] {
								t.Fatalf("has %s: %t, want %t", id, index.Has(id), want[id])
							}
						}
						ids, size := index.IDs()
						slices.Sort(ids)
						if !slices.Equal(ids, slices.Sorted(maps.Keys(want))) || size != len(want) {
							t.Fatalf("has %d records, says %d, want %d", len(ids), size, len(want))
						}
					},
				})
			})
		})
	}
}
