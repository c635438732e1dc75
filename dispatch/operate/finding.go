package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// FindingKind is what a finding is about. Its text is the name in the API.
type FindingKind string

// Finding is something that stands still or is broken.
type Finding struct {
	Kind  FindingKind
	Since time.Time // when it began; zero: not known
	Count int       // how many things it is about
	// Names are their ids or names, the worst first, at most [findingNames].
	Names []string
	// Message is what is wrong, in words for people; beside Worst, what that does not have.
	Message string
	Next    string // the command that shows more, or ends it
	// Worst is the first of Names as it is known: *SourceView, *CollectorView, *dispatch.Task, *dispatch.Hold, *PoolView or
	// *QueueView; nil if Message says all.
	Worst any
	// Gates count the sources by the gate that decides.
	Gates map[dispatch.GateKind]int
	// MaxHold is the longest time that the lease of Worst may be held, if its handler is slow.
	MaxHold time.Duration
}

// findingNames bounds the names of a finding.
const findingNames = 10

// The kinds of findings. A new one needs a constant here, its place in FindingKinds, a value in the API, and what finds it.
const (
	findDispatcher  FindingKind = "DISPATCHER"
	findStore       FindingKind = "STORE"
	findHeld        FindingKind = "HELD"
	findCollector   FindingKind = "COLLECTOR"
	findStuck       FindingKind = "STUCK"
	findNoCollector FindingKind = "NO_COLLECTOR"
	findHung        FindingKind = "HUNG"
	findHandler     FindingKind = "HANDLER"
	findReleased    FindingKind = "RELEASED"
	findBlocked     FindingKind = "BLOCKED"
	findNever       FindingKind = "NEVER"
	findFailing     FindingKind = "FAILING"
	findBackedOff   FindingKind = "BACKED_OFF"
	findLate        FindingKind = "LATE"
	findDead        FindingKind = "DEAD"
	findMoved       FindingKind = "MOVED"
	findGone        FindingKind = "GONE"
	findIdle        FindingKind = "IDLE"
	findUnread      FindingKind = "UNREAD"
)

// FindingKinds are all kinds, the most severe first.
func FindingKinds() []FindingKind {
	return []FindingKind{
		findDispatcher, findStore, findHeld, findCollector, findStuck, findNoCollector, findHung, findHandler, findReleased, findBlocked,
		findNever, findFailing, findBackedOff, findLate, findDead, findMoved, findGone, findIdle, findUnread,
	}
}

// findAway is the part of MOVED that is not for good. It has another next step.
const findAway FindingKind = "MOVED away"

// Findings are all findings, the most severe first, and what was looked at.
type Findings struct {
	Now                time.Time // of the store
	All                []Finding
	Sources, SourcesOK int
	Whole              bool // all sources were looked at
	NextDue            time.Time
}

// Limits of what is looked at, and when something is a finding.
const (
	// lookTime is how long lists are read: who asks what is wrong does not wait for it.
	lookTime = 1500 * time.Millisecond
	lookPage = 500

	// slowStore is a time for counts in which something is wrong with the store.
	slowStore = 500 * time.Millisecond
	// beatOverdue is an age of a last beat at which beats are missing.
	beatOverdue = dispatch.IdleBeat + 5*time.Second
	// goneRecently is how long a collector that is gone is a finding: it may have been taken down.
	goneRecently = 10 * time.Minute
	// handlerShare of the longest hold is more than a handler takes that works.
	handlerShare = 0.5
	oldestLeases = 10 // are compared with the longest holds of their sources
	askedPools   = 5
	shownHolds   = 3 // have a finding each; more have one together
	// deadShare of the settled tasks of a source may be dead, and fewer than deadLeast, since links break.
	deadShare = 0.1
	deadLeast = 3
	// neverLeast is how long a seed is due, at least, before it is one without any success.
	neverLeast    = time.Minute
	nothingDueFor = time.Hour
)

// look is one look at everything, or at the sources that begin with some prefixes.
type look struct {
	*snapshot
	out      *Findings
	prefixes []string // nil: all
	begun    time.Time

	mu sync.Mutex // guards the findings while lists are read

	collectors []CollectorView
	holds      []*dispatch.Hold // of operators, without those on sources
	blocked    []*dispatch.Hold // hosts that Waggle blocked after failures
	pools      []*PoolView
	leases     []*dispatch.Task
	sources    map[FindingKind]*sourceCount
	next       *SourceView // the source that is due next
	released   []*dispatch.Task
}

