package wire

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// GetQueue checks a GetQueueRequest.
func GetQueue(req *pb.GetQueueRequest) error {
	var c checks
	c.queue("name", req.GetName())
	return c.err()
}

// FromQueueOrder is the order that a request names; one that is not known is that of the names.
func FromQueueOrder(order pb.QueueOrder) operate.QueueOrder {
	return map[pb.QueueOrder]operate.QueueOrder{
		pb.QueueOrder_QUEUE_ORDER_WAITING: operate.QueuesByWaiting, pb.QueueOrder_QUEUE_ORDER_SLOW: operate.QueuesBySlowness,
	}[order]
}

// ListQueues checks a ListQueuesRequest.
func ListQueues(req *pb.ListQueuesRequest) error {
	var c checks
	c.conditions(req)
	if order := req.GetOrder(); order != pb.QueueOrder_QUEUE_ORDER_UNSPECIFIED && FromQueueOrder(order) == operate.QueuesByName {
		c.fail("order", order, "must be QUEUE_ORDER_WAITING or QUEUE_ORDER_SLOW, or absent")
	}
	optional(c.queue, "filter.queue", req.GetFilter().GetQueue())
	c.suffix("filter.queue_suffix", req.GetFilter().GetQueueSuffix())
	return c.err()
}

// Queue converts a queue.
func Queue(q *operate.QueueView, now time.Time) *pb.Queue {
	s := &q.Settings
	out := &pb.Queue{
		Name: q.Name, RulePattern: q.SettingsName, Leased: q.Leased, Waiting: q.Waiting, QueueDelay: toDuration(q.QueueDelay),
		Settings: &pb.QueueSettings{
			MinDelay: durationpb.New(s.MinDelay), MaxInFlight: int32(s.MaxInFlight), DelayFactor: s.DelayFactor,
			MaxDelay: toDuration(s.MaxDelay), MaxBlock: durationpb.New(s.MaxBlock),
		},
		Pools: q.Pools, Gates: toGates(q.Gates), BlockStep: int32(q.BlockStep), Slot: int32(dispatch.SlotOf(q.Name)),
		MapsTo: q.MapsTo, Unknown: q.Unknown, HeldPools: q.HeldPools, Rates: toRates(q.Rates, q.Waiting+q.Leased),
	}
	out.MeanFetchDuration = toDuration(q.MeanFetch)
	for i := range q.Hour.Intervals {
		out.Hour = append(out.Hour, toInterval(&q.Hour.Intervals[i]))
	}
	if q.NextGrant.After(now) {
		out.NextGrantDelay = durationpb.New(q.NextGrant.Sub(now))
	}
	return out
}

func toInterval(i *dispatch.QueueInterval) *pb.QueueInterval {
	return &pb.QueueInterval{
		StartTime: toTime(i.Start), Granted: i.Granted, Succeeded: i.Succeeded, Expired: i.Expired,
		FailedTask: i.Failed[dispatch.ScopeTask], FailedHost: i.Failed[dispatch.ScopeHost],
		FailedCollector: i.Failed[dispatch.ScopeCollector], FailedUrl: i.Failed[dispatch.ScopeURL],
		DelayedDuration: toDuration(i.Delayed), BlockedDuration: toDuration(i.Blocked),
		MeanFetchDuration: toDuration(i.FetchTime / time.Duration(max(i.Fetches, 1))),
	}
}

// RuleChange is what SetQueueRule asks for.
type RuleChange struct {
	Etag operate.RulesEtag
	// Change lays the settings that the mask names over a rule. Without a mask the rule is replaced: what the request
	// leaves out has defaults.
	Change func(*dispatch.QueueRule)
}

