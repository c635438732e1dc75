package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"

	"github.com/jellydator/ttlcache/v3"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// The cache of sources has limits of count and size: one source can have a thousand seeds, each with a payload.
const (
	maxCachedSources = 10_000
	maxCachedBytes   = 256 << 20
)

// Catalog caches sources and queue rules until the store gives a hint that they were changed.
type Catalog struct {
	store dispatch.Store

	mu      sync.Mutex                             // guards what follows
	sources *ttlcache.Cache[string, *catalogEntry] // by id; the least recently used go first
	rules   *RuleBook                              // nil: they must be read
	// Counters of hints: what was read before one may be stale. Those of sources are by the hash of the id.
	sourceChanges [changeCounters]uint64
	ruleChanges   uint64
	seed          maphash.Seed
}

// changeCounters is small enough to keep, and so large that the change of one source makes few others stale.
const changeCounters = 256

// catalogEntry is a source, or an error.
type catalogEntry struct {
	source   *dispatch.Source
	follower *Follower
	stale    bool  // guarded by the catalog's mu
	err      error // never of a cached one
}

func newCatalog(store dispatch.Store) *Catalog {
	return &Catalog{
		store: store, seed: maphash.MakeSeed(),
		sources: ttlcache.New(
			ttlcache.WithCapacity[string, *catalogEntry](maxCachedSources),
			ttlcache.WithMaxCost(maxCachedBytes, func(item ttlcache.CostItem[string, *catalogEntry]) uint64 {
				return uint64(sourceBytes(item.Value.source))
			}),
		),
	}
}

// pick returns the items at the indexes.
func pick[T any](items []T, indexes []int) []T {
	picked := make([]T, len(indexes))
	for n, i := range indexes {
		picked[n] = items[i]
	}
	return picked
}

// Source finds one source.
func (c *Catalog) Source(ctx context.Context, id string) (*dispatch.Source, *Follower, error) {
	found := c.lookup(ctx, []string{id})[0]
	return found.source, found.follower, found.err
}

// lookup finds sources, in the order of ids. Those that are not cached are read in one call. Each source has its own error, such as
// [dispatch.ErrSourceNotFound].
func (c *Catalog) lookup(ctx context.Context, ids []string) []catalogEntry {
	found := make([]catalogEntry, len(ids))
	var missing []int // indexes of ids
	var changes []uint64
	c.mu.Lock()
	for i, id := range ids {
		switch known := c.known(id); {
		case id == "":
			found[i].err = dispatch.ErrSourceNotFound
		case known != nil && !known.stale:
			found[i] = *known
		default:
			missing, changes = append(missing, i), append(changes, *c.changes(id))
		}
	}
	c.mu.Unlock()
	if len(missing) == 0 {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	sources, err := c.store.SourcesByID(ctx, pick(ids, missing))
	if err = timedOut(ctx.Err(), err); err != nil {
		for _, i := range missing {
			found[i].err = err
		}
		return found
	}
	for n, i := range missing {
		found[i] = newCatalogEntry(ids[i], sources[n])
		c.keep(found[i], changes[n])
	}
	return found
}

// newCatalogEntry is the entry of a source that was just read; nil: there is none.
func newCatalogEntry(id string, source *dispatch.Source) catalogEntry {
	if source == nil {
		return catalogEntry{err: fmt.Errorf("source %q: %w", id, dispatch.ErrSourceNotFound)}
	}
	f, err := newFollower(&source.Spec)
	if err != nil {
		return catalogEntry{err: fmt.Errorf("source %q: %w", id, err)}
	}
	return catalogEntry{source: source, follower: f}
}

// known is the cached entry of a source, stale or not; nil: none. It is called under mu.
func (c *Catalog) known(id string) *catalogEntry {
	if item := c.sources.Get(id); item != nil {
		return item.Value()
	}
	return nil
}

// changes counts the hints about a source, and about those that share its counter. It is called under mu.
func (c *Catalog) changes(id string) *uint64 {
	return &c.sourceChanges[maphash.String(c.seed, id)%changeCounters]
}

// keep caches a source that was read, unless it was changed since the read began.
func (c *Catalog) keep(entry catalogEntry, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry.err == nil && changes == *c.changes(entry.source.ID) {
		c.sources.Set(entry.source.ID, &entry, ttlcache.DefaultTTL)
	}
}

// Memory of a source, of each seed and of each compiled pattern, in addition to their bytes.
const (
	sourceCost  = 1 << 10
	seedCost    = 256
	patternCost = 8 << 10
)

// sourceBytes is the approximate memory of a source with its compiled follow rule.
func sourceBytes(s *dispatch.Source) int {
	n := sourceCost + len(s.Spec.Payload) + mapBytes(s.Spec.Metadata) + mapBytes(s.Spec.Labels)
	for i := range s.Spec.Seeds {
		seed := &s.Spec.Seeds[i]
		n += seedCost + len(seed.URL) + len(seed.Key) + len(seed.Payload) + mapBytes(seed.Metadata)
	}
	if follow := s.Spec.Follow; follow != nil {
		n += patternCost*(len(follow.Include)+len(follow.Exclude)) + bounds.MaxQueueLength*len(follow.AllowHosts)
	}
	return n
}

// SourceOf finds the source of one task.
func (c *Catalog) SourceOf(ctx context.Context, t *dispatch.Task) (*dispatch.Source, error) {
	found := c.sourcesOf(ctx, []*dispatch.Task{t})[0]
	return found.source, found.err
}

// sourcesOf finds the sources of tasks as lookup does. A source that is gone, or was created again with another uid, is
// [dispatch.ErrSourceNotFound]; so is that of a nil task.
func (c *Catalog) sourcesOf(ctx context.Context, tasks []*dispatch.Task) []catalogEntry {
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		if t != nil {
			ids[i] = t.SourceID
		}
	}
	found := c.lookup(ctx, ids)
	for i := range found {
		if s := found[i].source; s != nil && s.UID != tasks[i].SourceUID {
			found[i] = catalogEntry{err: fmt.Errorf("source %q of uid %q: %w", s.ID, tasks[i].SourceUID, dispatch.ErrSourceNotFound)}
		}
	}
	return found
}

