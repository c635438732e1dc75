package storetest

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func auditCases() []testCase {
	return []testCase{
		{"Entry_IsReadBack", auditEntry},
		{"List_NewestFirstInPages", auditPages},
		{"List_OfOneIdentity", auditOfOne},
		{"List_LooksAtFew", auditLooks},
		{"List_NoSuchPage", auditNoPage},
		{"Time_NeverFalls", auditTime},
		{"Newest_AreKept", auditNewest},
		{"Restart_KeepsEntries", auditRestart},
	}
}

// audited appends an entry.
func (e *env) audited(entry dispatch.AuditEntry) {
	e.Helper()
	e.ok("append", e.Store.AppendAudit(e.ctx, entry))
}

// audit lists all entries, page by page, and how many pages there were.
func (e *env) audit(by string, limit int) (all []dispatch.AuditEntry, pages int) {
	e.Helper()
	ids := make(map[string]bool)
	for before := ""; ; {
		entries, next, err := e.Store.AuditEntries(e.ctx, by, before, limit)
		e.ok("list", err)
		if len(entries) > limit {
			e.Fatalf("a page of %d entries, want at most %d", len(entries), limit)
		}
		for _, entry := range entries {
			if entry.ID == "" || ids[entry.ID] {
				e.Fatalf("the id %q is empty or listed twice", entry.ID)
			}
			ids[entry.ID] = true
			entry.ID = ""
			all = append(all, entry)
		}
		if pages++; next == "" {
			return all, pages
		}
		before = next
	}
}

// targets are what entries are about.
func targets(entries []dispatch.AuditEntry) string {
	var out []string
	for _, entry := range entries {
		out = append(out, entry.Target)
	}
	return strings.Join(out, " ")
}

func auditEntry(e *env) {
	none, _ := e.audit("", 10)
	is(e, "entries at first", len(none), 0)
	entry := dispatch.AuditEntry{
		By: "token:ada", Said: "ada", From: "192.0.2.1", Method: "UpdateSource", Target: "news", Reason: "too \"fast\"\n\x00",
		Before: strings.Repeat("ä", bounds.MaxAuditText/2), After: "{}",
	}
	given := entry
	given.ID, given.Time = "1-1", start.Add(-time.Hour)
	e.advance(1500 * time.Microsecond)
	e.audited(given)
	e.advance(time.Hour)
	e.audited(dispatch.AuditEntry{})
	entry.Time = start.Add(time.Millisecond)
	all, _ := e.audit("", 10)
	is(e, "entries", all, []dispatch.AuditEntry{{Time: e.now()}, entry})
}

func auditPages(e *env) {
	for i := range 7 {
		e.audited(dispatch.AuditEntry{Target: strconv.Itoa(i)})
		if i%2 == 0 {
			e.advance(time.Millisecond)
		}
	}
	for _, limit := range []int{1, 2, 3, 7, 100} {
		all, _ := e.audit("", limit)
		is(e, "targets by pages of "+strconv.Itoa(limit), targets(all), "6 5 4 3 2 1 0")
	}
	page, next, err := e.Store.AuditEntries(e.ctx, "", "", 3)
	e.ok("first page", err)
	is(e, "first page", targets(page), "6 5 4")
	e.audited(dispatch.AuditEntry{Target: "later"})
	page, _, err = e.Store.AuditEntries(e.ctx, "", next, 3)
	e.ok("second page", err)
	is(e, "second page", targets(page), "3 2 1")
}

func auditOfOne(e *env) {
	for i := range 12 {
		e.audited(dispatch.AuditEntry{By: []string{"token:ada", "token:ad", "token:bob"}[i%3], Target: strconv.Itoa(i)})
	}
	for _, limit := range []int{1, 2, 4, 100} {
		all, _ := e.audit("token:ad", limit)
		is(e, "targets by pages of "+strconv.Itoa(limit), targets(all), "10 7 4 1")
	}
	all, _ := e.audit("token:a", 5)
	is(e, "of nobody", len(all), 0)
}

// auditLooks: a page reads at most so many entries, though few of them match.
func auditLooks(e *env) {
	e.audited(dispatch.AuditEntry{By: "ada", Target: "first"})
	e.appendMany(bounds.MaxLooks, "bob")
	page, next, err := e.Store.AuditEntries(e.ctx, "ada", "", 10)
	e.ok("first page", err)
	is(e, "first page", len(page), 0)
	page, next, err = e.Store.AuditEntries(e.ctx, "ada", next, 10)
	e.ok("second page", err)
	is(e, "second page", targets(page), "first")
	is(e, "the next of that", next, "")
}

// appendMany appends entries of an identity, some at once.
func (e *env) appendMany(n int, by string) {
	e.Helper()
	var all sync.WaitGroup
	const writers = 20
	for w := range writers {
		all.Go(func() {
			for i := w; i < n; i += writers {
				if err := e.Store.AppendAudit(e.ctx, dispatch.AuditEntry{By: by}); err != nil {
					e.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
}

func auditNoPage(e *env) {
	e.audited(dispatch.AuditEntry{})
	for _, before := range []string{"x", "-1", "0", "0-0", "1.5", "+", "99999999999999999999"} {
		_, _, err := e.Store.AuditEntries(e.ctx, "", before, 10)
		e.fails("page "+before, err, dispatch.ErrPageToken)
	}
}

// auditTime: when the clock is stepped back, the order and the times stay.
func auditTime(e *env) {
	e.audited(dispatch.AuditEntry{Target: "0"})
	e.advance(-time.Hour)
	e.audited(dispatch.AuditEntry{Target: "1"})
	e.advance(2 * time.Hour)
	e.audited(dispatch.AuditEntry{Target: "2"})
	all, _ := e.audit("", 2)
	is(e, "entries", all, []dispatch.AuditEntry{
		{Target: "2", Time: start.Add(time.Hour)}, {Target: "1", Time: start}, {Target: "0", Time: start},
	})
}

func auditNewest(e *env) {
	for i := range 3 {
		e.audited(dispatch.AuditEntry{By: "ada", Target: strconv.Itoa(i)})
	}
	e.appendMany(bounds.MaxAuditEntries-2, "bob")
	all, pages := e.audit("", 1000)
	is(e, "entries", len(all), bounds.MaxAuditEntries)
	if pages < 10 {
		e.Errorf("%d entries came in %d pages", len(all), pages)
	}
	all, _ = e.audit("ada", 1000)
	is(e, "the oldest ones", targets(all), "2 1")
}

func auditRestart(e *env) {
	for i := range 3 {
		e.audited(dispatch.AuditEntry{Target: strconv.Itoa(i)})
	}
	before, _ := e.audit("", 2)
	_, next, err := e.Store.AuditEntries(e.ctx, "", "", 1)
	e.ok("first page", err)
	e.restart()
	after, _ := e.audit("", 2)
	is(e, "entries after a restart", after, before)
	page, _, err := e.Store.AuditEntries(e.ctx, "", next, 1)
	e.ok("second page", err)
	is(e, "second page", targets(page), "1")
	e.audited(dispatch.AuditEntry{Target: "3"})
	after, _ = e.audit("", 2)
	is(e, "entries at the end", targets(after), "3 2 1 0")
}
