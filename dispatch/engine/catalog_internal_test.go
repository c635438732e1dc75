package engine

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// oneShard is a store that has whatever sources a test gives it.
type oneShard struct {
	dispatch.Store
	source func(id string) *dispatch.Source
	reads  int
}

func (*oneShard) Shards() int { return 1 }

func (s *oneShard) SourcesByID(_ context.Context, ids []string) ([]*dispatch.Source, error) {
	s.reads++
	sources := make([]*dispatch.Source, len(ids))
	for i, id := range ids {
		sources[i] = s.source(id)
	}
	return sources, nil
}

// readSource reads one source.
func readSource(t *testing.T, c *Catalog, id string) *dispatch.Source {
	t.Helper()
	source, _, err := c.Source(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// The cache of sources is bounded by their size and number (P10): those that were used
// least recently go, and no others.
func TestCatalog_bounds(t *testing.T) {
	t.Parallel()
	payload := make([]byte, bounds.MaxPayloadLength)
	for name, tt := range map[string]struct {
		seeds, most int
	}{
		"size":   {100, maxCachedBytes / (100 * bounds.MaxPayloadLength)},
		"number": {0, maxCachedSources},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &oneShard{source: func(id string) *dispatch.Source {
				seeds := make([]dispatch.Seed, tt.seeds)
				for i := range seeds {
					seeds[i].Payload = payload
				}
				return &dispatch.Source{ID: id, UID: id, Spec: dispatch.SourceSpec{Seeds: seeds}}
			}}
			c := newCatalog(store)
			const often = "often"
			for n := range tt.most + tt.most/4 {
				readSource(t, c, often)
				id := strconv.Itoa(n)
				first := readSource(t, c, id)
				c.dropSource(id)
				if readSource(t, c, id) == first {
					t.Fatalf("source %s was changed, and is not read again", id)
				}
			}
			held := 0
			for _, item := range c.sources.Items() {
				held += sourceBytes(item.Value().source)
			}
			if held > maxCachedBytes || c.sources.Len() > maxCachedSources {
				t.Errorf("%d sources of %d bytes are cached; want at most %d of %d", c.sources.Len(), held, maxCachedSources, maxCachedBytes)
			}
			if n := c.sources.Len(); n < tt.most*9/10 {
				t.Errorf("%d sources are cached, want about %d", n, tt.most)
			}
			if c.sources.Get(often) == nil || c.sources.Get("0") != nil {
				t.Error("the cache dropped a source in use, and not the oldest")
			}
		})
	}
}

// One source of several that is gone, or was made again, changes nothing for the others.
func TestCatalog_sourcesOf(t *testing.T) {
	t.Parallel()
	store := &oneShard{source: func(id string) *dispatch.Source {
		if id == "gone" {
			return nil
		}
		return &dispatch.Source{ID: id, UID: "uid-" + id}
	}}
	c := newCatalog(store)
	of := []*dispatch.Task{
		{SourceID: "a", SourceUID: "uid-a"},
		{SourceID: "gone", SourceUID: "uid-gone"},
		{SourceID: "b", SourceUID: "an older one"},
		{SourceID: "a", SourceUID: "uid-a"},
		nil,
	}
	for range 2 {
		found := c.sourcesOf(t.Context(), of)
		for i, want := range []string{"uid-a", "", "", "uid-a", ""} {
			switch got := found[i]; {
			case want == "" && !errors.Is(got.err, dispatch.ErrSourceNotFound):
				t.Errorf("source %d: %+v, want ErrSourceNotFound", i, got)
			case want != "" && (got.err != nil || got.source.UID != want):
				t.Errorf("source %d: %+v, want that of uid %q", i, got, want)
			}
		}
	}
	if store.reads != 2 { // the second time for the one that is gone
		t.Errorf("the store was asked %d times, want 2", store.reads)
	}
}

// changedInRead has sources and rules that are changed while they are read.
type changedInRead struct {
	dispatch.Store

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

func (*changedInRead) Shards() int { return 1 }

func (s *changedInRead) SourcesByID(_ context.Context, ids []string) ([]*dispatch.Source, error) {
	version, sources := s.read(), make([]*dispatch.Source, len(ids))
	for i, id := range ids {
		sources[i] = &dispatch.Source{ID: id, UID: id, Version: version}
	}
	return sources, nil
}

func (s *changedInRead) Rules(context.Context) ([]dispatch.QueueRule, int64, error) {
	return nil, s.read(), nil
}

// A read that began before a change and ends after it does not bring back what was.
func TestCatalog_changedInRead(t *testing.T) {
	t.Parallel()
	source := func(c *Catalog) (int64, error) {
		s, _, err := c.Source(t.Context(), "s")
		if err != nil {
			return 0, err
		}
		return s.Version, nil
	}
	rules := func(c *Catalog) (int64, error) {
		b, err := c.Rules(t.Context())
		if err != nil {
			return 0, err
		}
		return b.Version, nil
	}
	for name, tt := range map[string]struct {
		told func(*Catalog)
		read func(*Catalog) (int64, error)
	}{
		"source":      {func(c *Catalog) { c.dropSource("s") }, source},
		"all, source": {(*Catalog).dropAll, source},
		"rules":       {(*Catalog).dropRules, rules},
		"all, rules":  {(*Catalog).dropAll, rules},
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
		if _, _, err := c.Source(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if known, _, err := c.Source(t.Context(), "s"); err != nil || known.Version != 1 {
			again++
		}
	}
	if again > 10 {
		t.Errorf("%d of 20 sources were read again, as 10 of others were changed", again)
	}
}
