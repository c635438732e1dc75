package dispatch

import (
	"context"
	"fmt"
	"strconv"
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

// changedInRead has sources and rules that are changed while they are read.
type changedInRead struct {
	Store

	version int64
	change  func() // once
}

func (s *changedInRead) read() int64 {
	version := s.version
	if change := s.change; change != nil {
		s.change = nil
		s.version++
		change()
	}
	return version
}

func (s *changedInRead) Source(_ context.Context, id string) (*Source, error) {
	return &Source{ID: id, UID: id, Version: s.read()}, nil
}

func (s *changedInRead) Rules(context.Context) ([]QueueRule, int64, error) { return nil, s.read(), nil }

// A read that began before a change and ends after it does not bring back what was.
func TestCatalog_changedInRead(t *testing.T) {
	t.Parallel()
	source := func(c *catalog) (int64, error) {
		s, _, err := c.source(t.Context(), "s")
		if err != nil {
			return 0, err
		}
		return s.Version, nil
	}
	rules := func(c *catalog) (int64, error) {
		b, err := c.ruleBook(t.Context())
		if err != nil {
			return 0, err
		}
		return b.version, nil
	}
	for name, tt := range map[string]struct {
		told func(*catalog)
		read func(*catalog) (int64, error)
	}{
		"source":      {func(c *catalog) { c.dropSource("s") }, source},
		"newer known": {func(c *catalog) { _, _ = source(c) }, source}, // by a read that began later
		"all, source": {(*catalog).dropAll, source},
		"rules":       {(*catalog).dropRules, rules},
		"all, rules":  {(*catalog).dropAll, rules},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &changedInRead{version: 1}
			c := newCatalog(s)
			s.change = func() { tt.told(c) }
			if _, err := tt.read(c); err != nil {
				t.Fatal(err)
			}
			if version, err := tt.read(c); err != nil || version != 2 {
				t.Errorf("after the change it knows version %d, %v; want 2", version, err)
			}
		})
	}
}

// Of many sources that change while another one is read, few have it read again.
func TestCatalog_othersChangedInRead(t *testing.T) {
	t.Parallel()
	again := 0
	for range 20 { // each has other counters in common
		s := &changedInRead{version: 1}
		c := newCatalog(s)
		s.change = func() {
			for i := range 10 {
				c.dropSource(strconv.Itoa(i))
			}
		}
		if _, _, err := c.source(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if known, _, err := c.source(t.Context(), "s"); err != nil || known.Version != 1 {
			again++
		}
	}
	if again > 10 {
		t.Errorf("%d of 20 sources were read again, as 10 of others were changed", again)
	}
}
