package wire

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	maxHoldName = 64
	maxEtag     = 128
	maxSample   = 20 // holds and targets that an answer names of each kind
)

// HoldSelection is the targets of a call on holds: those that it names, or a page of the sources that a filter selects.
type HoldSelection struct {
	Targets []dispatch.HoldTarget
	Filter  *SourceFilter // nil: the targets are named
	Name    string        // of the holds
	Selection
}

// holdRequest is what the calls have in common that change holds.
type holdRequest interface {
	bulkRequest
	GetTargets() []*pb.HoldTarget
	GetName() string
}

// SetHolds reads a SetHoldsRequest.
func SetHolds(req *pb.SetHoldsRequest, now time.Time) (*HoldSelection, operate.HoldOrder, error) {
	var c checks
	s := c.holds(req)
	if s.Name == dispatch.HoldWaggle {
		c.fail("name", s.Name, "must be another name: this one is for the blocks that Waggle sets itself")
	}
	order := operate.HoldOrder{
		Name: s.Name, By: s.Note.By, Reason: s.Note.Reason, Until: c.until("until", req.GetUntil(), now),
		Replace: req.GetReplace(), Etag: c.text("etag", req.GetEtag(), maxEtag), DryRun: s.ValidateOnly,
	}
	if c.enum("effect", req.GetEffect()); req.GetEffect() == pb.HoldEffect_HOLD_EFFECT_END_LEASES {
		order.Effect = dispatch.EndLeases
	}
	switch {
	case order.Etag != "" && order.Replace:
		c.fail("etag", order.Etag, "must be empty if replace is set")
	case order.Etag != "" && len(req.GetTargets()) != 1:
		c.fail("etag", order.Etag, "must be empty unless there is exactly one target; there are %d", len(req.GetTargets()))
	}
	err := s.open(&c, req)
	return s, order, err
}

// LiftHolds reads a LiftHoldsRequest.
func LiftHolds(req *pb.LiftHoldsRequest) (*HoldSelection, error) {
	var c checks
	s := c.holds(req)
	err := s.open(&c, req)
	return s, err
}

func (c *checks) holds(req holdRequest) *HoldSelection {
	s := &HoldSelection{
		Selection: c.selection("targets", len(req.GetTargets()), req),
		Targets:   list(c, "targets", req.GetTargets(), 0, MaxBatch, c.holdTarget), Name: cmp.Or(req.GetName(), dispatch.HoldDefault),
	}
	c.name("name", s.Name, maxHoldName, isIDRune, "must be of a-z, 0-9, '.', '_' and '-'")
	first := make(map[string]int, len(s.Targets))
	for i := range s.Targets {
		key := s.Targets[i].Key()
		if same, twice := first[key]; twice {
			c.fail(fmt.Sprintf("targets[%d]", i), &s.Targets[i], "is the same as targets[%d]; each target must be named once", same)
			continue
		}
		first[key] = i
	}
	if f := req.GetFilter(); f != nil {
		s.Filter = new(c.bulkSources(f))
	}
	return s
}

// holdTarget reads what a hold is on.
func (c *checks) holdTarget(_ string, t *pb.HoldTarget) dispatch.HoldTarget {
	out := dispatch.HoldTarget{
		Everything: t.GetEverything(),
		Pool:       optional(c.id, "pool", t.GetPool()),
		Source:     optional(c.id, "source_id", t.GetSourceId()),
		Queue:      optional(c.heldQueue, "queue", t.GetQueue()),
		Collector:  optional(c.id, "collector_id", t.GetCollectorId()),
		Labels:     c.labels("collector_labels", t.GetCollectorLabels(), bounds.MaxHoldLabels),
	}
	if set := slices.Collect(fieldsSet(t.ProtoReflect())); len(set) != 1 {
		c.fail("", strings.Join(set, ", "), "must have exactly one field set of everything, pool, source_id, queue, collector_id and collector_labels; it has %d", len(set))
	}
	return out
}

// heldQueue reads the name of a queue, or "*." and a suffix.
func (c *checks) heldQueue(field, value string) string {
	if value == "*" {
		c.fail(field, value, "must be a name, or \"*.\" and a suffix; to hold all queues, set everything")
	}
	return c.pattern(field, value)
}