// SetQueueRule reads a SetQueueRuleRequest, and puts the rule down to by.
func SetQueueRule(req *pb.SetQueueRuleRequest, by string) (*RuleChange, error) {
	var c checks
	rule := req.GetRule()
	c.pattern("rule.pattern", rule.GetPattern())
	optional(c.queue, "rule.queue", rule.GetQueue())
	c.duration("rule.min_delay", rule.GetMinDelay(), 0, bounds.MaxMinDelay)
	if rule != nil && rule.MaxInFlight != nil {
		c.number("rule.max_in_flight", int64(rule.GetMaxInFlight()), 1, bounds.MaxInFlight)
	}
	if f := rule.GetDelayFactor(); !(f >= 0 && f <= 100) {
		c.fail("rule.delay_factor", f, "must be 0 to 100")
	}
	c.duration("rule.max_delay", rule.GetMaxDelay(), time.Millisecond, bounds.MaxMinDelay)
	c.duration("rule.max_block", rule.GetMaxBlock(), time.Second, 30*24*time.Hour)
	paths := req.GetUpdateMask().GetPaths()
	c.mask(req.GetUpdateMask(), func(path string) bool { return slices.Contains(ruleFields, path) },
		"must name settings of a rule: queue, min_delay, max_in_flight, delay_factor, max_delay, max_block")
	change := &RuleChange{Etag: c.rulesEtag(req.GetEtag())}
	note := c.note(req)
	if err := c.err(); err != nil {
		return nil, err
	}
	note.By = by
	change.Change = func(kept *dispatch.QueueRule) {
		merged := rule
		if len(paths) > 0 {
			merged = QueueRule(*kept)
			overlay(merged.ProtoReflect(), rule.ProtoReflect(), paths)
		}
		*kept = fromRule(merged, note)
	}
	return change, nil
}

// CheckQueueRule checks all of a rule that can be checked without the rules that there are.
func CheckQueueRule(rule *pb.QueueRule) error {
	change, err := SetQueueRule(&pb.SetQueueRuleRequest{Rule: rule}, "")
	if err != nil {
		return err
	}
	var read dispatch.QueueRule
	change.Change(&read)
	return inside("rule", read.Validate())
}

// ruleFields are what a mask may name: the settings of a rule, and the pattern, which names the rule and changes nothing.
var ruleFields = []string{"pattern", "queue", "min_delay", "max_in_flight", "delay_factor", "max_delay", "max_block"}

func fromRule(r *pb.QueueRule, note dispatch.Note) dispatch.QueueRule {
	out := dispatch.QueueRule{
		Pattern: r.GetPattern(), Queue: r.GetQueue(), By: note.By, Reason: note.Reason, Settings: dispatch.DefaultQueueSettings(),
	}
	out.Settings.DelayFactor, out.Settings.MaxDelay = r.GetDelayFactor(), r.GetMaxDelay().AsDuration()
	if r.GetMinDelay() != nil {
		out.Settings.MinDelay = r.GetMinDelay().AsDuration()
	}
	if r.MaxInFlight != nil {
		out.Settings.MaxInFlight = int(r.GetMaxInFlight())
	}
	if r.GetMaxBlock() != nil {
		out.Settings.MaxBlock = r.GetMaxBlock().AsDuration()
	}
	return out
}

// QueueRule converts a queue rule.
func QueueRule(r dispatch.QueueRule) *pb.QueueRule {
	s := r.Settings
	return &pb.QueueRule{
		Pattern: r.Pattern, Queue: r.Queue,
		MinDelay: durationpb.New(s.MinDelay), MaxInFlight: new(int32(s.MaxInFlight)), DelayFactor: &s.DelayFactor,
		MaxDelay: toDuration(s.MaxDelay), MaxBlock: durationpb.New(s.MaxBlock),
		By: r.By, Reason: r.Reason, UpdateTime: toTime(r.Time),
	}
}

// DeleteQueueRule reads the etag of a DeleteQueueRuleRequest.
func DeleteQueueRule(req *pb.DeleteQueueRuleRequest) (operate.RulesEtag, error) {
	var c checks
	c.pattern("pattern", req.GetPattern())
	etag := c.rulesEtag(req.GetEtag())
	c.note(req)
	return etag, c.err()
}

// RulesEtag is the etag of all queue rules as it is sent.
func RulesEtag(etag operate.RulesEtag) string { return strconv.Quote(string(etag)) }

// rulesEtag reads what RulesEtag wrote, and no etag as any.
func (c *checks) rulesEtag(etag string) operate.RulesEtag {
	read := operate.RulesEtag(strings.Trim(etag, `"`))
	if etag != "" && (read == operate.AnyRules || RulesEtag(read) != etag) {
		c.fail("etag", etag, "must be an etag as the queue rules were read with")
	}
	return read
}

// AboutRule names the rule that err is about, and the queues in which a mapping would leave tasks.
func AboutRule(err error, pattern string) error {
	pairs := []string{"pattern", pattern}
	if left, ok := errors.AsType[*operate.NotEmptyError](err); ok {
		pairs = append(pairs, "tasks_left_in", left.Names())
	}
	return About(inside("rule", err), pairs...)
}
