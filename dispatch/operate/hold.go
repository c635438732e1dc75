package operate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

// HoldOrder is what SetHolds sets on each target.
type HoldOrder struct {
	Name       string
	Effect     dispatch.HoldEffect
	By, Reason string
	Until      time.Time // zero: until it is lifted
	// Replace holds of the name that differ.
	Replace bool
	// Etag of the one to replace ([HoldEtag]); empty: none.
	Etag string
	// DryRun answers what would be done, and changes nothing.
	DryRun bool
}

// HoldChanges is what SetHolds or LiftHolds did, or would do.
type HoldChanges struct {
	// Changed were set or lifted, in the order of the targets.
	Changed []dispatch.Hold
	// Replaced are as they were before SetHolds.
	Replaced []dispatch.Hold
	// Remaining are what stops the targets after LiftHolds all the same.
	Remaining []dispatch.Hold
	// Unknown are targets of SetHolds of which nothing is known. It is looked for only where
	// few are named.
	Unknown []dispatch.HoldTarget
	// Ended is how many leases were asked to end.
	Ended int64
}

// unknownLooked is of how many targets at most SetHolds finds out whether they are known.
const unknownLooked = 20

// HoldExistsError is a [dispatch.ErrHoldExists].
type HoldExistsError struct {
	// Hold is the one that stands.
	Hold dispatch.Hold
}

// Error names the hold, and who set it when.
func (e *HoldExistsError) Error() string {
	h := &e.Hold
	return fmt.Sprintf("%v: %q on %s by %q since %s", dispatch.ErrHoldExists, h.Name, &h.Target, h.By, h.Created.UTC().Format(time.RFC3339))
}

// Unwrap is [dispatch.ErrHoldExists].
func (*HoldExistsError) Unwrap() error { return dispatch.ErrHoldExists }

// HoldEtag changes whenever a hold is replaced.
func HoldEtag(h *dispatch.Hold) string {
	encoded, err := json.Marshal(h)
	if err != nil { // a hold has nothing that cannot be encoded
		return ""
	}
	return fmt.Sprintf("%.8x", sha256.Sum256(encoded))
}

// SetHolds sets a hold on each target. When it returns, no dispatcher grants against any of
// them. Either all may be set, or none is: [HoldExistsError] where one of the name stands that
// differs and is not to be replaced, [dispatch.ErrEtagMismatch], and ErrInvalid
// for what is no target, or beyond [bounds.MaxHolds] and [bounds.MaxSourceHolds]. After any other
// error some are set; repeated, it sets the rest.
func (o *Operator) SetHolds(ctx context.Context, targets []dispatch.HoldTarget, order HoldOrder) (HoldChanges, error) {
	var did HoldChanges
	now, err := o.Now(ctx)
	if err != nil {
		return did, err
	}
	if !order.Until.IsZero() && !order.Until.After(now) {
		return did, dispatch.Invalid("until", order.Until.Format(time.RFC3339Nano), "must be in the future")
	}
	holds := make([]dispatch.Hold, len(targets))
	for i, target := range targets {
		if err := target.Validate(); err != nil {
			return did, err
		}
		holds[i] = dispatch.Hold{
			Target: target, Name: order.Name, Effect: order.Effect, By: order.By, Reason: order.Reason,
			Created: now.Truncate(time.Millisecond), Until: order.Until,
		}
	}
	if err := o.rehearseHolds(ctx, targets, holds, &order, now, &did); err != nil {
		return did, err
	}
	if !order.DryRun {
		if err := o.setHolds(ctx, targets, holds, &order, now); err != nil {
			return did, err
		}
	}
	if order.Effect == dispatch.EndLeases {
		line := &dispatch.Attempt{Ended: now, Result: dispatch.ResultHeld, Note: dispatch.Note{By: order.By, Reason: order.Reason}}
		if did.Ended, err = o.endHeldLeases(ctx, targets, line, order.DryRun); err != nil {
			return did, err
		}
	}
	if len(targets) <= unknownLooked {
		// The holds stand: what cannot be found out is left out.
		if did.Unknown, err = o.unknownTargets(ctx, targets); err != nil {
			o.log.Warn("cannot find out whether the targets of holds are known", zap.Error(err))
		}
	}
	return did, nil
}

