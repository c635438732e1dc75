package server

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func toQueue(q *operate.QueueView, now time.Time) *pb.Queue {
	out := &pb.Queue{
		Name: q.Name, Settings: toSettings(q.Settings), RulePattern: q.SettingsName, Leased: q.Leased, Waiting: q.Waiting,
		QueueDelay: toDuration(q.QueueDelay), Pools: q.Pools, Gates: toGates(q.Gates), BlockStep: int32(q.BlockStep), Slot: int32(dispatch.SlotOf(q.Name)),
		MapsTo: q.MapsTo, Unknown: q.Unknown, PausedPools: q.PausedPools,
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

func toRule(r dispatch.QueueRule) *pb.QueueRule {
	s := r.Settings
	inFlight := int32(s.MaxInFlight)
	return &pb.QueueRule{
		Pattern: r.Pattern, Queue: r.Queue,
		MinDelay: durationpb.New(s.MinDelay), MaxInFlight: &inFlight, DelayFactor: &s.DelayFactor,
		MaxDelay: toDuration(s.MaxDelay), MaxBlock: durationpb.New(s.MaxBlock), Paused: &s.Paused, Deny: &s.Deny,
		By: r.By, Reason: r.Reason, UpdateTime: toTime(r.Time), Gates: toGates(r.Gates()),
	}
}

// ruleEtag is the etag of all queue rules as it is sent.
func ruleEtag(etag operate.RulesEtag) string { return strconv.Quote(string(etag)) }

// parseRuleEtag reads what ruleEtag wrote, and no etag as any.
func parseRuleEtag(etag string) (operate.RulesEtag, bool) {
	parsed := operate.RulesEtag(strings.Trim(etag, `"`))
	return parsed, etag == "" || parsed != operate.AnyRules && ruleEtag(parsed) == etag
}

// fromRule fills what a rule leaves out with defaults: a rule holds whole.
func fromRule(r *pb.QueueRule, by, reason string) dispatch.QueueRule {
	standard := dispatch.DefaultQueueSettings()
	return dispatch.QueueRule{
		Pattern: r.GetPattern(), Queue: r.GetQueue(), By: by, Reason: reason,
		Settings: dispatch.QueueSettings{
			MinDelay:    durationOr(r.GetMinDelay(), standard.MinDelay),
			MaxInFlight: int(or(r.MaxInFlight, int32(standard.MaxInFlight))),
			DelayFactor: r.GetDelayFactor(),
			MaxDelay:    r.GetMaxDelay().AsDuration(),
			MaxBlock:    durationOr(r.GetMaxBlock(), standard.MaxBlock),
			Paused:      r.GetPaused(),
			Deny:        r.GetDeny(),
		},
	}
}
