package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/history"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/machine"
)

// sourceBook keeps the sources as people wrote them.
type sourceBook struct {
	part // its mutex guards what follows

	kept    btree.Map[string, *keptSource]
	pending btree.Set[string] // ids of sources whose Applied is below Version
	held    btree.Set[string] // ids of sources that have Holds

	changed func(id string) // is called when a source was changed
}

// keptSource is an encoded source, so that it shares no memory with a caller. The fields of MarkApplied are separate.
type keptSource struct {
	id, uid string
	version int64
	deleted bool
	held    bool   // it has Holds
	quiet   bool   // its spec has a QuietAfter
	encoded []byte // with Applied 0 and no AppliedSeeds
	applied int64
	seeds   []dispatch.TaskID
}

func keepSource(s *dispatch.Source) (*keptSource, error) {
	body := *s
	body.Applied, body.AppliedSeeds = 0, nil
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%w: source %s cannot be encoded: %w", dispatch.ErrInvalid, s.ID, err)
	}
	return &keptSource{
		id: s.ID, uid: s.UID, version: s.Version, deleted: s.Deleted, held: len(s.Holds) > 0,
		quiet: s.Spec.QuietAfter > 0, encoded: encoded,
		applied: s.Applied, seeds: append([]dispatch.TaskID(nil), s.AppliedSeeds...),
	}, nil
}

func (k *keptSource) source() (*dispatch.Source, error) {
	s := new(dispatch.Source)
	if err := json.Unmarshal(k.encoded, s); err != nil {
		return nil, fmt.Errorf("decode source %s: %w", k.id, err)
	}
	s.Applied = k.applied
	s.AppliedSeeds = append([]dispatch.TaskID(nil), k.seeds...)
	return s, nil
}

// spec is the encoded spec.
func (k *keptSource) spec() []byte {
	var s struct{ Spec json.RawMessage }
	_ = json.Unmarshal(k.encoded, &s) // it was encoded here
	return s.Spec
}

// gone reports whether only holds are left on the id.
func (k *keptSource) gone() bool { return k.deleted && k.applied == k.version }

// put stores k, whether shards do not have it yet, and whether it has holds.
func (b *sourceBook) put(k *keptSource) {
	b.kept.Set(k.id, k)
	list := func(in *btree.Set[string], wanted bool) {
		if wanted {
			in.Insert(k.id)
		} else {
			in.Delete(k.id)
		}
	}
	list(&b.pending, k.applied < k.version)
	list(&b.held, k.held)
}

// PutSource implements [dispatch.Sources].
func (b *sourceBook) PutSource(ctx context.Context, src *dispatch.Source, ifVersion int64) error {
	k, err := keepSource(src)
	if err != nil {
		return err
	}
	return b.call(ctx, func() error { return b.putIf(k, ifVersion) })
}

// putIf stores k, if the source with its id has that version.
func (b *sourceBook) putIf(k *keptSource, ifVersion int64) error {
	old, ok := b.kept.Get(k.id)
	switch {
	case !ok && ifVersion == 0:
	case !ok:
		return fmt.Errorf("%w: %s", dispatch.ErrSourceNotFound, k.id)
	case ifVersion == 0 && old.uid == k.uid, bytes.Equal(old.encoded, k.encoded) && (old.gone() || !k.gone()):
		return nil
	case ifVersion == 0:
		return fmt.Errorf("%w: %s", dispatch.ErrSourceExists, k.id)
	case old.version != ifVersion || old.uid != k.uid && !old.gone():
		return fmt.Errorf("%w: source %s has version %d, not %d", dispatch.ErrEtagMismatch, k.id, old.version, ifVersion)
	case old.uid == k.uid && !k.gone():
		k.applied, k.seeds = old.applied, old.seeds
	}
	return b.store(k, !k.deleted && (!ok || !bytes.Equal(old.spec(), k.spec())))
}

// store keeps a source, whatever there was, while the call holds the mutex.
func (b *sourceBook) store(k *keptSource, grows bool) error {
	room := machine.SmallGroup + len(k.encoded) + len(k.seeds)*machine.ChangedBytes
	defer b.changed(k.id)
	return b.commit(bookShard, room, grows, func() { b.put(k) }, func(out []byte) []byte {
		return codec.AppendItem(out, codec.KeptSource, 0, func(c *codec.Codec) { keptSourceFields(c, k) })
	})
}

// forget removes a source while the call holds the mutex.
func (b *sourceBook) forget(id string) error {
	defer b.changed(id)
	return b.commit(bookShard, machine.SmallGroup, false, func() { b.remove(id) }, func(out []byte) []byte {
		return codec.RemovedText(out, codec.KeptSource, 0, id)
	})
}

func (b *sourceBook) remove(id string) {
	b.kept.Delete(id)
	b.pending.Delete(id)
	b.held.Delete(id)
}

// MarkApplied implements [dispatch.Sources].
func (b *sourceBook) MarkApplied(ctx context.Context, id, uid string, version int64, seeds []dispatch.TaskID) (bool, error) {
	marked := true
	err := b.call(ctx, func() error {
		old, ok := b.kept.Get(id)
		switch {
		case !ok: // removed by an earlier call
			return nil
		case old.uid != uid || old.version > version:
			marked = false
			return nil
		case old.deleted:
			return b.forget(id)
		case old.applied == version && slices.Equal(old.seeds, seeds):
			return nil
		}
		k := *old
		k.applied, k.seeds = version, append([]dispatch.TaskID(nil), seeds...)
		return b.store(&k, false)
	})
	return marked && err == nil, err
}

