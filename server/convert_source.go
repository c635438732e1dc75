package server

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// etagOf is the etag of a source: its version, and enough of its uid that an
// etag of a source that was deleted does not fit one created later under its
// id.
func etagOf(uid string, version int64) string {
	return `"` + strconv.FormatInt(version, 10) + "-" + uid[:min(len(uid), 8)] + `"`
}

// parseEtag reads what etagOf wrote.
func parseEtag(etag string) (uid string, version int64, ok bool) {
	body := strings.TrimSuffix(strings.TrimPrefix(etag, `"`), `"`)
	number, uid, _ := strings.Cut(body, "-")
	version, err := strconv.ParseInt(number, 10, 64)
	return uid, version, err == nil && version > 0 && uid != "" && etagOf(uid, version) == etag
}

func toSource(v *operate.SourceView) *pb.Source {
	s := &v.Source
	return &pb.Source{
		Id: s.ID, Uid: s.UID, Spec: toSpec(s.ID, &s.Spec), Status: toSourceStatus(v),
		Etag: etagOf(s.UID, s.Version), Version: s.Version,
		CreateTime: toTime(s.Created), UpdateTime: toTime(s.Updated),
	}
}

// toListedSource leaves out what lists leave out: seeds and payload.
func toListedSource(v *operate.SourceView) *pb.Source {
	out := toSource(v)
	out.Spec.Seeds, out.Spec.Payload = nil, nil
	return out
}

func toApplyResult(id string, r operate.SpecResult) *pb.ApplyResult {
	out := &pb.ApplyResult{SourceId: id}
	switch {
	case r.Err != nil:
		out.Code, out.Message = pb.ApplyCode_APPLY_CODE_INVALID, r.Err.Error()
		out.ErrorReason = pb.ErrorReason_ERROR_REASON_INVALID_FIELD
		if kind := kindOf(r.Err); kind != nil {
			out.ErrorReason = kind.reason
		}
	case r.Code == operate.SpecCreated:
		out.Code = pb.ApplyCode_APPLY_CODE_CREATED
	case r.Code == operate.SpecUpdated:
		out.Code = pb.ApplyCode_APPLY_CODE_UPDATED
		out.ChangedFields, out.LostFields = specDiff(r.Before, r.After)
	default:
		out.Code = pb.ApplyCode_APPLY_CODE_UNCHANGED
	}
	return out
}

func toSourceStatus(v *operate.SourceView) *pb.SourceStatus {
	s := &v.Status
	out := &pb.SourceStatus{
		Health: toHealth(v.Health), Paused: toGate(v.Paused), PendingVersions: s.PendingVersions,
		Tasks: toCounts(s.Counts), LastSuccessTime: toTime(s.LastSuccess), ConsecutiveFailures: s.FailuresInARow,
		ShortestInterval: toDuration(s.ShortestInterval), LongestInterval: toDuration(s.LongestInterval),
		NextDueTime: toTime(s.NextDue), Lag: toDuration(s.Lag), Limited: s.Limited,
		LastError: toTaskError(s.LastError), LastFailureTime: toTime(s.LastFailure), Outstanding: s.Outstanding,
		Gates: toGates(s.Gates), CanceledSeeds: s.CanceledSeeds, DeniedSeeds: s.DeniedSeeds,
		CollectorUnknown: s.CollectorUnknown,
	}
	for reason, n := range s.Filtered {
		if n > 0 {
			out.Filtered = append(out.Filtered, &pb.FilteredLinks{Reason: pb.FilterReason(reason), Count: n}) //nolint:gosec // of few
		}
	}
	if s.GivenUpCycles > 0 || s.DeadSeeds > 0 {
		out.Breaker = &pb.Breaker{GivenUpCycles: int32(s.GivenUpCycles), DeadSeeds: s.DeadSeeds}
	}
	return out
}

