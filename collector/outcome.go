package collector

import (
	"context"
	"fmt"
	"time"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Handler works on tasks. It is called on as many goroutines at once as the collector has slots.
//
// The error says how the task ended: nil, it succeeded; a *Failed, as that says; a *Released, it is given back; any other
// error, it failed with ReasonHandler. An error returned after ctx has ended gives the task back, unless the lease is
// lost: then what was returned does not count. A panic counts as an error.
//
// A Handler must return soon after ctx has ended. One that has not 5 s later is stuck: it keeps its slot, which takes no
// other task. That is logged, counted by Stats, and shown by `waggle collector list` and `waggle status`.
type Handler interface {
	// Handle works on one task, until it is done or ctx has ended.
	Handle(ctx context.Context, t *Task) (Succeeded, error)
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, t *Task) (Succeeded, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, t *Task) (Succeeded, error) { return f(ctx, t) }

// Change says whether content differs from that of the last crawl.
type Change int

// The values of Change.
const (
	ChangeUnknown Change = iota // not known
	Changed                     // it differs
	Unchanged                   // it is the same
)

// Succeeded is what a handler hands back when a task is done. All fields may be left out.
type Succeeded struct {
	// HTTPStatus is 100 to 599; 0 means none.
	HTTPStatus int

	// Bytes fetched.
	Bytes int64

	// FetchDuration is from when the last request was written to the end of its response. The queue's delay counts from
	// there; without it, from the report.
	FetchDuration time.Duration

	// Changed says whether the content differs from the last crawl's.
	Changed Change

	// Memo is handed to each later crawl of the task as Task.Memo: an ETag, a digest. At most 4 KiB. Nil keeps what there
	// is, empty forgets it.
	Memo []byte

	// Discovered is what the page leads to; the dispatcher applies the source's follow rule. There is no limit on their
	// number here: what does not fit a report is submitted before it. A link, an item that is but a URL and a kind and neither
	// of a feed nor a redirect's, is not sent when a dispatcher took it within the last minute from a page of the same source
	// and run that was no deeper.
	Discovered []Discovered

	// QueueDelay is the delay between request starts that the host itself asks for (Crawl-delay of robots.txt), at most
	// 1 h: the queue then grants no sooner, with any number of collectors, until another report says another. Zero: the
	// host asks for nothing, or no longer. Nil: not said; the queue keeps what it knows.
	QueueDelay *time.Duration

	// NextCrawlDelay is how long the page itself says that it stays as it is: ttl of a feed, max-age of Cache-Control. At
	// most 366 days. A seed on an adaptive schedule is due no sooner, as far as its longest interval allows.
	NextCrawlDelay time.Duration

	// Message is for the task's history: what of the page could not be read. At most 1 KiB; what is longer is cut.
	Message string

	// Document is what was read, for the history of the source: a feed without items makes it EMPTY.
	Document Document

	// BrokenOff says that the document was cut off or damaged, and only its first part was read.
	BrokenOff bool
}

// Document is a kind of what a handler has read.
type Document int

// The kinds of documents.
const (
	DocumentUnknown Document = iota
	DocumentFeed
	DocumentSitemap
	DocumentPage  // or a list of links
	DocumentOther // anything that has no links
	DocumentEmpty // the body had no bytes
)

// Discovered is something a page leads to.
type Discovered struct {
	// URL is absolute, at most 2 KiB. It may be empty when Key and Queue are given.
	URL string

	// Key identifies it; empty means the canonical URL. At most 2 KiB.
	Key string

	// Queue it belongs to; empty means by the queue rules, from the URL's host. At most 253 bytes.
	Queue string

	// Kind is for the collector's own use. At most 128 bytes.
	Kind string

	// Priority within the source, 0 to 9; nil means 5.
	Priority *int

	// Metadata is laid over what is inherited from the page's task. At most 8 KiB.
	Metadata map[string]string

	// Payload is handed to whoever gets the task. At most 256 KiB.
	Payload []byte

	// Relation is how the page leads there; unset counts as RelationLink.
	Relation Relation

	// Modified is when the page last changed, by whoever lists it: lastmod of a sitemap, updated of a feed's entry. A
	// page crawled before that is due again, with its memo. A time in the future says nothing. Zero: not known.
	Modified time.Time
}

// Relation is how a page leads to an item. See the protocol manual for what each does.
type Relation = wagglev1.Relation

// The relations of a discovered item.
const (
	// RelationLink: the page links to it.
	RelationLink = wagglev1.Relation_RELATION_LINK

	// RelationFeedItem: the page is a feed, and this is one of its items. It is followed one step, on any host, unless the
	// source's follow rule names hosts.
	RelationFeedItem = wagglev1.Relation_RELATION_FEED_ITEM

	// RelationSitemap: a sitemap lists it, or robots.txt names it as a sitemap.
	RelationSitemap = wagglev1.Relation_RELATION_SITEMAP

	// RelationRedirect: the task's own page redirects there. The item takes the task's depth, not one more; it is due again
	// with the task where the chain of redirects began.
	RelationRedirect = wagglev1.Relation_RELATION_REDIRECT
)

// Reason says what went wrong; by its scope, what it costs. See the protocol manual for each.
type Reason = wagglev1.FailureReason

// Reasons of scope TASK: the task's own fault. They spend an attempt.
const (
	ReasonNotFound           = wagglev1.FailureReason_FAILURE_REASON_NOT_FOUND
	ReasonForbidden          = wagglev1.FailureReason_FAILURE_REASON_FORBIDDEN
	ReasonGone               = wagglev1.FailureReason_FAILURE_REASON_GONE
	ReasonClientError        = wagglev1.FailureReason_FAILURE_REASON_CLIENT_ERROR
	ReasonParse              = wagglev1.FailureReason_FAILURE_REASON_PARSE
	ReasonTooLarge           = wagglev1.FailureReason_FAILURE_REASON_TOO_LARGE
	ReasonRobotsDenied       = wagglev1.FailureReason_FAILURE_REASON_ROBOTS_DENIED
	ReasonUnsupportedContent = wagglev1.FailureReason_FAILURE_REASON_UNSUPPORTED_CONTENT
	ReasonRedirect           = wagglev1.FailureReason_FAILURE_REASON_REDIRECT
	ReasonBadRequest         = wagglev1.FailureReason_FAILURE_REASON_BAD_REQUEST
	ReasonHandler            = wagglev1.FailureReason_FAILURE_REASON_HANDLER
	ReasonOther              = wagglev1.FailureReason_FAILURE_REASON_OTHER
)

// Reasons of scope HOST: the site's fault. They block its queue for a while, and spend no attempt.
const (
	ReasonDNS               = wagglev1.FailureReason_FAILURE_REASON_DNS
	ReasonConnect           = wagglev1.FailureReason_FAILURE_REASON_CONNECT
	ReasonTLS               = wagglev1.FailureReason_FAILURE_REASON_TLS
	ReasonThrottled         = wagglev1.FailureReason_FAILURE_REASON_THROTTLED
	ReasonRobotsUnavailable = wagglev1.FailureReason_FAILURE_REASON_ROBOTS_UNAVAILABLE
)

// Reasons of scope URL: the site fails for this URL, and perhaps for no other. They spend no attempt, and the task goes
// behind its queue's other work. Three different URLs that fail so in a row block the queue.
const (
	ReasonTimeout        = wagglev1.FailureReason_FAILURE_REASON_TIMEOUT
	ReasonServerError    = wagglev1.FailureReason_FAILURE_REASON_SERVER_ERROR
	ReasonConnectionLost = wagglev1.FailureReason_FAILURE_REASON_CONNECTION_LOST
)

// Reasons of scope COLLECTOR: the collector's own fault. They spend nothing and slow the grants to this collector.
const (
	ReasonProxy    = wagglev1.FailureReason_FAILURE_REASON_PROXY
	ReasonDisk     = wagglev1.FailureReason_FAILURE_REASON_DISK
	ReasonBrowser  = wagglev1.FailureReason_FAILURE_REASON_BROWSER
	ReasonNetwork  = wagglev1.FailureReason_FAILURE_REASON_NETWORK
	ReasonInternal = wagglev1.FailureReason_FAILURE_REASON_INTERNAL
)

// Failed is the error a handler returns to say how a task failed.
type Failed struct {
	// Reason decides what the failure costs. Unset counts as ReasonOther.
	Reason Reason

	// Message is for people. What is over 1 KiB is cut, and the cut is marked.
	Message string

	// HTTPStatus is 100 to 599; 0 means none.
	HTTPStatus int

	// RetryAfter is what the site asked for, at most 366 days. It blocks the queue, whatever the reason, but for those of
	// scope COLLECTOR.
	RetryAfter time.Duration

	// FetchDuration is from request start to the failure; 0 means not known.
	FetchDuration time.Duration

	// Permanent says that another attempt would fail the same way. It counts with reasons of scope TASK only.
	Permanent bool

	// QueueDelay is the delay that the host asks for, as in Succeeded.
	QueueDelay *time.Duration
}

// Error describes the failure.
func (f *Failed) Error() string {
	if f.HTTPStatus != 0 {
		return fmt.Sprintf("%s (status %d): %s", f.Reason, f.HTTPStatus, f.Message)
	}
	return fmt.Sprintf("%s: %s", f.Reason, f.Message)
}

// Released is the error a handler returns to give a task back: no attempt is spent, no budget touched.
type Released struct {
	// Delay before the task is due again, 0 to 24 h.
	Delay time.Duration
}

// Error describes the release.
func (r *Released) Error() string { return fmt.Sprintf("released, due again in %s", r.Delay) }
