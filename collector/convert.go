package collector

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Limits of the protocol.
const (
	maxMemo       = 4 << 10
	maxMessage    = 1 << 10
	maxDiscovered = 1000
	maxPayload    = 256 << 10
	maxMetadata   = 8 << 10
	maxFetch      = 24 * time.Hour
	maxRetryAfter = 366 * 24 * time.Hour
	maxDelay      = 24 * time.Hour
	maxQueueDelay = time.Hour
	maxNextCrawl  = 366 * 24 * time.Hour

	// maxItemBytes bounds the items of one call, so that it fits the 4 MiB that a server takes.
	maxItemBytes = 1 << 20

	// cutMark ends a message that was cut.
	cutMark = " [cut]"
)

// succeeded converts a success with its discovered items. Items beyond a report's limit are returned apart, to be submitted
// first. It fails if the memo is over its limit.
func succeeded(s Succeeded, items []*wagglev1.DiscoveredItem) (*wagglev1.Outcome, []*wagglev1.DiscoveredItem, error) {
	if len(s.Memo) > maxMemo {
		return nil, nil, fmt.Errorf("memo: %d bytes, limit %d", len(s.Memo), maxMemo)
	}
	var carried, rest []*wagglev1.DiscoveredItem
	if parts := batches(items); len(parts) > 0 {
		carried = parts[len(parts)-1]
		rest = items[:len(items)-len(carried)]
	}
	pb := &wagglev1.Succeeded{
		HttpStatus: httpStatus(s.HTTPStatus), Bytes: max(s.Bytes, 0),
		FetchDuration: duration(s.FetchDuration, maxFetch), Memo: s.Memo, Discovered: carried,
		QueueDelay: queueDelay(s.QueueDelay), NextCrawlDelay: duration(s.NextCrawlDelay, maxNextCrawl),
		Message: message(s.Message), Document: wagglev1.DocumentKind(s.Document), BrokenOff: s.BrokenOff, //nolint:gosec // few
	}
	switch s.Changed {
	case Changed:
		pb.Changed = proto.Bool(true)
	case Unchanged:
		pb.Changed = proto.Bool(false)
	case ChangeUnknown:
	}
	return &wagglev1.Outcome{Result: &wagglev1.Outcome_Succeeded{Succeeded: pb}}, rest, nil
}

func failed(f *Failed) *wagglev1.Outcome {
	pb := &wagglev1.Failed{
		Reason: f.Reason, Message: message(f.Message), HttpStatus: httpStatus(f.HTTPStatus),
		RetryAfter: duration(f.RetryAfter, maxRetryAfter), FetchDuration: duration(f.FetchDuration, maxFetch),
		QueueDelay: queueDelay(f.QueueDelay),
	}
	if pb.Reason == wagglev1.FailureReason_FAILURE_REASON_UNSPECIFIED {
		pb.Reason = ReasonOther
	}
	pb.Permanent = f.Permanent && pb.Reason < wagglev1.FailureReason_FAILURE_REASON_DNS // scope TASK only
	return &wagglev1.Outcome{Result: &wagglev1.Outcome_Failed{Failed: pb}}
}

func released(delay time.Duration) *wagglev1.Outcome {
	return &wagglev1.Outcome{Result: &wagglev1.Outcome_Released{
		Released: &wagglev1.Released{Delay: duration(delay, maxDelay)},
	}}
}

func discovered(list []Discovered) ([]*wagglev1.DiscoveredItem, error) {
	items := make([]*wagglev1.DiscoveredItem, len(list))
	for i := range list {
		var err error
		if items[i], err = discoveredItem(&list[i]); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// discoveredItem converts an item. It fails if a dispatcher would refuse the whole report because of the item. Other faults
// are left to the dispatcher, which answers INVALID.
func discoveredItem(d *Discovered) (*wagglev1.DiscoveredItem, error) {
	if len(d.Payload) > maxPayload {
		return nil, fmt.Errorf("payload of discovered %s: %d bytes, limit %d", d.URL, len(d.Payload), maxPayload)
	}
	item := &wagglev1.DiscoveredItem{
		Url: valid(d.URL), Key: valid(d.Key), Queue: valid(d.Queue), Kind: valid(d.Kind), Payload: d.Payload,
		Relation: d.Relation,
	}
	// A year that the protocol has no form for says nothing.
	if modified := timestamppb.New(d.Modified); !d.Modified.IsZero() && modified.IsValid() {
		item.ModifiedTime = modified
	}
	if d.Priority != nil {
		item.Priority = proto.Int32(int32(min(max(*d.Priority, 0), 9)))
	}
	if len(d.Metadata) > 0 {
		size := 0
		item.Metadata = make(map[string]string, len(d.Metadata))
		for key, value := range d.Metadata {
			item.Metadata[valid(key)] = valid(value)
			size += len(key) + len(value)
		}
		if size > maxMetadata {
			return nil, fmt.Errorf("metadata of discovered %s: %d bytes, limit %d", d.URL, size, maxMetadata)
		}
	}
	return item, nil
}

// batches cuts items into parts that fit one call.
func batches(items []*wagglev1.DiscoveredItem) [][]*wagglev1.DiscoveredItem {
	var parts [][]*wagglev1.DiscoveredItem
	begin, bytes := 0, 0
	for i, item := range items {
		size := proto.Size(item)
		if i > begin && (i-begin >= maxDiscovered || bytes+size > maxItemBytes) {
			parts = append(parts, items[begin:i])
			begin, bytes = i, 0
		}
		bytes += size
	}
	if begin < len(items) {
		parts = append(parts, items[begin:])
	}
	return parts
}

// httpStatus leaves out what is no status.
func httpStatus(status int) int32 {
	if status < 100 || status > 599 {
		return 0
	}
	return int32(status)
}

// duration brings d into 0 to limit; 0 is left out.
func duration(d, limit time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(min(d, limit))
}

// queueDelay brings d into 0 to an hour; a zero is kept.
func queueDelay(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(min(max(*d, 0), maxQueueDelay))
}

// message brings a text within its limit, and marks a cut.
func message(text string) string { return cut(text, maxMessage) }

// problemText is an error as a heartbeat takes it: a heartbeat with a text that dispatchers refuse renews no lease.
func problemText(err error) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, err.Error())
	return cmp.Or(cut(strings.TrimSpace(clean), maxProblem), "an error without a text")
}

// cut brings a text within a limit, and marks that.
func cut(text string, limit int) string {
	text = valid(text)
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(cutMark)], "") + cutMark // without half a letter
}

// valid replaces bytes that are not UTF-8, which no message may hold.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