func toHealth(h operate.SourceHealth) pb.SourceHealth {
	switch h {
	case operate.HealthOK:
		return pb.SourceHealth_SOURCE_HEALTH_OK
	case operate.HealthLate:
		return pb.SourceHealth_SOURCE_HEALTH_LATE
	case operate.HealthFailing:
		return pb.SourceHealth_SOURCE_HEALTH_FAILING
	case operate.HealthBackedOff:
		return pb.SourceHealth_SOURCE_HEALTH_BACKED_OFF
	case operate.HealthPaused:
		return pb.SourceHealth_SOURCE_HEALTH_PAUSED
	}
	return pb.SourceHealth_SOURCE_HEALTH_UNSPECIFIED
}

func fromHealth(in []pb.SourceHealth) []operate.SourceHealth {
	var out []operate.SourceHealth
	for h := operate.HealthOK; h <= operate.HealthPaused; h++ {
		if slices.Contains(in, toHealth(h)) {
			out = append(out, h)
		}
	}
	return out
}

// toSpec is the spec as people can write it. It and fromSpec give back what the
// other was given: UpdateSource lays fields over toSpec of what is kept.
func toSpec(id string, s *dispatch.SourceSpec) *pb.SourceSpec {
	priority := int32(s.Priority)
	out := &pb.SourceSpec{
		Id: id, DisplayName: s.DisplayName, Labels: s.Labels, Scope: s.Scope, Pool: s.Pool, CanonicalRules: int32(s.CanonicalRules),
		Schedule: toSchedule(s.Schedule), FirstCrawl: toFirstCrawl(s.FirstCrawl), Priority: &priority,
		LeaseDuration: toDuration(s.LeaseDuration), MaxHold: toDuration(s.MaxHold), Retry: toRetry(s.Retry),
		Remember: toDuration(s.Remember), RevisitAfter: toDuration(s.RevisitAfter), Follow: toFollow(s.Follow),
		Metadata: s.Metadata, Payload: s.Payload,
	}
	if s.MaxOutstanding > 0 {
		out.MaxOutstanding = &s.MaxOutstanding
	}
	for _, seed := range s.Seeds {
		out.Seeds = append(out.Seeds, &pb.Seed{Url: seed.URL, Key: seed.Key, Queue: seed.Queue, Kind: seed.Kind})
	}
	return out
}

// fromSpec converts a spec that validateSpec has passed. What is absent is
// zero, for [dispatch.SourceSpec.FillDefaults] to fill.
func fromSpec(s *pb.SourceSpec) dispatch.SourceSpec {
	out := dispatch.SourceSpec{
		DisplayName: s.GetDisplayName(), Labels: some(s.GetLabels()), Scope: s.GetScope(), Pool: s.GetPool(),
		Schedule: fromSchedule(s.GetSchedule()), Priority: int(or(s.Priority, dispatch.DefaultPriority)),
		LeaseDuration: s.GetLeaseDuration().AsDuration(), MaxHold: s.GetMaxHold().AsDuration(),
		Retry: fromRetry(s.GetRetry()), Remember: s.GetRemember().AsDuration(), RevisitAfter: s.GetRevisitAfter().AsDuration(),
		Follow: fromFollow(s.GetFollow()), MaxOutstanding: s.GetMaxOutstanding(), Metadata: some(s.GetMetadata()),
		CanonicalRules: int(s.GetCanonicalRules()),
	}
	if len(s.GetPayload()) > 0 {
		out.Payload = s.GetPayload()
	}
	if s.GetFirstCrawl() == pb.FirstCrawl_FIRST_CRAWL_SPREAD {
		out.FirstCrawl = dispatch.FirstCrawlSpread
	}
	for _, seed := range s.GetSeeds() {
		out.Seeds = append(out.Seeds, dispatch.Seed{
			URL: canonical.Escape(seed.GetUrl()), Key: seed.GetKey(), Queue: seed.GetQueue(), Kind: seed.GetKind(), Priority: dispatch.DefaultPriority,
		})
	}
	return out
}

