package engine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
)

// ReportCode is the result of a report.
type ReportCode uint8

// The answers to a report.
const (
	ReportOK ReportCode = iota + 1
	ReportAlready
	ReportLeaseLost
	ReportNotFound
	ReportStoreFull
	// ReportUnavailable: the store did not answer; it is not known whether the report is settled. Repeat it with the
	// same lease token.
	ReportUnavailable
)

// ReportResult answers one report.
type ReportResult struct {
	ID     dispatch.TaskID
	Code   ReportCode
	State  dispatch.State
	Due    time.Time       // of a task that is due again
	Result dispatch.Result // of the report that counted
	Lost   dispatch.LostReason
	// Discovered answers the items of the report, in order.
	Discovered []DiscoverResult
	RetryAfter time.Duration // ReportStoreFull, ReportUnavailable
}

// DiscoverCode is the result of a discovered item.
type DiscoverCode uint8

// The answers to a discovered item.
const (
	DiscoverCreated DiscoverCode = iota + 1
	DiscoverExists
	DiscoverRevisit
	DiscoverFiltered
	DiscoverLimited
	DiscoverInvalid
)

// DiscoverResult answers one discovered item.
type DiscoverResult struct {
	Code    DiscoverCode
	ID      dispatch.TaskID       // with created, exists, revisit
	Message string                // why, with filtered, limited, invalid
	Filter  dispatch.FilterReason // why, with filtered, unless the source is deleted
}

// entriesOf counts what became of discovered items.
func entriesOf(items []dispatch.DiscoveredItem, results []DiscoverResult) (entries history.Entries) {
	for i := range results {
		if reason := results[i].Filter; reason != dispatch.FilterNone {
			entries.Filtered[reason]++
		}
		if items[i].Relation == dispatch.RelationRedirect {
			continue
		}
		if entries.Found++; results[i].Code == DiscoverCreated {
			entries.New++
		}
	}
	return entries
}