// setHolds sets those that are not on sources in one step, then the others.
func (o *Operator) setHolds(
	ctx context.Context, targets []dispatch.HoldTarget, holds []dispatch.Hold, order *HoldOrder, now time.Time,
) error {
	set := func(book []dispatch.Hold) (change dispatch.HoldChange, err error) {
		for i := range holds {
			if holds[i].Target.Source != "" {
				continue
			}
			kept, err := order.over(holdOf(book, holds[i].Key()), &holds[i], now)
			if err != nil {
				return change, err
			}
			change.Set = append(change.Set, *kept)
		}
		return change, nil
	}
	if !onSourcesAlone(targets) {
		if err := o.changeBook(ctx, set); err != nil {
			return err
		}
	}
	return eachSource(ctx, targets, func(ctx context.Context, i int, id string) error {
		return o.changeSourceHolds(ctx, id, true, func(on []dispatch.Hold) ([]dispatch.Hold, error) {
			kept, err := order.over(holdOf(on, holds[i].Key()), &holds[i], now)
			if err != nil {
				return nil, err
			}
			with := withHold(on, *kept, now)
			if len(with) > bounds.MaxSourceHolds {
				return nil, tooManyOn(id, holds[i].Name)
			}
			return with, nil
		})
	})
}

// tooManyOn is the error of a hold beyond the limit of a source.
func tooManyOn(id, name string) error {
	return dispatch.Invalid("name", name, fmt.Sprintf("would be one more than the limit of %d holds on source %q", bounds.MaxSourceHolds, id))
}

