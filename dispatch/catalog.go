package dispatch

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"time"
)

// catalogTTL bounds how stale a cached source can be should a hint be lost; what
// must not be stale (a pause, a pool) is checked by the shards themselves.
const catalogTTL = time.Second

// What a catalog remembers is bounded by count and by size: one source can have a
// thousand seeds, each with a payload.
const (
	maxCachedSources = 10_000
	maxCachedBytes   = 256 << 20
)

// catalog is what a dispatcher remembers of sources and queue rules between
// calls. Nothing in it matters: all of it can be read again.
type catalog struct {
	store Store

	mu      sync.Mutex // guards what follows
	sources map[string]catalogEntry
	bytes   int    // of sources, about
	drops   uint64 // of all at once
	rules   *ruleBook
	rulesAt time.Time
	// What was told of meanwhile is not known by a read that began before.
	sourceChanges [changeCounters]uint64 // by the hash of the id
	ruleChanges   uint64
	seed          maphash.Seed
}

// changeCounters are few enough to keep, and enough for the change of a source to have
// hardly any other read again.
const changeCounters = 256

type catalogEntry struct {
	source   *Source
	follower *follower
	bytes    int // about
	read     time.Time
	drops    uint64 // as they were; another number: read it again
}

func newCatalog(store Store) *catalog {
	return &catalog{store: store, sources: make(map[string]catalogEntry), seed: maphash.MakeSeed()}
}

// DefaultSpec is what holds for tasks whose source is gone.
func DefaultSpec() *SourceSpec {
	spec := &SourceSpec{}
	spec.FillDefaults()
	return spec
}

// source reads a source, from memory when it was read within a second.
func (c *catalog) source(ctx context.Context, id string) (*Source, *follower, error) {
	c.mu.Lock()
	entry := c.sources[id]
	if c.fresh(&entry) {
		c.mu.Unlock()
		return entry.source, entry.follower, nil
	}
	drops, changes := c.drops, *c.changes(id)
	c.mu.Unlock()
	inTime, cancel := aheadOf(ctx)
	defer cancel()
	source, err := c.store.Source(inTime, id)
	if err != nil {
		c.expire(id)
		return nil, nil, lateError(inTime, err)
	}
	f, err := newFollower(&source.Spec)
	if err != nil {
		return nil, nil, fmt.Errorf("source %q: %w", id, err)
	}
	c.keep(id, catalogEntry{source: source, follower: f, bytes: source.bytes(), read: time.Now(), drops: drops}, changes)
	return source, f, nil
}

// changes counts what was told of a source, and of those that share its counter. It is
// called under mu.
func (c *catalog) changes(id string) *uint64 {
	return &c.sourceChanges[maphash.String(c.seed, id)%changeCounters]
}

// fresh reports whether a source need not be read again. It is called under mu.
func (c *catalog) fresh(entry *catalogEntry) bool {
	return entry.drops == c.drops && time.Since(entry.read) < catalogTTL
}

// keep remembers a source that was read, unless a newer one is known. One that may have
// changed since the read began, when so many changes were known, is read again. Where that
// would be too much, all others are forgotten: they are read again each [catalogTTL] in any
// case.
func (c *catalog) keep(id string, entry catalogEntry, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.sources[id]; c.fresh(&known) && known.source.UID == entry.source.UID && known.source.Version > entry.source.Version {
		return
	}
	if changes != *c.changes(id) {
		entry.read = time.Time{}
	}
	c.bytes += entry.bytes - c.sources[id].bytes
	if len(c.sources) >= maxCachedSources || c.bytes > maxCachedBytes {
		clear(c.sources)
		c.bytes = entry.bytes
	}
	c.sources[id] = entry
}

// Besides its bytes a source takes about sourceCost, and each of its seeds and patterns
// seedCost and patternCost: a compiled pattern is a program.
const (
	sourceCost  = 1 << 10
	seedCost    = 256
	patternCost = 8 << 10
)

// bytes is about what a source, with its follow rule compiled, takes in memory.
func (s *Source) bytes() int {
	n := sourceCost + len(s.Spec.Payload) + mapBytes(s.Spec.Metadata) + mapBytes(s.Spec.Labels)
	for i := range s.Spec.Seeds {
		seed := &s.Spec.Seeds[i]
		n += seedCost + len(seed.URL) + len(seed.Key) + len(seed.Payload) + mapBytes(seed.Metadata)
	}
	if follow := s.Spec.Follow; follow != nil {
		n += patternCost*(len(follow.Include)+len(follow.Exclude)) + MaxQueueLength*len(follow.AllowHosts)
	}
	return n
}

// spec finds the spec of a task's source, at least as new as version atLeast.
// A source that is gone, or was made again under another uid, is
// ErrSourceNotFound.
func (c *catalog) spec(ctx context.Context, id, uid string, atLeast int64) (*Source, error) {
	if id == "" {
		return nil, fmt.Errorf("source of uid %q: %w", uid, ErrSourceNotFound)
	}
	source, _, err := c.source(ctx, id)
	if err == nil && (source.Version < atLeast || source.UID != uid) {
		c.expire(id)
		source, _, err = c.source(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	if source.UID != uid {
		return nil, fmt.Errorf("source %q of uid %q: %w", id, uid, ErrSourceNotFound)
	}
	return source, nil
}

// specOr is spec, with the defaults for a source that is gone.
func (c *catalog) specOr(ctx context.Context, t *Task) (*SourceSpec, error) {
	source, err := c.spec(ctx, t.SourceID, t.SourceUID, 0)
	switch {
	case err == nil:
		return &source.Spec, nil
	case errors.Is(err, ErrSourceNotFound):
		return DefaultSpec(), nil
	default:
		return nil, err
	}
}

// lastSpec is what was known last of the spec of a task's source; nil: nothing.
func (c *catalog) lastSpec(t *Task) *SourceSpec {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.sources[t.SourceID].source; known != nil && known.UID == t.SourceUID {
		return &known.Spec
	}
	return nil
}

// dropSource has a source that was changed read again. What was known of it stays for
// lastSpec.
func (c *catalog) dropSource(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.changes(id)++
	c.expireLocked(id)
}

// expire has a source read again, which nobody told to have changed.
func (c *catalog) expire(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked(id)
}

func (c *catalog) expireLocked(id string) {
	if entry, ok := c.sources[id]; ok {
		entry.read = time.Time{}
		c.sources[id] = entry
	}
}

func (c *catalog) dropRules() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ruleChanges++
	c.rules = nil
}

// dropAll has everything read again, after hints may have been lost.
func (c *catalog) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops++
	c.ruleChanges++
	c.rules = nil
}

