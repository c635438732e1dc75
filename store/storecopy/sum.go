package storecopy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Sum is what a store has: how many of each kind, and a hash over all that does not depend on their order. What ends by
// itself soon is left out.
type Sum struct {
	Sources    int64 `json:"sources"`
	Rules      int64 `json:"rules"`
	Holds      int64 `json:"holds"`
	Tasks      int64 `json:"tasks"`
	Leased     int64 `json:"leased"` // of the tasks
	Queues     int64 `json:"queues"`
	Collectors int64 `json:"collectors"`
	Tokens     int64 `json:"tokens"`
	Hash       Hash  `json:"hash"`
}

// String is the sum in a line.
func (s Sum) String() string {
	return fmt.Sprintf("%d sources, %d rules, %d holds, %d tasks (%d leased), %d queues, %d collectors, %d client tokens, hash %s",
		s.Sources, s.Rules, s.Holds, s.Tasks, s.Leased, s.Queues, s.Collectors, s.Tokens, s.Hash)
}

// Hash is the sum of the SHA-256 of all parts, by 64 bits.
type Hash [4]uint64

// String is the hash in hexadecimal digits.
func (h Hash) String() string {
	text := make([]byte, 0, 32)
	for _, part := range h {
		text = binary.BigEndian.AppendUint64(text, part)
	}
	return hex.EncodeToString(text)
}

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// add adds a part of some kind, in JSON.
func (h *Hash) add(kind string, part any) error {
	text, err := json.Marshal(part)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(append(append([]byte(kind), 0), text...))
	for i := range h {
		h[i] += binary.BigEndian.Uint64(digest[8*i:])
	}
	return nil
}

var seed = maphash.MakeSeed() // of hashes that stand for names of queues

// summer sums a store.
type summer struct {
	Sum
	store dispatch.Store
	until time.Time
	gates map[string]dispatch.SourceGate // by uid
	used  map[uint64]struct{}            // hashes of queues that have tasks
	did   func(parts int)
}

// sum sums a store without what ends by itself until then.
func sum(ctx context.Context, store dispatch.Store, until time.Time, did func(parts int)) (Sum, error) {
	s := &summer{store: store, until: until, gates: make(map[string]dispatch.SourceGate), used: make(map[uint64]struct{}), did: did}
	for _, step := range []func(context.Context) error{s.sources, s.shared, s.parts, s.statuses} {
		if err := step(ctx); err != nil {
			return s.Sum, err
		}
	}
	return s.Sum, nil
}

// sources adds the sources as people wrote them.
func (s *summer) sources(ctx context.Context) error {
	return eachSource(ctx, s.store, func(src *dispatch.Source) error {
		s.Sources++
		return s.Hash.add("source", src)
	})
}

// statuses adds what shards know of sources, and what is counted of them.
func (s *summer) statuses(ctx context.Context) error {
	for uids := range slices.Chunk(slices.Sorted(maps.Keys(s.gates)), statusesAtOnce) {
		statuses, err := s.store.SourceStatuses(ctx, uids, true)
		if err != nil {
			return err
		}
		for i, uid := range uids {
			gate := s.gates[uid]
			if gate.Deleted {
				continue // it is forgotten some time
			}
			// The tasks are added themselves, and some are forgotten.
			statuses[i].Counts = dispatch.StateCounts{Done: statuses[i].Counts.Done}
			if err := errors.Join(s.Hash.add("gate", &gate), s.Hash.add("status "+uid, &statuses[i])); err != nil {
				return err
			}
		}
		s.did(len(uids))
	}
	return nil
}

// shared adds rules and holds.
func (s *summer) shared(ctx context.Context) error {
	rules, _, err := s.store.Rules(ctx)
	if err != nil {
		return err
	}
	s.Rules = int64(len(rules))
	for i := range rules {
		if err := s.Hash.add("rule", &rules[i]); err != nil {
			return err
		}
	}
	holds, _, _, err := s.store.Holds(ctx, -1)
	if err != nil {
		return err
	}
	s.Holds = int64(len(holds))
	for i := range holds {
		if err := s.Hash.add("hold", &holds[i]); err != nil {
			return err
		}
	}
	return nil
}