// eachSource does something for the targets that are sources, several at a time.
func eachSource(ctx context.Context, targets []dispatch.HoldTarget, do func(ctx context.Context, i int, id string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(syncAtOnce)
	for i := range targets {
		if id := targets[i].Source; id != "" {
			group.Go(func() error { return do(ctx, i, id) })
		}
	}
	return group.Wait()
}

// over is the hold to keep where old stands, nil for none: hold, or old if it is the same.
func (order *HoldOrder) over(old, hold *dispatch.Hold, now time.Time) (kept *dispatch.Hold, err error) {
	if old != nil && old.Over(now) {
		old = nil
	}
	switch {
	case old != nil && holdbook.Same(old, hold):
		return old, nil
	case order.Etag != "" && (old == nil || HoldEtag(old) != order.Etag):
		return nil, fmt.Errorf("the hold %q on %s: %w", hold.Name, &hold.Target, dispatch.ErrEtagMismatch)
	case old != nil && !order.Replace && order.Etag == "":
		return nil, &HoldExistsError{Hold: *old}
	}
	return hold, nil
}

// rehearseHolds finds out what setting the holds would do, and whether all can be set.
func (o *Operator) rehearseHolds(
	ctx context.Context, targets []dispatch.HoldTarget, holds []dispatch.Hold, order *HoldOrder, now time.Time, did *HoldChanges,
) error {
	book, _, _, err := o.store.Holds(ctx, -1)
	if err != nil {
		return fmt.Errorf("read holds: %w", err)
	}
	sources, err := o.heldSources(ctx, targets)
	if err != nil {
		return err
	}
	standing := len(withoutHold(book, "", now))
	for i := range holds {
		hold, id := &holds[i], targets[i].Source
		among := book
		if id != "" {
			among = sources[id]
		}
		old := holdOf(among, hold.Key())
		kept, err := order.over(old, hold, now)
		switch {
		case err != nil:
			return err
		case kept == old:
			continue
		case old != nil && !old.Over(now):
			did.Replaced = append(did.Replaced, *old)
		case id == "":
			standing++
		case len(withHold(among, *hold, now)) > bounds.MaxSourceHolds:
			return tooManyOn(id, hold.Name)
		}
		did.Changed = append(did.Changed, *hold)
	}
	if standing > bounds.MaxHolds {
		return dispatch.Invalid("targets", len(holds), fmt.Sprintf("would make %d holds that are not on sources; the limit is %d", standing, bounds.MaxHolds))
	}
	return nil
}

// heldSources reads the holds on the sources among targets.
func (o *Operator) heldSources(ctx context.Context, targets []dispatch.HoldTarget) (map[string][]dispatch.Hold, error) {
	var ids []string
	for i := range targets {
		if id := targets[i].Source; id != "" {
			ids = append(ids, id)
		}
	}
	found, err := o.store.SourcesByID(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read sources: %w", err)
	}
	on := make(map[string][]dispatch.Hold, len(ids))
	for i, source := range found {
		if source != nil {
			on[ids[i]] = source.Holds
		}
	}
	return on, nil
}

// holdOf finds the hold with a key.
func holdOf(holds []dispatch.Hold, key string) *dispatch.Hold {
	for i := range holds {
		if holds[i].Key() == key {
			return &holds[i]
		}
	}
	return nil
}

// withHold is the holds with one more, or another in its place, without those that are over.
func withHold(holds []dispatch.Hold, hold dispatch.Hold, now time.Time) []dispatch.Hold {
	kept := withoutHold(holds, hold.Key(), now)
	kept = append(kept, hold)
	slices.SortFunc(kept, func(a, b dispatch.Hold) int { return strings.Compare(a.Key(), b.Key()) })
	return kept
}

// withoutHold is the holds without one, and without those that are over.
func withoutHold(holds []dispatch.Hold, key string, now time.Time) []dispatch.Hold {
	var kept []dispatch.Hold
	for i := range holds {
		if !holds[i].Over(now) && holds[i].Key() != key {
			kept = append(kept, holds[i])
		}
	}
	return kept
}

// changeBook changes the holds that are not on sources, by what change makes of those that are
// kept, those that are over among them. It returns when no dispatcher grants against them, and
// queues that they no longer stop are open. A change of nothing finishes one that was
// interrupted: shards may not know of that yet.
func (o *Operator) changeBook(ctx context.Context, change func([]dispatch.Hold) (dispatch.HoldChange, error)) error {
	opens := false
	for range changeTries {
		book, version, now, err := o.store.Holds(ctx, -1)
		if err != nil {
			return fmt.Errorf("read holds: %w", err)
		}
		c, err := change(book)
		if err != nil {
			return err
		}
		opens = completeChange(&c, book, now) || len(c.Set)+len(c.Lift) == 0 || opens
		_, err = o.store.PutHolds(ctx, c, version)
		if errors.Is(err, dispatch.ErrEtagMismatch) {
			continue
		}
		if err != nil {
			return fmt.Errorf("change holds: %w", err)
		}
		if opens {
			if err := o.syncRules(ctx); err != nil {
				return err
			}
		}
		return o.d.RefreshHolds(ctx)
	}
	return fmt.Errorf("the holds were changed %d times in between: %w", changeTries, dispatch.ErrEtagMismatch)
}

// onSourcesAlone reports whether the book of holds has nothing to do with the targets.
func onSourcesAlone(targets []dispatch.HoldTarget) bool {
	return !slices.ContainsFunc(targets, func(t dispatch.HoldTarget) bool { return t.Source == "" })
}

// completeChange adds to a change of a book the end of holds that are over, and until when
// queues are held after it. It reports whether a queue is held for shorter than before.
func completeChange(c *dispatch.HoldChange, book []dispatch.Hold, now time.Time) (opens bool) {
	after := make(map[string]dispatch.Hold, len(book)+len(c.Set))
	before := make(map[string]time.Time)
	for _, h := range book {
		if h.Over(now) {
			c.Lift = append(c.Lift, h.Key())
		}
		after[h.Key()] = h
		before[h.Target.Queue] = latest(before[h.Target.Queue], h.End())
	}
	c.Queues = make(map[string]time.Time)
	for _, key := range c.Lift {
		c.Queues[after[key].Target.Queue] = time.Time{}
		delete(after, key)
	}
	for _, h := range c.Set {
		c.Queues[h.Target.Queue] = time.Time{}
		after[h.Key()] = h
	}
	delete(c.Queues, "") // of holds on other targets
	c.Lift = slices.DeleteFunc(c.Lift, func(key string) bool { _, set := after[key]; return set })
	for _, h := range after {
		if end, of := c.Queues[h.Target.Queue]; of {
			c.Queues[h.Target.Queue] = latest(end, h.End())
		}
	}
	for queue, end := range c.Queues {
		opens = opens || end.Before(before[queue])
	}
	return opens
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// changeSourceHolds changes the holds on the id of a source. With
// create an id that no source has is held for the one that will.
func (o *Operator) changeSourceHolds(ctx context.Context, id string, create bool, change func([]dispatch.Hold) ([]dispatch.Hold, error)) error {
	for range changeTries {
		before, err := o.keptSource(ctx, id)
		if err != nil {
			return err
		}
		fresh := before == nil
		if fresh {
			if !create {
				return nil
			}
			before = &dispatch.Source{ID: id, UID: uuid.NewString(), Deleted: true}
		}
		after := *before
		if after.Holds, err = change(before.Holds); err != nil {
			return err
		}
		changed := !sameHolds(before.Holds, after.Holds)
		switch {
		case !changed && before.Applied < before.Version: // an earlier call was interrupted
			return o.applySource(ctx, before)
		case !changed:
			return nil
		case !fresh && before.Gone() && len(after.Holds) == 0:
			var removed bool
			if removed, err = o.store.MarkApplied(ctx, id, before.UID, before.Version, nil); err == nil && !removed {
				continue
			}
		case before.Gone():
			after.Version++
			after.Applied = after.Version
			err = o.store.PutSource(ctx, &after, before.Version)
		default:
			after.Version++
			if after.PendingSeeds, err = o.pendingSeeds(ctx, before); err == nil {
				err = o.store.PutSource(ctx, &after, before.Version)
			}
		}
		if errors.Is(err, dispatch.ErrEtagMismatch) || errors.Is(err, dispatch.ErrSourceExists) || errors.Is(err, dispatch.ErrSourceNotFound) {
			continue
		}
		switch {
		case err != nil || before.Gone():
			return err
		case before.Applied == before.Version:
			return o.applyHolds(ctx, &after)
		}
		return o.applySource(ctx, &after)
	}
	return fmt.Errorf("source %q was changed %d times in between: %w", id, changeTries, dispatch.ErrEtagMismatch)
}

func sameHolds(a, b []dispatch.Hold) bool {
	return slices.EqualFunc(a, b, func(x, y dispatch.Hold) bool { return holdbook.Same(&x, &y) && x.Created.Equal(y.Created) })
}

// LiftHolds lifts the holds of a name from the targets; what is not held is left alone. With
// [dispatch.HoldWaggle] it opens the blocks of queues that failures have caused. After an error some
// are lifted; repeated, it lifts the rest. ErrInvalid for what is no target.
func (o *Operator) LiftHolds(ctx context.Context, targets []dispatch.HoldTarget, name string, dryRun bool) (HoldChanges, error) {
	var did HoldChanges
	for i := range targets {
		if err := targets[i].Validate(); err != nil {
			return did, err
		}
	}
	now, err := o.Now(ctx)
	if err != nil {
		return did, err
	}
	if name == dispatch.HoldWaggle {
		err = o.unblock(ctx, targets, dryRun, &did)
	} else {
		err = o.liftHolds(ctx, targets, name, now, dryRun, &did)
	}
	if err != nil {
		return did, err
	}
	did.Remaining, err = o.remaining(ctx, targets, name, dryRun, now)
	return did, err
}

func (o *Operator) liftHolds(ctx context.Context, targets []dispatch.HoldTarget, name string, now time.Time, dryRun bool, did *HoldChanges) error {
	lifted := make([]*dispatch.Hold, len(targets))
	lift := func(book []dispatch.Hold) (c dispatch.HoldChange, err error) {
		for i := range targets {
			hold := dispatch.Hold{Target: targets[i], Name: name}
			if kept := holdOf(book, hold.Key()); kept != nil {
				c.Lift = append(c.Lift, hold.Key())
				if !kept.Over(now) {
					lifted[i] = kept
				}
			}
		}
		return c, nil
	}
	var err error
	switch {
	case dryRun:
		err = o.wouldLift(ctx, targets, name, now, lift, lifted)
	case !onSourcesAlone(targets):
		err = o.changeBook(ctx, lift)
	}
	if err != nil {
		return err
	}
	err = eachSource(ctx, targets, func(ctx context.Context, i int, id string) error {
		if dryRun {
			return nil
		}
		key := (&dispatch.Hold{Target: targets[i], Name: name}).Key()
		return o.changeSourceHolds(ctx, id, false, func(on []dispatch.Hold) ([]dispatch.Hold, error) {
			kept := holdOf(on, key)
			if kept != nil && !kept.Over(now) {
				lifted[i] = kept
			}
			if kept == nil {
				return on, nil
			}
			return withoutHold(on, key, now), nil
		})
	})
	for _, hold := range lifted {
		if hold != nil {
			did.Changed = append(did.Changed, *hold)
		}
	}
	return err
}

// wouldLift finds out what a lift would lift, and changes nothing.
func (o *Operator) wouldLift(
	ctx context.Context, targets []dispatch.HoldTarget, name string, now time.Time,
	lift func([]dispatch.Hold) (dispatch.HoldChange, error), lifted []*dispatch.Hold,
) error {
	book, _, _, err := o.store.Holds(ctx, -1)
	if err != nil {
		return fmt.Errorf("read holds: %w", err)
	}
	if _, err := lift(book); err != nil {
		return err
	}
	return eachSource(ctx, targets, func(ctx context.Context, i int, id string) error {
		source, err := o.keptSource(ctx, id)
		if err != nil || source == nil {
			return err
		}
		hold := dispatch.Hold{Target: targets[i], Name: name}
		if kept := holdOf(source.Holds, hold.Key()); kept != nil && !kept.Over(now) {
			lifted[i] = kept
		}
		return nil
	})
}

// unblock opens blocks of queues that failures have caused.
func (o *Operator) unblock(ctx context.Context, targets []dispatch.HoldTarget, dryRun bool, did *HoldChanges) error {
	for _, target := range targets {
		if target.Queue == "" || strings.HasPrefix(target.Queue, "*") {
			return dispatch.Invalid("targets", &target,
				fmt.Sprintf("must be single queues with the name %q: Waggle blocks nothing else", dispatch.HoldWaggle))
		}
	}
	for _, target := range targets {
		queue, err := o.queue(ctx, target.Queue)
		if err != nil {
			return err
		}
		if queue == nil {
			continue
		}
		hold := blockOf(queue)
		changed := hold != nil || queue.BlockStep > 0
		if changed && !dryRun {
			if changed, err = o.store.Unblock(ctx, target.Queue); err != nil {
				return fmt.Errorf("unblock queue %q: %w", target.Queue, err)
			}
		}
		if changed {
			if hold == nil { // it has ended; its doubling began anew
				hold = &dispatch.Hold{Target: target, Name: dispatch.HoldWaggle, By: dispatch.HoldWaggle}
			}
			did.Changed = append(did.Changed, *hold)
		}
	}
	return nil
}

// blockOf is the block that failures have caused, as a hold; nil: there is none.
func blockOf(q *dispatch.Queue) *dispatch.Hold {
	gate := gateOf(q, dispatch.GateHostBlocked)
	if gate == nil {
		return nil
	}
	hold := &dispatch.Hold{
		Target: dispatch.HoldTarget{Queue: q.Name}, Name: dispatch.HoldWaggle, By: dispatch.HoldWaggle,
		Reason: gate.Reason, Created: gate.Time, Until: gate.Until,
	}
	if gate.Cause != nil && hold.Reason == "" {
		hold.Reason = strings.ToValidUTF8(gate.Cause.Failure.Message, "")
	}
	return hold
}

// remainingListed bounds the remaining holds that LiftHolds returns.
const remainingListed = 20

// remaining are the first holds that stop the targets beside those of name.
func (o *Operator) remaining(ctx context.Context, targets []dispatch.HoldTarget, name string, dryRun bool, now time.Time) ([]dispatch.Hold, error) {
	all, version, _, err := o.store.Holds(ctx, -1)
	if err != nil {
		return nil, fmt.Errorf("read holds: %w", err)
	}
	book := holdbook.New(all, version, now)
	var found []dispatch.Hold
	seen := make(map[string]bool)
	add := func(target *dispatch.HoldTarget, holds ...*dispatch.Hold) {
		for _, h := range holds {
			lifted := dryRun && h.Name == name && h.Target.Key() == target.Key()
			if key := h.Key(); !lifted && !seen[key] && !h.Over(now) && len(found) < remainingListed {
				seen[key], found = true, append(found, *h)
			}
		}
	}
	onSources, err := o.heldSources(ctx, targets)
	if err != nil {
		return nil, err
	}
	for i := range targets {
		t := &targets[i]
		add(t, book.Everything()...)
		switch {
		case t.Pool != "":
			add(t, book.Pool(t.Pool)...)
		case t.Queue != "":
			add(t, book.Queue(t.Queue)...)
		case t.Source != "":
			for j := range onSources[t.Source] {
				add(t, &onSources[t.Source][j])
			}
		case t.Collector != "":
			holds, err := o.collectorHolds(ctx, book, t.Collector)
			if err != nil {
				return nil, err
			}
			add(t, holds...)
		}
	}
	return found, nil
}

// unknownTargets are those of which nothing is known.
func (o *Operator) unknownTargets(ctx context.Context, targets []dispatch.HoldTarget) (unknown []dispatch.HoldTarget, err error) {
	for i := range targets {
		known, err := o.knows(ctx, &targets[i])
		if err != nil {
			return nil, err
		}
		if !known {
			unknown = append(unknown, targets[i])
		}
	}
	return unknown, nil
}

// knows reports whether anything is known of a target. A pattern or labels may be of what is to come.
func (o *Operator) knows(ctx context.Context, t *dispatch.HoldTarget) (bool, error) {
	switch {
	case t.Source != "":
		source, err := o.keptSource(ctx, t.Source)
		return source != nil && !source.Gone(), err
	case t.Pool != "":
		pool, err := o.pool(ctx, t.Pool)
		if err != nil {
			return false, err
		}
		unknown, err := o.poolUnknown(ctx, &pool)
		return !unknown, err
	case t.Queue != "" && !strings.HasPrefix(t.Queue, "*"):
		queue, err := o.findQueue(ctx, t.Queue)
		return err == nil && !queue.Unknown, err
	case t.Collector != "":
		record, err := o.collector(ctx, t.Collector)
		return record != nil, err
	}
	return true, nil
}

// collectorHolds are the holds that stop a collector, by its id and its labels.
func (o *Operator) collectorHolds(ctx context.Context, book *holdbook.Book, id string) ([]*dispatch.Hold, error) {
	record, err := o.collector(ctx, id)
	if err != nil || record == nil {
		return book.Collector(id, nil), err
	}
	return book.Collector(id, record.Info.Labels), nil
}

// endHeldLeases asks the holders of the leases of targets to stop, and returns how many they
// are that were not asked before. The histories of their tasks get the line. Nothing is granted against the targets any
// more, so one look at all leases finds them.
func (o *Operator) endHeldLeases(ctx context.Context, targets []dispatch.HoldTarget, line *dispatch.Attempt, dryRun bool) (ended int64, err error) {
	book := make([]dispatch.Hold, 0, len(targets))
	sources := make(map[string]bool)
	for _, t := range targets {
		book = append(book, dispatch.Hold{Target: t})
		sources[t.Source] = t.Source != ""
	}
	held := holdbook.New(book, 0, time.Time{})
	labels, err := o.labelsOf(ctx, targets)
	if err != nil {
		return 0, err
	}
	stops := func(t *dispatch.Task) bool {
		collector := t.Lease.Token.Collector
		return sources[t.SourceID] || held.StopsPool(t.Pool) || len(held.Queue(t.Queue)) > 0 || held.StopsCollector(collector, labels[collector])
	}
	for cursor := ""; ; {
		leased, next, err := o.store.ListLeases(ctx, cursor, queuePage)
		if err != nil {
			return ended, fmt.Errorf("list leases: %w", err)
		}
		var ids []dispatch.TaskID
		for _, t := range leased {
			if t.Lease != nil && t.CancelRequested == dispatch.CancelNone && stops(t) {
				ids = append(ids, t.ID)
			}
		}
		if ended += int64(len(ids)); len(ids) > 0 && !dryRun {
			if err := o.store.RequestCancel(ctx, ids, dispatch.CancelHeld, line); err != nil {
				return ended, fmt.Errorf("end leases: %w", err)
			}
		}
		if cursor = next; cursor == "" {
			return ended, nil
		}
	}
}

// labelsOf reads the labels of collectors, by id, if a target goes by labels.
func (o *Operator) labelsOf(ctx context.Context, targets []dispatch.HoldTarget) (map[string]map[string]string, error) {
	if !slices.ContainsFunc(targets, func(t dispatch.HoldTarget) bool { return len(t.Labels) > 0 }) {
		return nil, nil
	}
	labels := make(map[string]map[string]string)
	_, err := o.eachCollector(ctx, math.MaxInt, func(c *dispatch.CollectorRecord) bool {
		labels[c.Info.ID] = c.Info.Labels
		return true
	})
	return labels, err
}
