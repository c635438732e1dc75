package wire

import (
	"iter"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Conditions that several calls take.
const (
	ofSources = "source_id_prefix pool labels create_time_from create_time_before"
	ofTasks   = "source_id source_id_prefix pool labels queue queue_suffix failure_reasons create_time_from create_time_before"
)

// filterConditions has, for each request with a filter, the conditions that the call takes: fields of [pb.Filter].
// Others are refused: ignored, they would widen what is listed or changed.
var filterConditions = map[protoreflect.Name]string{
	"ListSourcesRequest":    "source_id " + ofSources,
	"ListTasksRequest":      "source_id queue states",
	"ListQueuesRequest":     "queue queue_suffix",
	"ListLeasesRequest":     "collector_id " + ofTasks,
	"ListCollectorsRequest": "collector_id pool labels",
	"ListHoldsRequest":      "source_id source_id_prefix pool queue queue_suffix collector_id",

	"SetHoldsRequest":       "source_id " + ofSources + " all",
	"LiftHoldsRequest":      "source_id " + ofSources + " all",
	"DeleteSourcesRequest":  ofSources + " all",
	"TriggerSourcesRequest": ofSources + " all",
	"CancelTasksRequest":    ofTasks + " states all",
	"RetryTasksRequest":     ofTasks + " states all",
	"RevokeLeasesRequest":   "collector_id " + ofTasks + " states all",
}

// filterRequest is what every request with a filter has.
type filterRequest interface {
	proto.Message
	GetFilter() *pb.Filter
}

// conditions checks that the call takes each condition that its filter sets.
func (c *checks) conditions(req filterRequest) {
	name := req.ProtoReflect().Descriptor().Name()
	taken := strings.Fields(filterConditions[name])
	for field := range fieldsSet(req.GetFilter().ProtoReflect()) {
		if !slices.Contains(taken, field) {
			c.fail("filter."+field, "set", "is not a condition of %s, which takes: %s", strings.TrimSuffix(string(name), "Request"), strings.Join(taken, ", "))
		}
	}
}

// fieldsSet are the names of the fields that a message sets, in the order of their numbers.
func fieldsSet(m protoreflect.Message) iter.Seq[string] {
	return func(yield func(string) bool) {
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			if m.Has(fields.Get(i)) && !yield(string(fields.Get(i).Name())) {
				return
			}
		}
	}
}

// all checks that the filter of a bulk call names a place, or sets all on purpose.
func (c *checks) all(f *pb.Filter, where bool) {
	if where == f.GetAll() {
		c.fail("filter.all", f.GetAll(), "must be true if no other condition names a place, and false if one does")
	}
}

// SourceFilter selects sources. All that is set must hold.
type SourceFilter struct {
	ID                         string
	Query                      operate.SourceQuery
	CreatedFrom, CreatedBefore time.Time
}

// Hides reports whether the filter leaves out a source that its Query selects.
func (f *SourceFilter) Hides(v *operate.SourceView) bool {
	created := v.Source.Created
	return f.ID != "" && v.Source.ID != f.ID || created.Before(f.CreatedFrom) ||
		!f.CreatedBefore.IsZero() && !created.Before(f.CreatedBefore)
}

// sourceFilter reads a filter of sources.
func (c *checks) sourceFilter(f *pb.Filter) SourceFilter {
	return SourceFilter{
		ID:            optional(c.id, "filter.source_id", f.GetSourceId()),
		Query:         c.sources(f),
		CreatedFrom:   c.time("filter.create_time_from", f.GetCreateTimeFrom()),
		CreatedBefore: c.time("filter.create_time_before", f.GetCreateTimeBefore()),
	}
}

// sources reads the conditions of a filter on sources that [operate.SourceQuery] has.
func (c *checks) sources(f *pb.Filter) operate.SourceQuery {
	return operate.SourceQuery{
		Prefix: optional(c.id, "filter.source_id_prefix", f.GetSourceIdPrefix()),
		Pool:   optional(c.id, "filter.pool", f.GetPool()),
		Labels: c.labels("filter.labels", f.GetLabels(), bounds.MaxLabels),
	}
}