// foundSpec is the spec of a task's source, or why it cannot be read.
type foundSpec struct {
	spec *dispatch.SourceSpec
	err  error
}

// taskSpecs finds the specs of tasks, in their order: the defaults for a source that is
// gone, and for a nil task.
func (c *Catalog) taskSpecs(ctx context.Context, tasks []*dispatch.Task) []foundSpec {
	specs := make([]foundSpec, len(tasks))
	for i, found := range c.sourcesOf(ctx, tasks) {
		switch {
		case found.err == nil:
			specs[i].spec = &found.source.Spec
		case errors.Is(found.err, dispatch.ErrSourceNotFound):
			specs[i].spec = dispatch.DefaultSpec()
		default:
			specs[i].err = found.err
		}
	}
	return specs
}

// lastSpec is the cached spec of a task's source, stale or not; nil: none.
func (c *Catalog) lastSpec(t *dispatch.Task) *dispatch.SourceSpec {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known(t.SourceID); known != nil && known.source.UID == t.SourceUID {
		return &known.source.Spec
	}
	return nil
}

// dropSource makes a source stale. lastSpec still finds it.
func (c *Catalog) dropSource(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.changes(id)++
	if known := c.known(id); known != nil {
		known.stale = true
	}
}

// dropRules makes the rules stale.
func (c *Catalog) dropRules() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ruleChanges++
	c.rules = nil
}

// dropAll makes everything stale.
func (c *Catalog) dropAll() {
	c.dropRules()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.sourceChanges {
		c.sourceChanges[i]++
	}
	for _, id := range c.sources.Keys() {
		if known := c.known(id); known != nil {
			known.stale = true
		}
	}
}

// Rules returns all queue rules.
func (c *Catalog) Rules(ctx context.Context) (*RuleBook, error) {
	c.mu.Lock()
	rules, changes := c.rules, c.ruleChanges
	c.mu.Unlock()
	if rules != nil {
		return rules, nil
	}
	list, version, err := c.store.Rules(ctx)
	if err != nil {
		return nil, timedOut(ctx.Err(), err)
	}
	rules = NewRuleBook(list, version)
	c.mu.Lock()
	defer c.mu.Unlock()
	if changes == c.ruleChanges {
		c.rules = rules
	}
	return rules, nil
}

// JoinSource adds the source's metadata to a task, where the task's own values win, and the source's payload if it has
// none. If the source got more metadata than there is room for beside the task's own, the task has only its own.
func JoinSource(t *dispatch.Task, source *dispatch.Source) {
	if t.SourceUID != source.UID {
		return
	}
	t.SourceID, t.Pool = source.ID, source.Spec.Pool
	if t.Scope = source.Spec.Scope; t.Scope == "" {
		t.Scope = source.UID
	}
	if len(source.Spec.Metadata) > 0 && metadataFits(source, t.Metadata) == nil {
		joined := maps.Clone(source.Spec.Metadata)
		maps.Copy(joined, t.Metadata)
		t.Metadata = joined
	}
	if len(t.Payload) == 0 {
		t.Payload = source.Spec.Payload
	}
}

// metadataFits checks the metadata that a task of the source with metadata of its own is handed out with.
func metadataFits(source *dispatch.Source, own map[string]string) error {
	n := mapBytes(own)
	for k, v := range source.Spec.Metadata {
		if _, has := own[k]; !has {
			n += len(k) + len(v)
		}
	}
	if n <= bounds.MaxMetadataLength {
		return nil
	}
	return dispatch.Invalid("metadata", fmt.Sprintf("%d bytes with what is inherited", n), fmt.Sprintf("must be at most %d bytes", bounds.MaxMetadataLength))
}

// mapBytes is the size of the keys and values of m.
func mapBytes(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}