// ruleBook is a version of all queue rules.
type ruleBook struct {
	version    int64
	byPattern  map[string]QueueRule
	bySettings map[string]QueueRule // by QueueRule.SettingsName
	deniesAny  bool
}

func (c *catalog) ruleBook(ctx context.Context) (*ruleBook, error) {
	c.mu.Lock()
	rules, at, changes := c.rules, c.rulesAt, c.ruleChanges
	c.mu.Unlock()
	if rules != nil && time.Since(at) < catalogTTL {
		return rules, nil
	}
	inTime, cancel := aheadOf(ctx)
	defer cancel()
	list, version, err := c.store.Rules(inTime)
	if err != nil {
		return nil, lateError(inTime, err)
	}
	rules = newRuleBook(list, version)
	c.mu.Lock()
	if changes == c.ruleChanges {
		c.rules, c.rulesAt = rules, time.Now()
	}
	c.mu.Unlock()
	return rules, nil
}

func newRuleBook(rules []QueueRule, version int64) *ruleBook {
	b := &ruleBook{
		version:    version,
		byPattern:  make(map[string]QueueRule, len(rules)),
		bySettings: make(map[string]QueueRule, len(rules)),
	}
	for _, rule := range rules {
		b.byPattern[rule.Pattern] = rule
		b.bySettings[rule.SettingsName()] = rule
		b.deniesAny = b.deniesAny || rule.Settings.Deny
	}
	return b
}

// queueOf is the queue that tasks of host go to, by the longest rule that
// matches it.
func (b *ruleBook) queueOf(host string) string {
	if rule, _ := longestMatch(b.byPattern, host); rule.Queue != "" {
		return rule.Queue
	}
	return host
}

// denies reports whether the settings of queue refuse submits.
func (b *ruleBook) denies(queue string) bool {
	rule, _ := longestMatch(b.bySettings, queue)
	return rule.Settings.Deny
}

// denial is who denied a queue by a rule, and why.
func (b *ruleBook) denial(queue string) Note {
	rule, _ := longestMatch(b.bySettings, queue)
	gate := rule.Gate(GateQueueDenied)
	note := Note{By: gate.By, Reason: fmt.Sprintf("the rule %q denies its queue", rule.Pattern)}
	if gate.Reason != "" {
		note.Reason += ": " + gate.Reason
	}
	return note
}

// settings are what holds for a queue, and the name under which they are filed;
// empty when they are the defaults.
func (b *ruleBook) settings(queue string) (QueueSettings, string) {
	if rule, ok := longestMatch(b.bySettings, queue); ok {
		return rule.Settings, rule.SettingsName()
	}
	return DefaultQueueSettings(), ""
}

// fresh is a queue as it would be made.
func (b *ruleBook) fresh(name string) *Queue {
	q := &Queue{Name: name}
	q.Settings, q.SettingsName = b.settings(name)
	rule := b.bySettings[q.SettingsName]
	if stop := b.bySettings[everyQueue]; stop.Settings.Paused && !q.Settings.Paused {
		q.Settings.Paused = true
		q.Gates = append(q.Gates, stop.Gate(GateQueuePaused))
	} else if q.Settings.Paused {
		q.Gates = append(q.Gates, rule.Gate(GateQueuePaused))
	}
	if q.Settings.Deny {
		q.Gates = append(q.Gates, rule.Gate(GateQueueDenied))
	}
	return q
}

// names reports whether a rule is for the queue of this very name.
func (b *ruleBook) names(queue string) bool {
	_, ok := b.bySettings[queue]
	return ok
}

// join completes grants with what their tasks share with their source: the spec
// is kept once, a task stores only what differs.
func (d *Dispatcher) join(ctx context.Context, grants []Grant) error {
	for i := range grants {
		t := &grants[i].Task
		source, err := d.catalog.spec(ctx, t.SourceID, t.SourceUID, grants[i].SourceVersion)
		if errors.Is(err, ErrSourceNotFound) {
			continue // deleted since the claim; the task carries what it has
		}
		if err != nil {
			return fmt.Errorf("join task %s with source %q: %w", t.ID, t.SourceID, err)
		}
		t.joinSource(source)
	}
	return nil
}

// joinSource lays the task's own metadata over its source's, and gives it the
// source's payload if it has none.
func (t *Task) joinSource(source *Source) {
	if t.SourceUID != source.UID {
		return
	}
	t.SourceID, t.Pool = source.ID, source.Spec.Pool
	if t.Scope = source.Spec.Scope; t.Scope == "" {
		t.Scope = source.UID
	}
	if len(source.Spec.Metadata) > 0 {
		joined := maps.Clone(source.Spec.Metadata)
		maps.Copy(joined, t.Metadata)
		t.Metadata = joined
	}
	if len(t.Payload) == 0 {
		t.Payload = source.Spec.Payload
	}
}
