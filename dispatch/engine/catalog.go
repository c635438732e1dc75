package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jellydator/ttlcache/v3"
	"golang.org/x/sync/singleflight"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// catalogTTL limits how stale a cached source is if a hint is lost. The shards themselves check what must not be stale
// (a hold, a pool).
const catalogTTL = time.Second

// The cache of sources has limits of count and size: one source can have a thousand seeds, each with a payload.
const (
	maxCachedSources = 10_000
	maxCachedBytes   = 256 << 20
)

// Catalog caches sources and queue rules between calls.
type Catalog struct {
	store  dispatch.Store
	shards int
	reads  singleflight.Group // of sources

	mu      sync.Mutex                             // guards what follows
	sources *ttlcache.Cache[string, *catalogEntry] // by id; the least recently used go first
	drops   uint64                                 // of all at once
	rules   *RuleBook
	rulesAt time.Time
	// A change that is announced during a read may be missing in what was read.
	sourceChanges [changeCounters]uint64 // by the hash of the id
	ruleChanges   uint64
	seed          maphash.Seed
}

// changeCounters is small enough to keep, and so large that the change of one source makes few others stale.
const changeCounters = 256

// catalogEntry is a source, or an error.
type catalogEntry struct {
	source   *dispatch.Source
	follower *Follower
	err      error     // never of a cached one
	read     time.Time // guarded by the catalog's mu
	drops    uint64    // when the read began; another number: stale
}