// sourceCount is how many sources have a finding, and the worst of them.
type sourceCount struct {
	count int
	gates map[dispatch.GateKind]int
	worst []*SourceView // at most findingNames
}

// Findings finds what stands still or is broken, within about [lookTime] unless the store hangs. With prefixes it looks only at
// sources whose ids begin with one of them, and at their leases. Of a list that takes longer it sees the first part, and has a
// finding of that. Its error means that nothing could be read.
func (o *Operator) Findings(ctx context.Context, prefixes []string) (*Findings, error) {
	begun := time.Now()
	overview, err := o.Overview(ctx)
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	at, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	l := &look{
		snapshot: at, out: &Findings{Now: at.now}, prefixes: shortest(prefixes), begun: begun, sources: make(map[FindingKind]*sourceCount),
	}
	if prefixes == nil {
		l.findSystem(overview, took)
	}
	l.read(ctx)
	if prefixes == nil {
		l.findCollectors()
		l.findHolds()
		l.findBlocked(ctx)
		l.findPools(ctx)
	}
	l.findLeases()
	l.findSources(ctx)
	l.findReleased()
	l.findIdle(overview)
	order := FindingKinds()
	slices.SortStableFunc(l.out.All, func(a, b Finding) int { return slices.Index(order, a.Kind) - slices.Index(order, b.Kind) })
	return l.out, nil
}

// shortest are the prefixes that begin with no other one, so that no source is seen twice.
func shortest(prefixes []string) (out []string) {
	for _, prefix := range slices.Sorted(slices.Values(prefixes)) {
		if len(out) == 0 || !strings.HasPrefix(prefix, out[len(out)-1]) {
			out = append(out, prefix)
		}
	}
	return out
}

func (l *look) add(f Finding) {
	f.Count = max(f.Count, 1)
	f.Names = f.Names[:min(len(f.Names), findingNames)]
	l.out.All = append(l.out.All, f)
}

// findSystem finds what is wrong with the dispatcher that answers, and with the store.
func (l *look) findSystem(o *Overview, took time.Duration) {
	say := func(kind FindingKind, next, format string, args ...any) {
		l.add(Finding{Kind: kind, Next: next, Message: fmt.Sprintf(format, args...)})
	}
	if o.Draining {
		say(findDispatcher, "waggle status --server HOST:PORT", "it is about to stop: ask another one")
	}
	if o.Keeper == "" {
		say(findDispatcher, "waggle stats", "no keeper: nobody requeues expired leases")
	}
	if o.Store.Full {
		say(findStore, "waggle stats", "%s", fullText(o.StoreKind))
	}
	if took > slowStore {
		say(findStore, "waggle stats", "slow: counts took %v", took.Truncate(100*time.Millisecond))
	}
	if o.Store.Grace > 0 {
		say(findStore, "waggle status --watch", "was away: overdue leases may be renewed for %v", o.Store.Grace.Truncate(time.Second))
	}
}

// fullText is what is full, and what helps.
func fullText(kind string) string {
	const goesOn = "submits are refused, work in hand goes on."
	switch kind {
	case "redis":
		return "full: " + goesOn + " Raise maxmemory"
	case "file":
		return "the disk is full: " + goesOn + " Make room"
	default:
		return "full: " + goesOn
	}
}

// read reads the lists beside each other, each as far as it comes in the time.
func (l *look) read(ctx context.Context) {
	var lists sync.WaitGroup
	lists.Go(func() { l.list("sources", l.readSources(ctx)) })
	lists.Go(func() {
		l.list("collectors", pages(l, func(after string) ([]CollectorView, string, error) {
			found, next, _, err := l.ListCollectors(ctx, after, lookPage)
			return found, next, err
		}, func(v CollectorView) { l.collectors = append(l.collectors, v) }))
	})
	lists.Go(func() {
		l.list("leases", pages(l, func(after string) ([]*dispatch.Task, string, error) {
			found, next, _, err := l.ListLeases(ctx, nil, after, lookPage)
			return found, next, err
		}, func(t *dispatch.Task) {
			if t.Lease != nil && l.sees(t.SourceID) {
				l.leases = append(l.leases, t)
			}
		}))
	})
	if l.prefixes == nil {
		lists.Go(func() {
			l.list("holds", pages(l, func(after string) ([]dispatch.Hold, string, error) {
				return l.ListHolds(ctx, HoldQuery{Blocks: true}, after, lookPage)
			}, l.takeHold))
		})
		lists.Go(func() {
			l.list("pools", pages(l, func(after string) ([]PoolView, string, error) { return l.ListPools(ctx, after, lookPage) }, func(p PoolView) {
				l.pools = append(l.pools, &p)
			}))
		})
	}
	lists.Wait()
}

