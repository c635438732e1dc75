package machine

import (
	"net/http"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/internal/offheap"
)

// crawls are what a shard remembers of the crawls of a source. What each page counts goes with the counts of the source; the item of its
// own, which is longer, has what seeds and the ends of days add.
type crawls struct {
	mark
	source *source
	today  history.Today
	news   news
	lately history.Lately
	early  *history.Entries // were discovered before the report that they belong to; nil: none
	packed offheap.Ref      // cycles, then days
	cycles int              // how many bytes of that are cycles
}

// The parts of crawls that go into a group by themselves.
const (
	partCycles = partState
	partDays   = partDetails
)

// news is when a source had something new.
type news struct {
	last    int64 // when there was an entry that became a task
	gap     int64 // between such instants: a mean in which an older one weighs less
	gaps    uint8 // that are in it, at most [meanGaps]
	empties uint32
	// counted: what was new since a seed was last crawled has counted as a gap, so that the pages of one pass count once.
	counted bool
}

const (
	meanGaps = 8
	// usualGaps are enough to say what is usual.
	usualGaps = 5
	// longGap bounds a gap in the mean, in usual ones: one silence does not make the next one usual.
	longGap = 8
)

// crawlsOf are the crawls of a source, to write to.
func (s *Shard) crawlsOf(src *source) *crawls {
	if src.crawls == nil {
		src.crawls = &crawls{source: src}
		s.added(src.crawls)
	}
	return src.crawls
}

// remember notes the end of a lease, if it was an attempt. The source is about to change.
func (s *Shard) remember(r *record, t *dispatch.Transition) {
	src, reason := r.lane.source, int32(0)
	switch t.Result {
	case dispatch.ResultSucceeded, dispatch.ResultExpired, dispatch.ResultMaxHold, dispatch.ResultReplaced:
	case dispatch.ResultFailed:
		reason = int32(dispatch.ReasonOther)
		if t.LastError != nil {
			reason = int32(t.LastError.Reason)
		}
	default:
		return
	}
	if src.forgotten || t.Token == (dispatch.LeaseDigest{}) {
		return
	}
	s.change(src, partState)
	c, visit := s.crawlsOf(src), t.Visit
	s.openDay(c)
	if r.recurring && t.Settled && c.early == nil {
		c.news.counted = false
	}
	s.notePage(c, r, t)
	failed := t.Result != dispatch.ResultSucceeded
	if failed {
		c.today.Fail(reason)
	} else {
		c.today.Pages++
		c.today.Bytes += visit.Bytes
		s.noteNew(c, visit.New)
	}
	if r.recurring && t.Settled {
		c.today.Cycles++
	} else if failed || !seedMoved(r, visit.Document) {
		return
	}
	if !failed && c.early != nil {
		visit.Add(*c.early)
		c.early = nil
	}
	if !failed {
		c.noteEmpty(&visit, t.Empty)
	}
	cycle := history.Cycle{Ended: ms.Time(s.now), Failed: failed, Reason: reason, Visit: visit}
	s.change(c, partCycles)
	cycles, days := s.unpack(c)
	s.repack(c, history.AddCycle(cycles, &cycle), days)
}

// notePage counts a page when it succeeds, and when its first attempt fails: retries of a few broken ones are no trouble of a source.
// Seeds, where they redirect to, redirects, and failures that are the collector's do not count.
func (s *Shard) notePage(c *crawls, r *record, t *dispatch.Transition) {
	failed, status := t.Result == dispatch.ResultFailed, t.Visit.HTTPStatus
	switch {
	case r.recurring, t.SourceFailure, !failed && t.Result != dispatch.ResultSucceeded:
	case failed && (t.Counters.Failures+t.Counters.Throttled != 1 || t.LastError != nil && t.LastError.Reason.Scope() == dispatch.ScopeCollector):
	case !failed && (status/100 == 3 && status != http.StatusNotModified || seedMoved(r, t.Visit.Document)):
	default:
		c.lately.Count(c.today.Number, failed)
	}
}