// parts adds what the store exports.
func (s *summer) parts(ctx context.Context) error {
	return s.store.Export(ctx, func(batch *dispatch.PortableBatch) error {
		s.did(parts(batch))
		for _, gate := range batch.Gates {
			if known, ok := s.gates[gate.UID]; !ok || known.Version < gate.Version {
				s.gates[gate.UID] = gate
			}
		}
		for i := range batch.Tasks {
			if err := s.task(&batch.Tasks[i]); err != nil {
				return err
			}
		}
		for i := range batch.Queues {
			if err := s.queue(&batch.Queues[i]); err != nil {
				return err
			}
		}
		for i := range batch.Collectors {
			if c := &batch.Collectors[i]; c.Seen.Add(dispatch.CollectorMemory).After(s.until) {
				s.Collectors++
				slices.Sort(c.Replaced)
				if err := s.Hash.add("collector", c); err != nil {
					return err
				}
			}
		}
		for i := range batch.Tokens {
			if err := s.tokens(&batch.Tokens[i]); err != nil {
				return err
			}
		}
		if t := batch.Totals; t != nil {
			t.RulesVersion, t.HoldsVersion = 0, 0 // they only rise
			return s.Hash.add("totals", t)
		}
		return nil
	})
}

func (s *summer) task(p *dispatch.PortableTask) error {
	t := &p.Task
	if _, known := s.gates[t.SourceUID]; !known || !p.ForgetAt.IsZero() && !p.ForgetAt.After(s.until) {
		return nil
	}
	s.Tasks++
	if t.State == dispatch.StateLeased {
		s.Leased++
	}
	if !t.State.Settled() {
		s.used[maphash.String(seed, t.Queue)] = struct{}{}
	}
	if t.State == dispatch.StateReady { // as soon as it is due
		t.State = dispatch.StateScheduled
	}
	if t.Lease == nil {
		t.CancelRequested = dispatch.CancelNone
	}
	if len(t.Cursor) == 0 {
		t.Cursor = nil
	}
	if t.State.Settled() && !t.Recurring && (t.State == dispatch.StateDone || t.Result == dispatch.ResultSucceeded) { // some stores keep it
		t.URL, t.Key, t.Kind = "", "", ""
	}
	t.Scope, t.Lock, t.SourceDeleted, t.SourceID, t.Pool = "", nil, nil, "", ""
	for i := range t.History {
		a := &t.History[i]
		a.Started, a.Ended = a.Started.UTC(), a.Ended.UTC()
		if a.Failure != nil {
			a.Failure.Time = a.Failure.Time.UTC()
		}
	}
	if t.LastError != nil {
		t.LastError.Time = t.LastError.Time.UTC()
	}
	return s.Hash.add("task", p)
}

// queue adds a queue that has tasks or a gate.
func (s *summer) queue(q *dispatch.PortableQueue) error {
	if _, used := s.used[maphash.String(seed, q.Name)]; !used && !q.Kept().After(s.until) {
		return nil
	}
	s.Queues++
	if !q.Blocked.After(s.until) { // what has ended decides nothing
		q.Blocked, q.BlockedAt, q.Cause = time.Time{}, time.Time{}, nil
	}
	q.NextGrant = time.Time{} // one that is too far ahead is cut when a store looks at the queue
	if len(q.FailedURLs) == 0 {
		q.FailedURLs = nil
	}
	return s.Hash.add("queue", q)
}

// tokens adds used client tokens, in the order of no store.
func (s *summer) tokens(tokens *dispatch.PortableTokens) error {
	ends := time.UnixMilli((tokens.Step + 2) * dispatch.TokenMemory.Milliseconds())
	if !ends.After(s.until) {
		return nil
	}
	for _, digest := range tokens.Digests {
		s.Tokens++
		if err := s.Hash.add("token", [2]uint64{uint64(tokens.Step), digest}); err != nil {
			return err
		}
	}
	return nil
}