// some is m, or nil when it is empty: a spec that did not change compares equal
// to the one that is kept.
func some(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

func toFirstCrawl(f dispatch.FirstCrawl) pb.FirstCrawl {
	if f == dispatch.FirstCrawlSpread {
		return pb.FirstCrawl_FIRST_CRAWL_SPREAD
	}
	return pb.FirstCrawl_FIRST_CRAWL_NOW
}

func toSchedule(s dispatch.Schedule) *pb.Schedule {
	if s == (dispatch.Schedule{}) {
		return nil
	}
	out := &pb.Schedule{TimeZone: s.TimeZone, Revisit: s.Revisit, Jitter: toDuration(s.Jitter)}
	switch {
	case s.Every > 0:
		out.Rule = &pb.Schedule_Every{Every: durationpb.New(s.Every)}
	case s.Cron != "":
		out.Rule = &pb.Schedule_Cron{Cron: s.Cron}
	case s.Adaptive != (dispatch.Adaptive{}):
		out.Rule = &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{
			MinInterval: durationpb.New(s.Adaptive.Min), MaxInterval: durationpb.New(s.Adaptive.Max),
		}}
	}
	return out
}

func fromSchedule(s *pb.Schedule) dispatch.Schedule {
	return dispatch.Schedule{
		Every: s.GetEvery().AsDuration(), Cron: s.GetCron(), TimeZone: s.GetTimeZone(), Revisit: s.GetRevisit(),
		Adaptive: dispatch.Adaptive{
			Min: s.GetAdaptive().GetMinInterval().AsDuration(), Max: s.GetAdaptive().GetMaxInterval().AsDuration(),
		},
		Jitter: s.GetJitter().AsDuration(),
	}
}

// leastBackoff is what an explicit backoff of zero is kept as: zero means the
// default there, and a millisecond is the store's finest wait.
const leastBackoff = time.Millisecond

func toRetry(r dispatch.Retry) *pb.RetryPolicy {
	attempts, expirations, throttled := int32(r.MaxAttempts), int32(r.MaxExpirations), int32(r.MaxThrottled)
	return &pb.RetryPolicy{
		MaxAttempts: &attempts, MaxExpirations: &expirations, MaxThrottled: &throttled,
		MinBackoff: durationpb.New(r.MinBackoff), MaxBackoff: durationpb.New(r.MaxBackoff),
	}
}

func fromRetry(r *pb.RetryPolicy) dispatch.Retry {
	out := dispatch.Retry{
		MaxAttempts: int(r.GetMaxAttempts()), MaxExpirations: int(r.GetMaxExpirations()), MaxThrottled: int(r.GetMaxThrottled()),
	}
	if r.GetMinBackoff() != nil {
		out.MinBackoff = max(r.GetMinBackoff().AsDuration(), leastBackoff)
	}
	if r.GetMaxBackoff() != nil {
		out.MaxBackoff = max(r.GetMaxBackoff().AsDuration(), leastBackoff)
	}
	return out
}

func toFollow(f *dispatch.Follow) *pb.Follow {
	if f == nil {
		return nil
	}
	out := &pb.Follow{AllowHosts: f.AllowHosts, Include: f.Include, Exclude: f.Exclude}
	if f.MaxDepth != nil {
		depth := int32(*f.MaxDepth)
		out.MaxDepth = &depth
	}
	return out
}

func fromFollow(f *pb.Follow) *dispatch.Follow {
	if f == nil {
		return nil
	}
	out := &dispatch.Follow{
		AllowHosts: slices.Clone(f.GetAllowHosts()), Include: slices.Clone(f.GetInclude()), Exclude: slices.Clone(f.GetExclude()),
	}
	if f.MaxDepth != nil {
		depth := int(f.GetMaxDepth())
		out.MaxDepth = &depth
	}
	return out
}