// seedMoved reports whether a record is the page that a seed redirects to, as far as the document shows that: it is one that seeds have.
func seedMoved(r *record, document history.Document) bool {
	return r.relation == dispatch.RelationRedirect && r.depth == 0 && (document == history.Feed || document == history.Sitemap)
}

// openDay ends the day that was counted, if another one has begun.
func (s *Shard) openDay(c *crawls) {
	number := history.DayOf(s.now)
	if number <= c.today.Number {
		return
	}
	if day, ok := c.today.Day(); ok {
		s.change(c, partDays)
		cycles, days := s.unpack(c)
		s.repack(c, cycles, history.AddDay(days, &day))
	}
	c.today = history.Today{Number: number}
}

// noteNew counts new entries.
func (s *Shard) noteNew(c *crawls, entries int64) {
	if entries <= 0 {
		return
	}
	c.today.New += uint32(entries) //nolint:gosec // of one report
	n := &c.news
	if since := s.now - n.last; n.last != 0 && since > 0 && !n.counted {
		if n.gaps >= usualGaps {
			since = min(since, longGap*n.gap)
		}
		n.gaps = min(n.gaps+1, meanGaps)
		n.gap += (since - n.gap) / int64(n.gaps)
	}
	n.last, n.counted = s.now, true
}

// noteEmpty counts a cycle whose document has nothing of what its kind is for. One that is unchanged is what it was.
func (c *crawls) noteEmpty(visit *history.Visit, empty bool) {
	switch n := &c.news; {
	case visit.Found > 0, !empty && !visit.Unchanged && visit.Document != history.Unknown:
		n.empties = 0
	case empty || visit.Unchanged && n.empties > 0:
		n.empties++
	}
}

// Silent reports whether a source may have gone silent, by what is known of it.
func Silent(st *dispatch.SourceStatus, now time.Time) bool {
	return st.EmptyCycles >= history.EmptyCycles || st.Pages.Fail() || st.UsualGap > 0 && now.Sub(st.LastNew) > max(history.QuietLeast, history.QuietGaps*st.UsualGap)
}

// unpack gives the packed cycles and days.
func (s *Shard) unpack(c *crawls) (cycles, days []byte) {
	all := s.histories.Append(make([]byte, 0, c.packed.Len()), c.packed)
	return all[:c.cycles:c.cycles], all[c.cycles:]
}

func (s *Shard) repack(c *crawls, cycles, days []byte) {
	c.cycles = len(cycles)
	c.packed = s.histories.Put(c.packed, append(cycles, days...))
}

// forgetCrawls removes what is remembered of a source.
func (s *Shard) forgetCrawls(src *source) {
	if c := src.crawls; c != nil {
		s.change(src, partState)
		s.removed(c)
		s.histories.Free(c.packed)
		src.crawls = nil
	}
}

// crawlsItem writes parts of what is remembered of a source.
func (s *Shard) crawlsItem(c *codec.Codec, of *crawls, which parts) {
	cycles, days := s.unpack(of)
	codec.Text(c, 1, &of.source.name)
	packedCycles, packedDays := string(cycles), string(days)
	codec.Packed(c, 2, which&partCycles != 0, &packedCycles)
	codec.Packed(c, 3, which&partDays != 0, &packedDays)
}

// readCrawls reads what is remembered of a source, which may come later.
func (l *Loading) readCrawls(c *codec.Codec) *crawls {
	var name string
	codec.Text(c, 1, &name)
	of := l.crawls(l.source(name))
	cycles, days := l.s.unpack(of)
	packedCycles, packedDays := string(cycles), string(days)
	codec.Packed(c, 2, false, &packedCycles)
	codec.Packed(c, 3, false, &packedDays)
	l.s.repack(of, []byte(packedCycles), []byte(packedDays))
	of.written = true
	return of
}

