package dispatch

import "time"

// Report says how work on a leased task ended. Exactly one of Succeeded, Failed
// and Released is set.
type Report struct {
	ID        TaskID
	Token     LeaseToken
	Succeeded *Succeeded
	Failed    *Failed
	Released  *Released
}

// Succeeded is the outcome of a task whose work is done.
type Succeeded struct {
	HTTPStatus    int
	Bytes         int64
	FetchDuration time.Duration
	Changed       *bool
	Memo          []byte // nil: keep; empty: clear
	Discovered    []DiscoveredItem
	// QueueDelay is what the host asks for between request starts, 0 to
	// MaxQueueDelay; nil: not said.
	QueueDelay *time.Duration
	// NextCrawlDelay is how long the page says that it stays as it is; 0: not
	// said. An adaptive schedule waits so long, up to its longest interval.
	NextCrawlDelay time.Duration
}

// Failed is the outcome of a task that could not be done.
type Failed struct {
	Reason        FailureReason
	Message       string
	HTTPStatus    int
	RetryAfter    time.Duration
	FetchDuration time.Duration
	Permanent     bool // ScopeTask only
	QueueDelay    *time.Duration
}

// Released is the outcome of a task that was not worked on.
type Released struct {
	Delay time.Duration
}

// ReportCode is what became of a report.
type ReportCode uint8

// The answers to a report.
const (
	ReportOK ReportCode = iota + 1
	ReportAlready
	ReportLeaseLost
	ReportNotFound
	ReportStoreFull
	// ReportUnavailable: the store did not answer; whether it is settled is not
	// known. Repeat it with the same lease token.
	ReportUnavailable
)

// ReportResult answers one report.
type ReportResult struct {
	ID     TaskID
	Code   ReportCode
	State  State
	Due    time.Time // of a task that is due again
	Result Result    // of the report that counted
	Lost   LostReason
	// Discovered answers the items of the report, in order.
	Discovered []DiscoverResult
	RetryAfter time.Duration // ReportStoreFull, ReportUnavailable
}

// DiscoveredItem is something a page leads to.
type DiscoveredItem struct {
	URL, Key, Queue, Kind string
	Priority              int
	Metadata              map[string]string
	Payload               []byte
	Relation              Relation
	// Modified is when the page last changed, by whoever lists it; zero: not
	// known.
	Modified time.Time
}

// Relation is how a page leads to a discovered item. The numbers are the API's.
type Relation uint8

// The relations. Without one an item counts as a link.
const (
	RelationNone Relation = iota
	RelationLink
	// RelationFeedItem: the page is a feed, and this is one of its items.
	RelationFeedItem
	// RelationSitemap: a sitemap lists it, or robots.txt names it as a sitemap.
	RelationSitemap
	// RelationRedirect: the page of the task itself went there.
	RelationRedirect
)

// FilterReason is why a discovered item is not followed. The numbers are the API's.
type FilterReason uint8

// The reasons, in the order in which they are looked for.
const (
	FilterNone FilterReason = iota
	// FilterNoRule: the source has no follow rule.
	FilterNoRule
	FilterDepth
	FilterHost
	FilterInclude
	FilterExclude
	// FilterQueueDenied: a queue rule denies its queue.
	FilterQueueDenied
)

// Filtered counts items that were not followed, by the reason.
type Filtered [FilterQueueDenied + 1]int64

// DiscoverCode is what became of a discovered item.
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
	ID      TaskID       // with created, exists, revisit
	Message string       // why, with filtered, limited, invalid
	Filter  FilterReason // why, with filtered, unless the source is deleted
}

// Add adds other counts.
func (f *Filtered) Add(other Filtered) {
	for reason, n := range other {
		f[reason] += n
	}
}

// FilteredOf counts the items that were not followed.
func FilteredOf(results []DiscoverResult) (filtered Filtered) {
	for i := range results {
		if reason := results[i].Filter; reason != FilterNone {
			filtered[reason]++
		}
	}
	return filtered
}