// ListHolds reads the filter of a ListHoldsRequest.
func ListHolds(req *pb.ListHoldsRequest) (operate.HoldQuery, error) {
	var c checks
	c.conditions(req)
	f := req.GetFilter()
	q := operate.HoldQuery{
		SourceID:     optional(c.id, "filter.source_id", f.GetSourceId()),
		SourcePrefix: optional(c.id, "filter.source_id_prefix", f.GetSourceIdPrefix()),
		Pool:         optional(c.id, "filter.pool", f.GetPool()),
		Queue:        optional(c.queue, "filter.queue", f.GetQueue()),
		QueueSuffix:  c.suffix("filter.queue_suffix", f.GetQueueSuffix()),
		Collector:    optional(c.id, "filter.collector_id", f.GetCollectorId()),
		Blocks:       req.GetBlocks(),
	}
	return q, c.err()
}

// SetHoldsResponse converts what SetHolds did or would do.
func (s *HoldSelection) SetHoldsResponse(r *operate.HoldChanges, next string) *pb.SetHoldsResponse {
	return &pb.SetHoldsResponse{
		Matched: int32(len(s.Targets)), Changed: int32(len(r.Changed)), NextPageToken: s.NextPageToken(next),
		Holds: sampled(r.Changed), Replaced: sampled(r.Replaced), EndedLeases: r.Ended,
		Unknown: each(r.Unknown[:min(len(r.Unknown), maxSample)], toHoldTarget),
	}
}

// LiftHoldsResponse converts what LiftHolds did or would do.
func (s *HoldSelection) LiftHoldsResponse(r *operate.HoldChanges, next string) *pb.LiftHoldsResponse {
	return &pb.LiftHoldsResponse{
		Matched: int32(len(s.Targets)), Changed: int32(len(r.Changed)), NextPageToken: s.NextPageToken(next),
		Lifted: sampled(r.Changed), Remaining: sampled(r.Remaining),
	}
}

func sampled(holds []dispatch.Hold) []*pb.Hold { return toHolds(holds[:min(len(holds), maxSample)]) }

func toHolds(holds []dispatch.Hold) []*pb.Hold { return each(holds, Hold) }

// standing converts the holds that have not ended.
func standing(holds []dispatch.Hold, now time.Time) (out []*pb.Hold) {
	for i := range holds {
		if !holds[i].Over(now) {
			out = append(out, toHold(&holds[i]))
		}
	}
	return out
}

// Hold converts a hold.
func Hold(h dispatch.Hold) *pb.Hold { return toHold(&h) }

func toHold(h *dispatch.Hold) *pb.Hold {
	out := &pb.Hold{
		Target: toHoldTarget(h.Target), Name: h.Name, Effect: pb.HoldEffect(h.Effect) + pb.HoldEffect_HOLD_EFFECT_STOP_GRANTS,
		By: h.By, Reason: h.Reason, CreateTime: toTime(h.Created), Until: toTime(h.Until),
	}
	if h.Name != dispatch.HoldWaggle {
		out.Etag = operate.HoldEtag(h)
	}
	return out
}

func toHoldTarget(t dispatch.HoldTarget) *pb.HoldTarget {
	return &pb.HoldTarget{
		Everything: t.Everything, Pool: t.Pool, SourceId: t.Source, Queue: t.Queue, CollectorId: t.Collector, CollectorLabels: t.Labels,
	}
}

// StaleHold is [dispatch.ErrEtagMismatch] with the etag of the hold that stands, if there is one.
func StaleHold(target *dispatch.HoldTarget, name string, stands []dispatch.Hold) error {
	pairs := []string{"target", target.String(), "name", name}
	if len(stands) > 0 {
		pairs = append(pairs, "etag", operate.HoldEtag(&stands[0]))
	}
	return About(dispatch.ErrEtagMismatch, pairs...)
}

// AboutHold adds to a [dispatch.ErrHoldExists] the hold that stands.
func AboutHold(err error) error {
	exists, ok := errors.AsType[*operate.HoldExistsError](err)
	if !ok {
		return err
	}
	h := &exists.Hold
	pairs := []string{"target", h.Target.String(), "name", h.Name, "by", h.By, "since", h.Created.UTC().Format(time.RFC3339)}
	if !h.Until.IsZero() {
		pairs = append(pairs, "until", h.Until.UTC().Format(time.RFC3339))
	}
	if h.Reason != "" {
		pairs = append(pairs, "reason", h.Reason)
	}
	return About(err, pairs...)
}
