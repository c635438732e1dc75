package collector

import (
	"sync"
	"time"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// knownFor is how long a link is known at least, unless there are too many; it is at most twice that. A page that
	// names the link later reports it again, so that a source whose follow rule changed, or which revisits, goes on.
	knownFor = 30 * time.Second

	// maxKnown is how many bytes of links and pages are known at least, however long ago they were reported; at most twice
	// that.
	maxKnown = 8 << 20

	// knownCost is what one link or page takes beside its own bytes, about.
	knownCost = 100
)

// pass is a run of a source: links are known by pages of the same.
type pass struct {
	source string // its uid
	run    int64
}

// link is a discovered item that has nothing of its own but an address.
type link struct {
	url, kind string
}

// linkDepths are the least depths at which links were taken.
type linkDepths map[link]int

// knownLinks are the links that a dispatcher has taken lately. Pages of a site lead to the same pages over and over; all
// but the first report of a link would be answered by EXISTS, and cost both sides more than the rest of the report.
type knownLinks struct {
	mu     sync.Mutex // guards everything below
	recent *knowledge
	older  *knowledge // recent, before it became what it is
	since  time.Time  // when recent began
}

// knowledge is what was known at some time.
type knowledge struct {
	links map[pass]linkDepths
	pages map[string]bool // those whose reports were taken, by task
	bytes int
}

func newKnowledge() *knowledge {
	return &knowledge{links: make(map[pass]linkDepths), pages: make(map[string]bool)}
}

func newKnownLinks(now time.Time) *knownLinks {
	return &knownLinks{recent: newKnowledge(), older: newKnowledge(), since: now}
}

// unknown are the items of a page that have to be reported: a link is left out when the same source knows it in the same
// run, from a page that was no deeper. A page that comes again may do so because the store lost, at a failover, that it was
// done, and the links with that: it reports them all, though this collector noticed no outage.
func (k *knownLinks) unknown(page *Task, items []Discovered, now time.Time) []Discovered {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn(now)
	if page.Attempt > 1 || k.recent.pages[page.ID] || k.older.pages[page.ID] {
		return items
	}
	recent, older := k.recent.links[page.pass()], k.older.links[page.pass()]
	var unknown []Discovered
	for i := range items {
		item := &items[i]
		address := link{item.URL, item.Kind}
		if !item.isLink() || !recent.has(address, page.Depth) && !older.has(address, page.Depth) {
			unknown = append(unknown, *item)
		}
	}
	return unknown
}

// isLink reports whether an item has nothing of its own but an address, so that to report it once is enough.
func (d *Discovered) isLink() bool {
	return d.URL != "" && d.Key == "" && d.Queue == "" && d.Priority == nil && len(d.Metadata) == 0 && len(d.Payload) == 0 &&
		isLinkOf(d.Relation) && d.Modified.IsZero()
}

func (t *Task) pass() pass { return pass{source: t.SourceUID, run: t.Run} }

// has reports whether a link was taken from a page that was no deeper.
func (d linkDepths) has(l link, depth int) bool {
	least, is := d[l]
	return is && least <= depth
}

// turn forgets what is too old or too much. It is called with mu held.
func (k *knownLinks) turn(now time.Time) {
	switch age := now.Sub(k.since); {
	case age >= 2*knownFor:
		k.older = newKnowledge()
	case age >= knownFor, k.recent.bytes >= maxKnown:
		k.older = k.recent
	default:
		return
	}
	k.recent, k.since = newKnowledge(), now
}

// note takes up what became of a page and its items. What was LIMITED may find room next time.
func (k *knownLinks) note(page *Task, items []*wagglev1.DiscoveredItem, summary *wagglev1.DiscoverSummary, now time.Time) {
	results := summary.GetResults()
	if len(results) != len(items) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn(now)
	k.recent.pages[page.ID] = true
	k.recent.bytes += len(page.ID) + knownCost
	recent, older := k.recent.links[page.pass()], k.older.links[page.pass()]
	for i, item := range items {
		l := link{item.GetUrl(), item.GetKind()}
		if !isTaken(results[i].GetCode()) || !isLink(item) || recent.has(l, page.Depth) || older.has(l, page.Depth) {
			continue
		}
		if recent == nil {
			recent = make(linkDepths)
			k.recent.links[page.pass()] = recent
		}
		recent[l] = page.Depth
		k.recent.bytes += len(l.url) + len(l.kind) + knownCost
	}
}

// forget forgets everything.
func (k *knownLinks) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recent, k.older = newKnowledge(), newKnowledge()
}

// isTaken reports whether a discovered item need not be reported again.
func isTaken(code wagglev1.DiscoverCode) bool {
	switch code {
	case wagglev1.DiscoverCode_DISCOVER_CODE_CREATED, wagglev1.DiscoverCode_DISCOVER_CODE_EXISTS,
		wagglev1.DiscoverCode_DISCOVER_CODE_REVISIT, wagglev1.DiscoverCode_DISCOVER_CODE_FILTERED:
		return true
	default:
		return false
	}
}

// isLink is isLink of an item as it travels.
func isLink(item *wagglev1.DiscoveredItem) bool {
	return item.GetUrl() != "" && item.GetKey() == "" && item.GetQueue() == "" && item.Priority == nil &&
		len(item.GetMetadata()) == 0 && len(item.GetPayload()) == 0 && isLinkOf(item.GetRelation()) && item.GetModifiedTime() == nil
}

// isLinkOf reports whether the dispatcher decides of an item of the relation by nothing but its address and depth.
func isLinkOf(relation Relation) bool {
	return relation != RelationFeedItem && relation != RelationRedirect
}