// SourcesByID implements [dispatch.Sources].
func (b *sourceBook) SourcesByID(ctx context.Context, ids []string) ([]*dispatch.Source, error) {
	kept := make([]*keptSource, len(ids))
	err := b.call(ctx, func() error {
		for i, id := range ids {
			kept[i], _ = b.kept.Get(id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return decodeSources(kept)
}

// ListSources implements [dispatch.Sources].
func (s *Store) ListSources(ctx context.Context, filter dispatch.SourceFilter, after string, limit int) (sources []*dispatch.Source, more bool, err error) {
	if filter.Silent {
		return s.silentSources(ctx, filter, after, limit)
	}
	return s.sourceBook.list(ctx, filter, after, limit)
}

// silentLooks is how many sources are looked at between two calls of the shards.
const silentLooks = 5000

// silentSources lists the sources that may be silent. Only those are decoded.
func (s *Store) silentSources(ctx context.Context, filter dispatch.SourceFilter, after string, limit int) (sources []*dispatch.Source, more bool, err error) {
	b, now := &s.sourceBook, s.clock.now()
	var found []*keptSource
	var bytes machine.PageBytes
	for looked := make([]*keptSource, silentLooks); len(looked) == silentLooks && !more; {
		looked = looked[:0]
		err = b.call(ctx, func() error {
			b.kept.Ascend(max(filter.Prefix, after), func(id string, k *keptSource) bool {
				if !strings.HasPrefix(id, filter.Prefix) || len(looked) == silentLooks {
					return false
				}
				if id > after && !k.deleted {
					looked = append(looked, k) //nolint:makezero // it was cut to nothing
				}
				return true
			})
			return nil
		})
		uids := make([]string, len(looked))
		for i, k := range looked {
			uids[i], after = k.uid, k.id
		}
		var statuses []dispatch.SourceStatus
		if err == nil {
			statuses, err = s.SourceStatuses(ctx, uids, false)
		}
		if err != nil {
			return nil, false, err
		}
		for i, k := range looked {
			if !k.quiet && !machine.Silent(&statuses[i], now) {
				continue
			}
			if more = len(found) >= limit || !bytes.Fits(len(k.encoded)); more {
				break
			}
			found = append(found, k)
		}
	}
	sources, err = decodeSources(found)
	return sources, more && len(sources) > 0, err
}

// list lists sources, for those that are not silent.
func (b *sourceBook) list(ctx context.Context, filter dispatch.SourceFilter, after string, limit int) (sources []*dispatch.Source, more bool, err error) {
	var kept []*keptSource
	var bytes machine.PageBytes
	visit := func(id string, k *keptSource) bool {
		switch {
		case !strings.HasPrefix(id, filter.Prefix):
			return false
		case id <= after, filter.Pending && k.applied >= k.version:
			return true
		}
		if more = len(kept) >= limit || !bytes.Fits(len(k.encoded)); !more {
			kept = append(kept, k)
		}
		return !more
	}
	begin := max(filter.Prefix, after)
	among := func(ids *btree.Set[string]) {
		ids.Ascend(begin, func(id string) bool {
			k, _ := b.kept.Get(id)
			return visit(id, k)
		})
	}
	err = b.call(ctx, func() error {
		switch {
		case filter.Held:
			among(&b.held)
		case filter.Pending:
			among(&b.pending)
		default:
			b.kept.Ascend(begin, visit)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	sources, err = decodeSources(kept)
	return sources, more && len(sources) > 0, err
}

// decodeSources gives the sources, nil where there is none. What is kept is
// replaced as a whole and never changed, so this needs no mutex.
func decodeSources(kept []*keptSource) ([]*dispatch.Source, error) {
	sources := make([]*dispatch.Source, len(kept))
	for i, k := range kept {
		if k == nil {
			continue
		}
		var err error
		if sources[i], err = k.source(); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// PushSource implements [dispatch.Sources]. A page is the number of the last
// lane that was placed.
func (s *Store) PushSource(ctx context.Context, shard int, gate dispatch.SourceGate, page string) (string, error) {
	c := machine.Push{Gate: gate}
	if page != "" {
		var err error
		if c.After, err = strconv.ParseInt(page, 10, 64); err != nil || c.After < 1 {
			return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
		}
	}
	err := s.doIn(ctx, shard, &c)
	return c.Next, err
}

// DropTasks implements [dispatch.Sources].
func (s *Store) DropTasks(ctx context.Context, shard int, uid string, limit int, why *dispatch.Gate) (int, []dispatch.TaskID, error) {
	c := machine.Drop{UID: uid, Limit: max(min(limit, bounds.MaxTransitions), 1), Why: why}
	err := s.doIn(ctx, shard, &c)
	return c.Ended, c.Leased, err
}

// SourceStatuses implements [dispatch.Sources].
func (s *Store) SourceStatuses(ctx context.Context, uids []string, histories bool) ([]dispatch.SourceStatus, error) {
	statuses := make([]dispatch.SourceStatus, len(uids))
	err := s.readAll(ctx, func(sh *machine.Shard) {
		for i, uid := range uids {
			sh.AddStatus(uid, &statuses[i], histories)
		}
	})
	return statuses, err
}

// CountEntries implements [dispatch.Sources].
func (s *Store) CountEntries(ctx context.Context, shard int, uid string, entries history.Entries) error {
	return s.doIn(ctx, shard, &machine.CountEntries{UID: uid, Entries: entries})
}
