package collector

import (
	"slices"
	"time"

	"github.com/jellydator/ttlcache/v3"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// knownFor is how long a link is known. A page that names it later reports it again, so that a source whose follow rule
	// changed, or which revisits, goes on.
	knownFor = time.Minute

	// maxKnown is how many bytes of links are known, and of pages; those that were used least lately go first.
	maxKnown = 16 << 20

	// knownCost is what one link or page takes beside its own bytes, about.
	knownCost = 300
)

// link is a discovered item that has nothing of its own but an address, in a run of a source.
type link struct {
	source    string // its uid
	run       int64
	url, kind string
}

// knownLinks are the links that a dispatcher has taken lately. Pages of a site lead to the same pages over and over; all
// but the first report of a link would be answered by EXISTS, and cost both sides more than the rest of the report.
type knownLinks struct {
	depths *ttlcache.Cache[link, int]        // the least at which a link was taken
	pages  *ttlcache.Cache[string, struct{}] // those whose reports were taken, by task
}

func newKnownLinks() *knownLinks {
	return &knownLinks{
		depths: newKnown[link, int](func(l link) int { return len(l.url) + len(l.kind) }),
		pages:  newKnown[string, struct{}](func(id string) int { return len(id) }),
	}
}

func newKnown[K comparable, V any](bytes func(K) int) *ttlcache.Cache[K, V] {
	return ttlcache.New(ttlcache.WithTTL[K, V](knownFor), ttlcache.WithDisableTouchOnHit[K, V](),
		ttlcache.WithMaxCost(maxKnown, func(item ttlcache.CostItem[K, V]) uint64 { return uint64(bytes(item.Key) + knownCost) }))
}

// unknown are the items of a page that must be reported. A link is left out if the same source knows it in the same run,
// from a page that was no deeper. A page that comes again reports all its links: the store may have lost them at a failover
// that this collector did not notice.
func (k *knownLinks) unknown(page *Task, items []*wagglev1.DiscoveredItem) []*wagglev1.DiscoveredItem {
	if page.Attempt > 1 || k.pages.Has(page.ID) {
		return items
	}
	return slices.DeleteFunc(items, func(item *wagglev1.DiscoveredItem) bool {
		return isLink(item) && k.has(linkOf(page, item), page.Depth)
	})
}

func linkOf(page *Task, item *wagglev1.DiscoveredItem) link {
	return link{page.SourceUID, page.Run, item.GetUrl(), item.GetKind()}
}

// has reports whether a link was taken from a page that was no deeper.
func (k *knownLinks) has(l link, depth int) bool {
	least := k.depths.Get(l)
	return least != nil && least.Value() <= depth
}

// note takes up what became of a page and its items. What was LIMITED may find room next time.
func (k *knownLinks) note(page *Task, items []*wagglev1.DiscoveredItem, summary *wagglev1.DiscoverSummary) {
	results := summary.GetResults()
	if len(results) != len(items) {
		return
	}
	k.depths.DeleteExpired()
	k.pages.DeleteExpired()
	k.pages.Set(page.ID, struct{}{}, ttlcache.DefaultTTL)
	for i, item := range items {
		l := linkOf(page, item)
		if isTaken(results[i].GetCode()) && isLink(item) && !k.has(l, page.Depth) {
			k.depths.Set(l, page.Depth, ttlcache.DefaultTTL)
		}
	}
}

// forget forgets everything.
func (k *knownLinks) forget() {
	k.depths.DeleteAll()
	k.pages.DeleteAll()
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

// isLink reports whether an item has nothing of its own but an address, so that one report is enough. The dispatcher decides
// about a feed's item, or a redirect, by more than its address and depth.
func isLink(item *wagglev1.DiscoveredItem) bool {
	return item.GetUrl() != "" && item.GetKey() == "" && item.GetQueue() == "" && item.Priority == nil &&
		len(item.GetMetadata()) == 0 && len(item.GetPayload()) == 0 && item.GetModifiedTime() == nil &&
		item.GetRelation() != RelationFeedItem && item.GetRelation() != RelationRedirect
}
