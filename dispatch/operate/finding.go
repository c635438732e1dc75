package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
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
	// Reasons count failed attempts by why: the API adds the names of the most frequent ones to Message.
	Reasons map[dispatch.FailureReason]int
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
	findPagesFail   FindingKind = "PAGES_FAIL"
	findEmpty       FindingKind = "EMPTY"
	findQuiet       FindingKind = "QUIET"
	findDead        FindingKind = "DEAD"
	findMoved       FindingKind = "MOVED"
	findGone        FindingKind = "GONE"
	findIdle        FindingKind = "IDLE"
	findUnread      FindingKind = "UNREAD"
	findDeaf        FindingKind = "DEAF"
	findFetchesFail FindingKind = "FETCHES_FAIL"
	findCertificate FindingKind = "CERTIFICATE"
	findClock       FindingKind = "CLOCK"
	findRoom        FindingKind = "ROOM"
)

// FindingKinds are all kinds, the most severe first.
func FindingKinds() []FindingKind {
	return []FindingKind{
		findDispatcher, findStore, findRoom, findClock, findCertificate, findHeld, findCollector, findFetchesFail, findStuck,
		findNoCollector, findHung, findDeaf, findHandler, findReleased, findBlocked,
		findNever, findFailing, findBackedOff, findLate, findPagesFail, findEmpty, findQuiet, findDead, findMoved, findGone, findIdle, findUnread,
	}
}

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
	// ownerlessFor is longer than it takes until another dispatcher has taken the store over.
	ownerlessFor = 5 * time.Second
	// recently is how long it is a finding that an owner could not renew its term, or write, and in which its changes are counted.
	recently = 10 * time.Minute
	// ownerChanges in that time are as many as a restart of a few dispatchers makes.
	ownerChanges = 3
	// noStandbyFor is longer than another dispatcher needs until it is the standby, unless the store is very large.
	noStandbyFor = time.Minute
	// beatOverdue is an age of a last beat at which beats are missing.
	beatOverdue = dispatch.IdleBeat + 5*time.Second
	// goneRecently is how long a collector that is gone is a finding: it may have been taken down.
	goneRecently = 10 * time.Minute
	// deafAfter is longer than a fetch waits, and a collector waits until it repeats one that failed.
	deafAfter = time.Minute
	// failedLeast failures in a row, over failingLeast at least, are all that a collector does.
	failedLeast  = 20
	failingLeast = time.Minute
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
	limit    time.Duration // how long lists are read
	watch    *findingWatch // nil: somebody asked

	mu sync.Mutex // guards the findings while lists are read

	collectors []CollectorView
	holds      []*dispatch.Hold // of operators, without those on sources
	blocked    []*dispatch.Hold // hosts that Waggle blocked after failures
	pools      []*PoolView
	leases     []*dispatch.Task
	sources    map[sourceCause]*sourceCount
	counts     SourceCounts
	took       time.Duration // of all sources, once they were seen
	next       *SourceView   // the source that is due next
	released   []*dispatch.Task
}

// Findings finds what stands still or is broken, within about [lookTime] unless the store hangs. With prefixes it looks only at
// sources whose ids begin with one of them, and at their leases. Of a list that takes longer it sees the first part, and has a
// finding of that. Its error means that nothing could be read.
func (o *Operator) Findings(ctx context.Context, prefixes []string) (*Findings, error) {
	return o.find(ctx, prefixes, lookTime, nil)
}

// find is [Operator.Findings] within a limit, for a watch unless that is nil.
func (o *Operator) find(ctx context.Context, prefixes []string, limit time.Duration, watch *findingWatch) (*Findings, error) {
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
		snapshot: at, out: &Findings{Now: at.now}, prefixes: shortest(prefixes), begun: begun, limit: limit, watch: watch,
		sources: make(map[sourceCause]*sourceCount),
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
	report := func(kind FindingKind, next, format string, args ...any) {
		l.add(Finding{Kind: kind, Next: next, Message: fmt.Sprintf(format, args...)})
	}
	if o.Draining {
		report(findDispatcher, "waggle status --server HOST:PORT", "it is about to stop: ask another one")
	}
	if o.Store.Full {
		report(findStore, "waggle stats", "%s", fullText(o.StoreKind))
	}
	if took > slowStore {
		report(findStore, "waggle stats", "slow: counts took %v", took.Truncate(100*time.Millisecond))
	}
	l.findOwner(o)
	l.findRoom(o)
	l.findClock()
	l.findCertificates()
	if o.Store.Grace > 0 {
		report(findStore, "waggle status --watch", "was away: overdue leases may be renewed for %v", o.Store.Grace.Truncate(time.Second))
	}
}

// findOwner finds what is wrong with how the store is owned.
func (l *look) findOwner(o *Overview) {
	owned := o.Store.Ownership
	if owned == nil {
		return
	}
	report := func(began time.Duration, next, format string, args ...any) {
		l.add(Finding{Kind: findStore, Since: l.now.Add(-began), Next: next, Message: fmt.Sprintf(format, args...)})
	}
	switch away, span := len(owned.Away), owned.Ownerless.Truncate(time.Second); {
	case owned.Ownerless < ownerlessFor:
	case away == 0 || away == o.Shards:
		report(owned.Ownerless, "waggle stats", "no dispatcher has owned it for %v: calls wait, then fail", span)
	default:
		first := strings.Trim(fmt.Sprint(owned.Away[:min(away, findingNames)]), "[]")
		report(owned.Ownerless, "waggle stats", "%d of %d shards have had no owner for %v: %s", away, o.Shards, span, strings.ReplaceAll(first, " ", ", "))
	}
	if span := owned.WithoutStandbyFor; span >= noStandbyFor {
		report(span, "waggle owner", "no standby for %v: a crash costs a load", span.Truncate(time.Second))
	}
	if owned.RecentChanges > ownerChanges {
		report(recently, "waggle stats", "its owner has changed %d times in %v", owned.RecentChanges, recently)
	}
	if ago := l.now.Sub(owned.SelfFenced); !owned.SelfFenced.IsZero() && ago < recently {
		report(ago, "waggle stats", "its owner renewed its term too late %v ago, %d times in all", ago.Truncate(time.Second), owned.SelfFences)
	}
	if ago := l.now.Sub(owned.RefusedAt); !owned.RefusedAt.IsZero() && ago < recently {
		report(ago, "waggle stats", "writes of its owner were refused %v ago, %d in all: another one owned it", ago.Truncate(time.Second), owned.Refused)
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
	case errors.Is(err, errCut) && (what == "sources" || l.watch != nil): // the answer has the number of sources; a watch is in no hurry
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
		if !first && time.Since(l.begun) >= l.limit {
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

// findIdle finds that nothing is due for a while.
func (l *look) findIdle(o *Overview) {
	work, scheduled := o.Store.Counts.Ready+o.Store.Counts.Leased, o.Store.Counts.Scheduled
	report := func(next, text string, names ...string) {
		l.add(Finding{Kind: findIdle, Names: names, Next: next, Message: text})
	}
	switch {
	case len(l.out.All) > 0 || work > 0 || !l.out.Whole:
	case l.out.Sources == 0:
		report("waggle source import --help", "there are no sources")
	case l.next == nil && scheduled == 0:
		report("waggle source list", "nothing is due: no source has a schedule that comes again")
	case l.next != nil && l.out.NextDue.Sub(l.now) > nothingDueFor:
		id := l.next.Source.ID
		l.add(Finding{Kind: findIdle, Names: []string{id}, Next: "waggle source trigger " + id, Worst: l.next})
	}
}
