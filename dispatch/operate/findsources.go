package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// sourceCause is what sources are counted by.
type sourceCause struct {
	kind FindingKind
	away bool // MOVED, but not for good: it has another next step
}

// sourceCount is how many sources have a finding, and the worst of them.
type sourceCount struct {
	count int
	gates map[dispatch.GateKind]int
	worst []*SourceView // at most findingNames
}

// readSources looks at the sources, and counts those with findings.
func (l *look) readSources(ctx context.Context) error {
	if l.watch != nil {
		return l.watch.readSources(ctx, l)
	}
	if l.takeSeen() {
		return nil
	}
	prefixes, begun := l.prefixes, time.Now()
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
	if l.out.Whole = true; l.prefixes == nil {
		l.keepSeen(time.Since(begun))
	}
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
	return map[SourceHealth]FindingKind{
		HealthBackedOff: findBackedOff, HealthFailing: findFailing, HealthLate: findLate, HealthEmpty: findEmpty, HealthQuiet: findQuiet,
		HealthPagesFail: findPagesFail,
	}[v.Health]
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
	kind := l.sourceFinding(v)
	l.counts.count(v, kind)
	if kind != "" {
		l.countSource(sourceCause{kind: kind}, v)
	}
	if v.dying() {
		l.countSource(sourceCause{kind: findDead}, v)
	}
	if slices.ContainsFunc(v.Status.Moves, func(m engine.Move) bool { return m.Lasting != "" }) {
		l.countSource(sourceCause{kind: findMoved}, v)
	} else if v.movedAway() {
		l.countSource(sourceCause{kind: findMoved, away: true}, v)
	}
}

func (l *look) countSource(of sourceCause, v *SourceView) {
	c := l.sources[of]
	if c == nil {
		c = &sourceCount{gates: make(map[dispatch.GateKind]int)}
		l.sources[of] = c
	}
	c.count++
	if gates := v.Status.Gates; len(gates) > 0 {
		c.gates[gates[0].Kind]++
	}
	bad := badness
	switch of.kind {
	case findDead:
		bad = func(v *SourceView) float64 { return float64(v.Status.Counts.Dead) }
	case findQuiet:
		bad = func(v *SourceView) float64 { return l.now.Sub(quietSince(&v.Source, &v.Status)).Hours() }
	case findEmpty:
		bad = func(v *SourceView) float64 { return float64(v.Status.EmptyCycles) }
	case findPagesFail:
		bad = func(v *SourceView) float64 { return float64(v.Status.Pages.Failed) }
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

// Silence is what a source that succeeds does not give, in words for people; empty: it gives what it should.
func (v *SourceView) Silence(now time.Time) string {
	switch s := &v.Status; v.Health {
	case HealthEmpty:
		return "no entries in its last " + counted(s.EmptyCycles, "cycle")
	case HealthPagesFail:
		return fmt.Sprintf("%d of its last %d pages failed", s.Pages.Failed, s.Pages.Ended)
	case HealthQuiet:
		text := "nothing new yet"
		if !s.LastNew.IsZero() {
			text = "nothing new for " + roughly(now.Sub(s.LastNew))
		}
		if s.UsualGap > 0 {
			text += ", usually every " + roughly(s.UsualGap)
		}
		return text
	default:
		return ""
	}
}

// roughly is a span in its two largest units.
func roughly(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return d.Truncate(time.Second).String()
	}
}

// Reasons count the failed attempts of the last two days on which there was something.
func (v *SourceView) Reasons() map[dispatch.FailureReason]int {
	counts := make(map[dispatch.FailureReason]int)
	if h := v.Status.History; h != nil {
		for _, day := range h.Days[max(len(h.Days)-2, 0):] {
			for _, f := range day.Failed {
				if f.Reason != 0 { // else the lease ran out
					counts[dispatch.FailureReason(f.Reason)] += int(f.Count)
				}
			}
		}
	}
	return counts
}

func (l *look) findSources(ctx context.Context) {
	var causes []sourceCause
	for _, kind := range FindingKinds() {
		causes = append(causes, sourceCause{kind: kind}, sourceCause{kind: kind, away: true})
	}
	for _, of := range causes {
		c := l.sources[of]
		if c == nil {
			continue
		}
		worst := c.worst[0]
		id := worst.Source.ID
		f := Finding{Kind: of.kind, Count: c.count, Worst: worst, Gates: c.gates, Next: "waggle explain source " + id}
		for _, v := range c.worst {
			f.Names = append(f.Names, v.Source.ID)
		}
		// The list does not have its last error and all of its gates.
		if whole, err := l.Source(ctx, id); err == nil {
			if f.Worst = whole; of.kind == findPagesFail {
				f.Reasons = whole.Reasons()
			}
		}
		switch s, kind := &worst.Status, of.kind; {
		case kind == findDead:
			f.Next = "waggle task list --state dead --source " + id
		case of.away:
			f.Next = "waggle source get " + id
		case kind == findMoved && c.count > len(f.Names):
			f.Next = "waggle source update --all --follow-moves --dry-run"
		case kind == findMoved:
			f.Next = "waggle source update " + strings.Join(f.Names, " ") + " --follow-moves"
		case kind == findNever:
			f.Since = worst.first
		case kind == findQuiet:
			f.Since, f.Message, f.Next = quietSince(&worst.Source, s), worst.Silence(l.now), "waggle source history "+id
		case kind == findPagesFail:
			f.Message, f.Next = worst.Silence(l.now), "waggle task list --source "+id
		case kind == findEmpty:
			f.Since, f.Message, f.Next = s.LastNew, worst.Silence(l.now), "waggle source history "+id
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