// errCut is the end of a list that there was no time for.
var errCut = errors.New("there was no time for the rest")

// list notes that a list was read, and has a finding if it was not, or not to its end.
func (l *look) list(what string, err error) {
	var text string
	switch {
	case err == nil:
		return
	case errors.Is(err, errCut) && what == "sources": // whose number the answer has
		return
	case errors.Is(err, errCut):
		text = "there are too many " + what + " to look at all of them"
	case errors.Is(err, dispatch.ErrStoreUnavailable):
		text = what + " could not be read: the store does not answer"
	default:
		text = what + " could not be read"
	}
	if !errors.Is(err, errCut) {
		l.log.Warn("findings: a list could not be read", zap.String("list", what), zap.Error(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(Finding{Kind: findUnread, Names: []string{what}, Next: "waggle stats", Message: text})
}

// pages reads the pages of a list until the time of a look is over, which is errCut.
func pages[T any](l *look, page func(after string) ([]T, string, error), take func(T)) error {
	for after, first := "", true; first || after != ""; first = false {
		if !first && time.Since(l.begun) >= lookTime {
			return errCut
		}
		found, next, err := page(after)
		if err != nil {
			return err
		}
		for _, one := range found {
			take(one)
		}
		after = next
	}
	return nil
}

// sees reports whether a source is looked at.
func (l *look) sees(source string) bool {
	return l.prefixes == nil || slices.ContainsFunc(l.prefixes, func(prefix string) bool { return strings.HasPrefix(source, prefix) })
}

// collectorFinding is what is wrong with a collector; empty: nothing is.
func (l *look) collectorFinding(v *CollectorView) (FindingKind, time.Time) {
	age := l.now.Sub(v.Seen)
	switch {
	case v.Info.Ended:
	case v.Held > 0 && age > beatOverdue:
		return findHung, v.Seen
	case v.Gone(l.now):
		if age < goneRecently {
			return findGone, v.Seen
		}
	case v.Info.Stopping || len(v.Holds) > 0:
	case v.Outcomes.Unable():
		return findCollector, v.Outcomes.Since
	}
	return "", time.Time{}
}

// findCollectors finds collectors that can do nothing, that hold leases and are not heard from, that are gone since a short
// while, and those with handlers that go on after their leases.
func (l *look) findCollectors() {
	type cause struct {
		kind   FindingKind
		reason dispatch.FailureReason // of COLLECTOR: each needs another remedy
	}
	found := make(map[cause]*Finding)
	note := func(of cause, v *CollectorView, since time.Time, next string) {
		f := found[of]
		if f == nil {
			f = &Finding{Kind: of.kind}
			found[of] = f
		}
		worse := f.Worst == nil || of.kind != findHandler && since.Before(f.Since) || of.kind == findHandler && working(v) < working(f.Worst.(*CollectorView)) //nolint:forcetypeassert // set below
		if f.Count++; worse {
			f.Worst, f.Since, f.Next = v, since, next
			f.Names = slices.Insert(f.Names, 0, v.Info.ID)
		} else {
			f.Names = append(f.Names, v.Info.ID)
		}
	}
	for i := range l.collectors {
		v := &l.collectors[i]
		only := "waggle collector list --collector " + v.Info.ID
		switch kind, since := l.collectorFinding(v); kind {
		case "":
		case findHung:
			note(cause{kind: kind}, v, since, "waggle lease list --collector "+v.Info.ID)
		case findGone:
			note(cause{kind: kind}, v, since, "waggle collector list")
		default:
			of := cause{kind: kind}
			if e := v.Outcomes.LastError; e != nil {
				of.reason = e.Reason
			}
			note(of, v, since, only)
		}
		if v.Info.StuckSlots > 0 && !v.Info.Ended && !v.Gone(l.now) {
			note(cause{kind: findHandler}, v, time.Time{}, only)
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(found), func(a, b cause) int { return cmp.Compare(a.reason, b.reason) }) {
		l.add(*found[of])
	}
}

// working is how many slots of a collector are not stuck.
func working(v *CollectorView) int { return max(v.Info.Slots-v.Info.StuckSlots, 0) }

func (l *look) takeHold(h dispatch.Hold) {
	switch {
	case h.Name == dispatch.HoldWaggle:
		l.blocked = append(l.blocked, &h)
	case h.Target.Source == "": // those on sources are seen with the sources
		l.holds = append(l.holds, &h)
	}
}

// findBlocked finds the hosts that Waggle blocked after failures. The one that is blocked longest comes first.
func (l *look) findBlocked(ctx context.Context) {
	if len(l.blocked) == 0 {
		return
	}
	slices.SortStableFunc(l.blocked, func(a, b *dispatch.Hold) int { return b.Until.Compare(a.Until) })
	f := Finding{Kind: findBlocked, Since: l.blocked[0].Created, Count: len(l.blocked), Worst: l.blocked[0]}
	for _, h := range l.blocked {
		f.Names = append(f.Names, h.Target.Queue)
	}
	f.Next = "waggle queue get " + f.Names[0]
	if queue, err := l.FindQueue(ctx, f.Names[0]); err == nil {
		f.Worst = queue
	}
	l.add(f)
}

func (l *look) findHolds() {
	holds := l.holds
	if len(holds) > shownHolds {
		f := Finding{Kind: findHeld, Next: "waggle hold list"}
		for _, h := range holds {
			if !h.Target.Everything {
				f.Count++
				f.Names = append(f.Names, holdName(h))
			}
		}
		l.add(f)
		holds = slices.DeleteFunc(holds, func(h *dispatch.Hold) bool { return !h.Target.Everything })
	}
	for _, h := range holds {
		l.add(Finding{Kind: findHeld, Since: h.Created, Names: []string{holdName(h)}, Next: "waggle hold list", Message: l.heldText(h), Worst: h})
	}
}

// heldText counts what a hold on collectors stops; empty for other holds.
func (l *look) heldText(h *dispatch.Hold) string {
	if h.Target.Collector == "" && len(h.Target.Labels) == 0 {
		return ""
	}
	held, leases := 0, int64(0)
	for i := range l.collectors {
		v := &l.collectors[i]
		if !v.Info.Ended && !v.Gone(l.now) && !v.Info.Stopping && slices.ContainsFunc(v.Holds, func(o *dispatch.Hold) bool { return o.Key() == h.Key() }) {
			held, leases = held+1, leases+v.Held
		}
	}
	return fmt.Sprintf("%d active, %s", held, counted(leases, "lease"))
}

// holdName is the target of a hold, and its name unless that is the default.
func holdName(h *dispatch.Hold) string {
	if h.Name == dispatch.HoldDefault {
		return h.Target.String()
	}
	return h.Target.String() + " " + h.Name
}

// findPools finds pools with work that no collector takes.
func (l *look) findPools(ctx context.Context) {
	taken := map[string]bool{}
	for i := range l.collectors {
		v := &l.collectors[i]
		idle := v.Info.Ended || v.Info.Stopping || v.Gone(l.now) || len(v.Holds) > 0 || v.Info.Stuck()
		if idle || len(v.Info.Sources)+len(v.Info.Queues) > 0 {
			continue
		}
		for _, pool := range v.Info.Pools {
			taken[pool] = true
		}
		taken[dispatch.DefaultPool] = taken[dispatch.DefaultPool] || len(v.Info.Pools) == 0
	}
	asked := 0
	for _, p := range l.pools {
		if taken[p.Name] || asked == askedPools {
			continue
		}
		asked++
		holds, _, err := l.poolHolds(ctx, wanted{pool: p.Name})
		if err == nil && slices.ContainsFunc(holds, func(h Held) bool { return h.Kind == dispatch.GateNoCollector }) {
			l.add(Finding{Kind: findNoCollector, Names: []string{p.Name}, Next: "waggle explain pool " + p.Name, Worst: p})
		}
	}
}

// findLeases finds leases past their deadline, and handlers that take most of the time that their source allows.
func (l *look) findLeases() {
	beats := make(map[string]time.Duration, len(l.collectors)) // the age of the last
	for i := range l.collectors {
		beats[l.collectors[i].Info.ID] = max(l.now.Sub(l.collectors[i].Seen), 0)
	}
	slices.SortStableFunc(l.leases, func(a, b *dispatch.Task) int { return a.Lease.Granted.Compare(b.Lease.Granted) })
	var overdue, slow Finding
	note := func(f *Finding, kind FindingKind, t *dispatch.Task, since time.Time) {
		f.Count++
		f.Names = append(f.Names, string(t.ID))
		if f.Worst == nil {
			f.Kind, f.Since, f.Worst, f.Next = kind, since, t, "waggle lease list --collector "+t.Lease.Token.Collector
			if beat, known := beats[t.Lease.Token.Collector]; known {
				f.Message = fmt.Sprintf("last beat %v ago", beat.Truncate(time.Second))
			}
		}
	}
	for i, t := range l.leases {
		beat, known := beats[t.Lease.Token.Collector]
		switch {
		case beat > beatOverdue: // the collector has a finding
		case t.Lease.Deadline.Before(l.now):
			note(&overdue, findHung, t, t.Lease.Deadline)
		case i < oldestLeases && known && float64(l.now.Sub(t.Lease.Granted)) > handlerShare*float64(t.Lease.MaxHold):
			if slow.MaxHold == 0 {
				slow.MaxHold = t.Lease.MaxHold
			}
			note(&slow, findHandler, t, t.Lease.Granted)
		}
	}
	for _, f := range []Finding{overdue, slow} {
		if f.Worst != nil {
			l.add(f)
		}
	}
}

// readSources looks at the sources, and counts those with findings.
func (l *look) readSources(ctx context.Context) error {
	prefixes := l.prefixes
	if prefixes == nil {
		prefixes = []string{""}
	}
	for _, prefix := range prefixes {
		if err := pages(l, func(after string) ([]*SourceView, string, error) {
			return l.ListSources(ctx, SourceQuery{Prefix: prefix, Gates: true, Moves: true}, after, lookPage)
		}, l.takeSource); err != nil {
			return err
		}
	}
	l.out.Whole = true
	return nil
}

// sourceFinding is what is wrong with a source; empty: nothing is.
func (l *look) sourceFinding(v *SourceView) FindingKind {
	switch {
	case v.Health == HealthHeld:
		return findHeld
	case v.Health == HealthStuck:
		return findStuck
	case v.never(l.now):
		return findNever
	}
	return map[SourceHealth]FindingKind{HealthBackedOff: findBackedOff, HealthFailing: findFailing, HealthLate: findLate}[v.Health]
}

// takeSource counts a source.
func (l *look) takeSource(v *SourceView) {
	l.out.Sources++
	if v.Health == HealthOK {
		l.out.SourcesOK++
	}
	if due := v.Status.NextDue; !due.IsZero() && (l.next == nil || due.Before(l.out.NextDue)) {
		l.next, l.out.NextDue = v, due
	}
	l.released = append(l.released, v.Status.Released...)
	if kind := l.sourceFinding(v); kind != "" {
		l.countSource(kind, v)
	}
	if v.dying() {
		l.countSource(findDead, v)
	}
	if slices.ContainsFunc(v.Status.Moves, func(m engine.Move) bool { return m.Lasting != "" }) {
		l.countSource(findMoved, v)
	} else if v.movedAway() {
		l.countSource(findAway, v)
	}
}

func (l *look) countSource(kind FindingKind, v *SourceView) {
	c := l.sources[kind]
	if c == nil {
		c = &sourceCount{gates: make(map[dispatch.GateKind]int)}
		l.sources[kind] = c
	}
	c.count++
	if gates := v.Status.Gates; len(gates) > 0 {
		c.gates[gates[0].Kind]++
	}
	bad := badness
	switch kind {
	case findDead:
		bad = func(v *SourceView) float64 { return float64(v.Status.Counts.Dead) }
	case findMoved: // those that go on without their links
		bad = func(v *SourceView) float64 {
			if v.movedAway() {
				return 1
			}
			return 0
		}
	default:
	}
	c.worst = append(c.worst, v)
	slices.SortStableFunc(c.worst, func(a, b *SourceView) int { return cmp.Compare(bad(b), bad(a)) })
	c.worst = c.worst[:min(len(c.worst), findingNames)]
}

// badness orders sources of one health.
func badness(v *SourceView) float64 {
	return float64(v.Status.GivenUpCycles)*1e6 + float64(v.Status.FailuresInARow)*1e3 + v.Status.Lag.Hours()
}

// dying reports whether none of the tasks of a source has succeeded, or many are dead. Seeds have a health.
func (v *SourceView) dying() bool {
	c := &v.Status.Counts
	dead := c.Dead - v.Status.DeadSeeds
	return dead > 0 && v.Status.LastSuccess.IsZero() || dead >= deadLeast && float64(dead) >= deadShare*float64(dead+c.Done)
}

// movedAway reports whether a seed redirects to where the source does not follow links.
func (v *SourceView) movedAway() bool {
	return slices.ContainsFunc(v.Status.Moves, func(m engine.Move) bool { return m.Away })
}

// never reports whether none of the tasks has succeeded, and a seed was due first longer than an interval ago.
func (v *SourceView) never(now time.Time) bool {
	return !v.first.IsZero() && now.Sub(v.first) > max(lateAfter(&v.Source, &v.Status, now), neverLeast)
}

func (l *look) findSources(ctx context.Context) {
	for _, kind := range append(FindingKinds(), findAway) {
		c := l.sources[kind]
		if c == nil {
			continue
		}
		worst := c.worst[0]
		id := worst.Source.ID
		f := Finding{Kind: kind, Count: c.count, Worst: worst, Gates: c.gates, Next: "waggle explain source " + id}
		for _, v := range c.worst {
			f.Names = append(f.Names, v.Source.ID)
		}
		// The list does not have its last error and all of its gates.
		if whole, err := l.Source(ctx, id); err == nil {
			f.Worst = whole
		}
		switch s := &worst.Status; {
		case kind == findDead:
			f.Next = "waggle task list --state dead --source " + id
		case kind == findMoved && c.count > len(f.Names):
			f.Next = "waggle source update --all --follow-moves --dry-run"
		case kind == findMoved:
			f.Next = "waggle source update " + strings.Join(f.Names, " ") + " --follow-moves"
		case kind == findAway:
			f.Kind, f.Next = findMoved, "waggle source get "+id
		case kind == findNever:
			f.Since = worst.first
		case kind == findHeld && len(worst.Source.Holds) > 0:
			f.Since = worst.Source.Holds[0].Created
		case s.Lag > 0 && kind != findFailing && kind != findBackedOff:
			f.Since = l.now.Add(-s.Lag)
		default:
			f.Since = s.LastSuccess
		}
		l.add(f)
	}
}

// findReleased finds tasks that collectors give back again and again.
func (l *look) findReleased() {
	if len(l.released) == 0 {
		return
	}
	slices.SortStableFunc(l.released, func(a, b *dispatch.Task) int { return cmp.Compare(b.Counters.Released, a.Counters.Released) })
	f := Finding{Kind: findReleased, Count: len(l.released), Worst: l.released[0], Next: "waggle task get " + string(l.released[0].ID)}
	for _, t := range l.released {
		f.Names = append(f.Names, string(t.ID))
	}
	l.add(f)
}

// findIdle finds that nothing is due for a while.
func (l *look) findIdle(o *Overview) {
	work, scheduled := o.Store.Counts.Ready+o.Store.Counts.Leased, o.Store.Counts.Scheduled
	say := func(next, text string, names ...string) {
		l.add(Finding{Kind: findIdle, Names: names, Next: next, Message: text})
	}
	switch {
	case len(l.out.All) > 0 || work > 0 || !l.out.Whole:
	case l.out.Sources == 0:
		say("waggle source import --help", "there are no sources")
	case l.next == nil && scheduled == 0:
		say("waggle source list", "nothing is due: no source has a schedule that comes again")
	case l.next != nil && l.out.NextDue.Sub(l.now) > nothingDueFor:
		id := l.next.Source.ID
		l.add(Finding{Kind: findIdle, Names: []string{id}, Next: "waggle source trigger " + id, Worst: l.next})
	}
}
