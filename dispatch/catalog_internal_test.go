package dispatch

import (
	"context"
	"fmt"
	"testing"
)

// bigSources has a source of every id, each with a payload of 256 KiB for each of its seeds.
type bigSources struct{ Store }

func (bigSources) Source(_ context.Context, id string) (*Source, error) {
	seeds := make([]Seed, 100)
	payload := make([]byte, MaxPayloadLength)
	for i := range seeds {
		seeds[i] = Seed{URL: fmt.Sprintf("http://%s.example/%d", id, i), Payload: payload}
	}
	return &Source{ID: id, UID: id, Spec: SourceSpec{Seeds: seeds}}, nil
}

// What is remembered of sources is bounded by their size (P10), and a source that is
// read again counts once.
func TestCatalog_bytes(t *testing.T) {
	t.Parallel()
	c := newCatalog(bigSources{})
	most := 0
	for n := range 40 {
		for range 2 {
			id := fmt.Sprint(n)
			c.dropSource(id)
			if _, _, err := c.source(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		held := 0
		for _, entry := range c.sources {
			held += entry.source.bytes()
		}
		if held > maxCachedBytes || held != c.bytes {
			t.Fatalf("%d bytes of %d sources are remembered, counted as %d; want them counted, and at most %d", held, len(c.sources), c.bytes, maxCachedBytes)
		}
		most = max(most, len(c.sources))
	}
	if most < 5 {
		t.Errorf("at most %d sources are remembered at a time", most)
	}
}