func (l *Loading) crawls(src *source) *crawls {
	if src.crawls == nil {
		src.crawls = &crawls{source: src}
	}
	return src.crawls
}

// removeCrawls takes the removal of what is remembered of a source.
func (l *Loading) removeCrawls(name string) {
	if src := l.source(name); src.crawls != nil {
		delete(l.s.unknown, src.crawls)
		l.s.histories.Free(src.crawls.packed)
		src.crawls = nil
	}
}

// The fields of the crawls of a source that go with its counts.

func todayFields(c *codec.Codec, t *history.Today) {
	codec.Int(c, 1, &t.Number)
	codec.Uint(c, 2, &t.Cycles)
	codec.Uint(c, 3, &t.Pages)
	codec.Uint(c, 4, &t.New)
	codec.Int(c, 5, &t.Bytes)
	for i := range t.Failed {
		codec.Int(c, 6+2*i, &t.Failed[i].Reason)
		codec.Uint(c, 7+2*i, &t.Failed[i].Count)
	}
}

func newsFields(c *codec.Codec, n *news) {
	codec.Int(c, 1, &n.last)
	codec.Int(c, 2, &n.gap)
	codec.Uint(c, 3, &n.gaps)
	codec.Uint(c, 4, &n.empties)
	c.Flag(5, &n.counted)
}

func latelyFields(c *codec.Codec, l *history.Lately) {
	codec.Int(c, 1, &l.Day)
	codec.Uint(c, 2, &l.Now.Ended)
	codec.Uint(c, 3, &l.Now.Failed)
	codec.Uint(c, 4, &l.Before.Ended)
	codec.Uint(c, 5, &l.Before.Failed)
}

func entriesFields(c *codec.Codec, e *history.Entries) {
	codec.Int(c, 1, &e.Found)
	codec.Int(c, 2, &e.New)
	for i := range e.Filtered {
		codec.Int(c, 3+i, &e.Filtered[i])
	}
}

// addCrawls adds what the shard knows of the crawls of a source; whole: with its history.
func (s *Shard) addCrawls(src *source, st *dispatch.SourceStatus, whole bool) {
	c := src.crawls
	if c == nil {
		return
	}
	st.LastNew = latest(st.LastNew, ms.Time(c.news.last))
	if c.news.gaps >= usualGaps {
		st.UsualGap = max(st.UsualGap, ms.Duration(c.news.gap))
	}
	st.EmptyCycles += int64(c.news.empties)
	st.Pages.Add(c.lately.Pages(history.DayOf(s.now)))
	if !whole {
		return
	}
	cycles, days := s.unpack(c)
	h := history.History{Cycles: history.Cycles(cycles), Days: history.Days(days)}
	if day, ok := c.today.Day(); ok {
		h.Days = append(h.Days, day)
	}
	if st.History == nil {
		st.History = new(history.History)
	}
	st.History.Merge(&h)
}

// importHistory sets what is remembered of the crawls of a source.
func (s *Shard) importHistory(src *source, st *dispatch.SourceStatus) {
	h := st.History
	if h == nil {
		return
	}
	s.change(src, partState)
	c := s.crawlsOf(src)
	s.change(c, partCycles|partDays)
	c.today, c.early = history.Today{}, nil
	c.news = news{last: ms.Of(st.LastNew), empties: uint32(st.EmptyCycles)} //nolint:gosec // few
	c.lately = history.Lately{Day: history.DayOf(s.now), Now: st.Pages}
	if st.UsualGap > 0 {
		c.news.gap, c.news.gaps = ms.Span(st.UsualGap), meanGaps
	}
	days := h.Days
	if n := len(days); n > 0 && c.today.Continue(&days[n-1]) {
		days = days[:n-1]
	}
	s.repack(c, history.PackCycles(h.Cycles), history.PackDays(days))
}