func newCatalog(store dispatch.Store) *Catalog {
	return &Catalog{
		store: store, shards: max(store.Shards(), 1), seed: maphash.MakeSeed(),
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

// lookup finds sources, in the order of ids. The cache serves those read within a second. The others are read with one
// call for each home shard, so that an unavailable shard fails only its own sources. Each source has its own error,
// such as [ErrSourceNotFound].
func (c *Catalog) lookup(ctx context.Context, ids []string) []catalogEntry {
	found := make([]catalogEntry, len(ids))
	missing := make(map[int][]int) // by home shard, indexes of ids
	c.mu.Lock()
	for i, id := range ids {
		switch known := c.known(id); {
		case id == "":
			found[i].err = dispatch.ErrSourceNotFound
		case c.fresh(known):
			found[i] = *known
		default:
			home := dispatch.ShardOf(dispatch.SlotOf(id), c.shards)
			missing[home] = append(missing[home], i)
		}
	}
	c.mu.Unlock()
	if len(missing) == 0 {
		return found
	}
	reads := make(map[int]<-chan singleflight.Result, len(missing))
	for home, indexes := range missing {
		reads[home] = c.begin(ctx, pick(ids, indexes))
	}
	for home, read := range reads {
		var answer singleflight.Result
		select {
		case answer = <-read:
		case <-ctx.Done():
			answer.Err = context.Cause(ctx)
		}
		sources, _ := answer.Val.(map[string]catalogEntry)
		for _, i := range missing[home] {
			if found[i] = sources[ids[i]]; answer.Err != nil {
				found[i].err = answer.Err
			}
		}
	}
	return found
}

// begin reads sources, or joins a read of the same sources that began after the last hint about one of them. A caller
// that stops waiting does not cancel the read.
func (c *Catalog) begin(ctx context.Context, ids []string) <-chan singleflight.Result {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	c.mu.Lock()
	defer c.mu.Unlock()
	drops, changes := c.drops, make([]uint64, len(ids))
	key := fmt.Append(nil, drops)
	for i, id := range ids {
		changes[i] = *c.changes(id)
		key = fmt.Append(key, " ", id, "@", changes[i])
	}
	ctx = context.WithoutCancel(ctx)
	return c.reads.DoChan(string(key), func() (any, error) {
		inTime, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		sources, err := c.store.SourcesByID(inTime, ids)
		if err != nil {
			return nil, timedOut(inTime.Err(), err)
		}
		found := make(map[string]catalogEntry, len(ids))
		for i, id := range ids {
			entry := newCatalogEntry(id, sources[i])
			if entry.drops = drops; entry.err == nil {
				c.keep(entry, changes[i])
			}
			found[id] = entry
		}
		return found, nil
	})
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
	return catalogEntry{source: source, follower: f, read: time.Now()}
}

// known is the cached entry of a source, fresh or stale; nil: none. It is called under mu.
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

// fresh reports whether a source need not be read again. It is called under mu.
func (c *Catalog) fresh(entry *catalogEntry) bool {
	return entry != nil && entry.drops == c.drops && time.Since(entry.read) < catalogTTL
}

// keep caches a source that was read, unless a newer one is cached. changes is the counter at the start of the read: if
// it has risen since, the source is stale.
func (c *Catalog) keep(entry catalogEntry, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := entry.source.ID
	known := c.known(id)
	if c.fresh(known) && known.source.UID == entry.source.UID && known.source.Version > entry.source.Version {
		return
	}
	if changes != *c.changes(id) {
		entry.read = time.Time{}
	}
	c.sources.Set(id, &entry, ttlcache.DefaultTTL)
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

// sourceOf names the source of a task.
type sourceOf struct {
	id, uid string
	atLeast int64 // the version
}

// SourceOf finds the source of one task.
func (c *Catalog) SourceOf(ctx context.Context, t *dispatch.Task) (*dispatch.Source, error) {
	found := c.specs(ctx, []sourceOf{{id: t.SourceID, uid: t.SourceUID}})[0]
	return found.source, found.err
}

// specs finds the sources of tasks as lookup does, at least as new as the versions. A source that is gone, or was
// created again with another uid, is [ErrSourceNotFound].
func (c *Catalog) specs(ctx context.Context, of []sourceOf) []catalogEntry {
	ids := make([]string, len(of))
	for i := range of {
		ids[i] = of[i].id
	}
	found := c.lookup(ctx, ids)
	var old []int // indexes of sources
	for i := range found {
		if s := found[i].source; s != nil && (s.UID != of[i].uid || s.Version < of[i].atLeast) {
			c.expire(s)
			old = append(old, i)
		}
	}
	if len(old) > 0 {
		for n, again := range c.lookup(ctx, pick(ids, old)) {
			found[old[n]] = again
		}
	}
	for i := range found {
		if s := found[i].source; s != nil && s.UID != of[i].uid {
			found[i] = catalogEntry{err: fmt.Errorf("source %q of uid %q: %w", s.ID, of[i].uid, dispatch.ErrSourceNotFound)}
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
	of := make([]sourceOf, len(tasks))
	for i, t := range tasks {
		if t != nil {
			of[i] = sourceOf{id: t.SourceID, uid: t.SourceUID}
		}
	}
	specs := make([]foundSpec, len(tasks))
	for i, found := range c.specs(ctx, of) {
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

// lastSpec is the cached spec of a task's source, fresh or stale; nil: none.
func (c *Catalog) lastSpec(t *dispatch.Task) *dispatch.SourceSpec {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known(t.SourceID); known != nil && known.source.UID == t.SourceUID {
		return &known.source.Spec
	}
	return nil
}

// DropSource makes a source stale, because it was changed. lastSpec still finds it.
func (c *Catalog) DropSource(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.changes(id)++
	if known := c.known(id); known != nil {
		known.read = time.Time{}
	}
}

// expire makes an outdated source stale, unless it was read again since.
func (c *Catalog) expire(old *dispatch.Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known(old.ID); c.fresh(known) && known.source == old {
		*c.changes(old.ID)++
		known.read = time.Time{}
	}
}

// DropRules makes the cached rules stale, because they were changed.
func (c *Catalog) DropRules() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ruleChanges++
	c.rules = nil
}

// dropAll makes everything stale, after hints may have been lost.
func (c *Catalog) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops++
	c.ruleChanges++
	c.rules = nil
}

// Rules returns all queue rules, at most a second old.
func (c *Catalog) Rules(ctx context.Context) (*RuleBook, error) {
	c.mu.Lock()
	rules, at, changes := c.rules, c.rulesAt, c.ruleChanges
	c.mu.Unlock()
	if rules != nil && time.Since(at) < catalogTTL {
		return rules, nil
	}
	list, version, err := c.store.Rules(ctx)
	if err != nil {
		return nil, timedOut(ctx.Err(), err)
	}
	rules = NewRuleBook(list, version)
	c.mu.Lock()
	if changes == c.ruleChanges {
		c.rules, c.rulesAt = rules, time.Now()
	}
	c.mu.Unlock()
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
