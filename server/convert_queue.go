package server

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func toQueue(q *dispatch.Queue, now time.Time) *pb.Queue {
	out := &pb.Queue{
		Name: q.Name, Settings: toSettings(q.Settings), RulePattern: q.SettingsName, Leased: q.Leased, Waiting: q.Waiting,
		QueueDelay: toDuration(q.QueueDelay), Pools: q.Pools, Gates: toGates(q.Gates), BlockStep: int32(q.BlockStep), Slot: int32(dispatch.SlotOf(q.Name)),
		MapsTo: q.MapsTo, Unknown: q.Unknown,
	}
	if q.NextGrant.After(now) {
		out.NextGrantDelay = durationpb.New(q.NextGrant.Sub(now))
	}
	return out
}

func toSettings(s dispatch.QueueSettings) *pb.QueueSettings {
	return &pb.QueueSettings{
		MinDelay: durationpb.New(s.MinDelay), MaxInFlight: int32(s.MaxInFlight), DelayFactor: s.DelayFactor,
		MaxDelay: toDuration(s.MaxDelay), MaxBlock: durationpb.New(s.MaxBlock), Paused: s.Paused, Deny: s.Deny,
	}
}

func toRule(r *dispatch.QueueRule) *pb.QueueRule {
	s := r.Settings
	inFlight := int32(s.MaxInFlight)
	return &pb.QueueRule{
		Pattern: r.Pattern, Queue: r.Queue,
		MinDelay: durationpb.New(s.MinDelay), MaxInFlight: &inFlight, DelayFactor: &s.DelayFactor,
		MaxDelay: toDuration(s.MaxDelay), MaxBlock: durationpb.New(s.MaxBlock), Paused: &s.Paused, Deny: &s.Deny,
		By: r.By, Reason: r.Reason, UpdateTime: toTime(r.Time),
	}
}

// rulesEtag is the etag of all queue rules: their version.
func rulesEtag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// parseRulesEtag is the version that an etag of the queue rules names, whichever without one.
func parseRulesEtag(etag string) (version int64, ok bool) {
	if etag == "" {
		return dispatch.AnyRules, true
	}
	version, err := strconv.ParseInt(strings.Trim(etag, `"`), 10, 64)
	return version, err == nil && version >= 0 && rulesEtag(version) == etag
}

// fromRule fills what a rule leaves out with defaults: a rule holds whole.
func fromRule(r *pb.QueueRule, by, reason string) dispatch.QueueRule {
	return dispatch.QueueRule{
		Pattern: r.GetPattern(), Queue: r.GetQueue(), By: by, Reason: reason,
		Settings: dispatch.QueueSettings{
			MinDelay:    durationOr(r.GetMinDelay(), dispatch.DefaultMinDelay),
			MaxInFlight: int(or(r.MaxInFlight, dispatch.DefaultMaxInFlight)),
			DelayFactor: r.GetDelayFactor(),
			MaxDelay:    r.GetMaxDelay().AsDuration(),
			MaxBlock:    durationOr(r.GetMaxBlock(), dispatch.DefaultMaxBlock),
			Paused:      r.GetPaused(),
			Deny:        r.GetDeny(),
		},
	}
}
