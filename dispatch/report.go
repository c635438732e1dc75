package dispatch

import (
	"net/http"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/history"
)

// Report is how work on a leased task ended. Exactly one of Succeeded, Failed and Released is set.
type Report struct {
	ID        TaskID
	Token     LeaseToken
	Succeeded *Succeeded
	Failed    *Failed
	Released  *Released
}

// Succeeded is the outcome of work that is done.
type Succeeded struct {
	HTTPStatus    int
	Bytes         int64
	FetchDuration time.Duration
	Changed       *bool
	Memo          []byte // nil: keep; empty: clear
	Discovered    []DiscoveredItem
	// QueueDelay is the delay between request starts that the host asks for, 0 to bounds.MaxQueueDelay; nil: not known.
	QueueDelay *time.Duration
	// NextCrawlDelay is how long the page declares itself fresh; 0: not known. An adaptive schedule waits so long, up
	// to its longest interval.
	NextCrawlDelay time.Duration
	Message        string // for the history; at most bounds.MaxMessageLength
	Document       history.Document
	BrokenOff      bool // the document was cut off, or is damaged
}

// visit is what the report says of the page.
func (s *Succeeded) visit() history.Visit {
	return history.Visit{
		HTTPStatus: s.HTTPStatus, Bytes: s.Bytes, Duration: s.FetchDuration, Document: s.Document, BrokenOff: s.BrokenOff,
		Unchanged: s.HTTPStatus == http.StatusNotModified || s.Changed != nil && !*s.Changed,
	}
}

// empty reports whether the document has nothing of what its kind is for: links, if the source follows those of pages.
func (s *Succeeded) empty(follows bool) bool {
	switch s.Document {
	case history.Empty:
		return true
	case history.Feed, history.Sitemap:
		return len(s.Discovered) == 0
	case history.Page:
		return len(s.Discovered) == 0 && follows
	default:
		return false
	}
}

// moved is where the task's page redirects to, and the HTTP status of that; 0: nowhere.
func (s *Succeeded) moved() (url string, status int) {
	for i := range s.Discovered {
		if found := &s.Discovered[i]; found.Relation == RelationRedirect && s.HTTPStatus > 0 {
			return found.URL, s.HTTPStatus
		}
	}
	return "", 0
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

// scope is the reason's. With RetryAfter it is the host's, except for a failure of the collector.
func (f *Failed) scope() FailureScope {
	if scope := f.Reason.Scope(); f.RetryAfter == 0 || scope == ScopeCollector {
		return scope
	}
	return ScopeHost
}

// Released is the outcome of a task that was not worked on.
type Released struct {
	Delay time.Duration
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

// FilterReason is why a discovered item is not followed. The numbers are the API's.
type FilterReason uint8

// The reasons, in the order of the checks.
const (
	FilterNone FilterReason = iota
	// FilterNoRule: the source has no follow rule.
	FilterNoRule
	FilterDepth
	FilterHost
	FilterInclude
	FilterExclude
)

// Filtered counts items that were not followed, by the reason.
type Filtered [FilterExclude + 1]int64

// Add adds other counts.
func (f *Filtered) Add(other Filtered) {
	for reason, n := range other {
		f[reason] += n
	}
}
