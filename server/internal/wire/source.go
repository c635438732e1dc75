package wire

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	maxApply   = 500 // specs in a call
	everyField = "*" // as the only path of a mask
)

// CreateSource reads the spec of a CreateSourceRequest.
func CreateSource(req *pb.CreateSourceRequest) (dispatch.SourceSpec, error) {
	var c checks
	spec := c.spec(req.GetSpec())
	c.note(req)
	return spec, c.err()
}

// GetSource checks a GetSourceRequest.
func GetSource(req *pb.GetSourceRequest) error {
	var c checks
	c.id("id", req.GetId())
	return c.err()
}

// ListSources reads the filter of a ListSourcesRequest.
func ListSources(req *pb.ListSourcesRequest) (SourceFilter, error) {
	var c checks
	c.conditions(req)
	f := c.sourceFilter(req.GetFilter())
	f.Query.Health = list(&c, "health", req.GetHealth(), 0, 8, func(field string, health pb.SourceHealth) operate.SourceHealth {
		return operate.SourceHealth(named(&c, field, health, "must name a health"))
	})
	f.Query.Gates, f.Query.Errors, f.Query.Histories = req.GetGates(), req.GetGates(), req.GetGates()
	return f, c.err()
}

// UpdateSource reads an UpdateSourceRequest: the change lays the fields that the mask names over the spec that is kept,
// or without a mask those that are set. Only then the spec is checked: a field that the mask leaves out is not read.
func UpdateSource(req *pb.UpdateSourceRequest) (change func(*dispatch.SourceSpec) error, err error) {
	var c checks
	id := c.id("spec.id", req.GetSpec().GetId())
	paths := req.GetUpdateMask().GetPaths()
	every := len(paths) == 1 && paths[0] == everyField
	isField := func(path string) bool {
		_, err := fieldmaskpb.New(&pb.SourceSpec{}, path)
		return err == nil || every
	}
	c.mask(req.GetUpdateMask(), isField, "must name fields of SourceSpec, such as \"seeds\" or \"retry.max_attempts\", or be \"*\" alone")
	if etag := req.GetEtag(); etag != "" && !sourceEtag.MatchString(etag) {
		c.fail("etag", req.GetEtag(), "must be an etag as the source was read with")
	}
	c.note(req)
	change = func(spec *dispatch.SourceSpec) error {
		merged := toSpec(id, spec)
		overlay(merged.ProtoReflect(), req.GetSpec().ProtoReflect(), paths)
		return replaceSpec(spec, merged)
	}
	switch {
	case every:
		change = func(spec *dispatch.SourceSpec) error { return replaceSpec(spec, req.GetSpec()) }
	case len(paths) == 0:
		change = laySet(req.GetSpec())
	}
	return change, c.err()
}

// SourceEtag is the etag of a source: its version, and enough of its uid that an etag of a source that was deleted does
// not fit one created later under its id.
func SourceEtag(s *dispatch.Source) string {
	return fmt.Sprintf(`"%d-%s"`, s.Version, s.UID[:min(len(s.UID), 8)])
}

// sourceEtag is the form of what SourceEtag writes.
var sourceEtag = regexp.MustCompile(`^"[1-9][0-9]{0,18}-.{1,8}"$`)

// AboutSpec names the source that err is about, and puts "spec." before the fields that the domain names; those that
// were checked here have it.
func AboutSpec(err error, id string) error { return About(insideSpec(err), "source_id", id) }

func insideSpec(err error) error {
	if _, ok := errors.AsType[*invalidRequest](err); ok {
		return err
	}
	return inside("spec", err)
}

// Application is the specs of a call that can be those of sources, to be answered by [Application.Response].
type Application struct {
	Specs   []operate.NamedSpec
	results []*pb.ApplyResult // of all specs; nil until the dispatcher has answered
}

// ApplySources reads an ApplySourcesRequest. Specs that cannot be those of sources fail no others: they are answered in
// their places.
func ApplySources(req *pb.ApplySourcesRequest) (*Application, error) {
	var c checks
	c.count("specs", len(req.GetSpecs()), 1, maxApply)
	c.note(req)
	if err := c.err(); err != nil {
		return nil, err
	}
	a := &Application{results: make([]*pb.ApplyResult, len(req.GetSpecs()))}
	for i, spec := range req.GetSpecs() {
		named := operate.NamedSpec{ID: spec.GetId()}
		if err := replaceSpec(&named.Spec, spec); err != nil {
			a.results[i] = toApplyResult(named.ID, &operate.SpecResult{Err: err})
			continue
		}
		if req.GetKeepAbsent() {
			named.Over = keepAbsent(spec)
		}
		a.Specs = append(a.Specs, named)
	}
	return a, nil
}

// Response converts what became of all specs; warnings are of those that were taken.
func (a *Application) Response(taken []operate.SpecResult, warnings [][]string) *pb.ApplySourcesResponse {
	n := 0
	for i, result := range a.results {
		if result != nil {
			continue
		}
		a.results[i] = toApplyResult(a.Specs[n].ID, &taken[n])
		if code := a.results[i].Code; code == pb.ApplyCode_APPLY_CODE_CREATED || code == pb.ApplyCode_APPLY_CODE_UPDATED {
			a.results[i].Warnings = warnings[n]
		}
		n++
	}
	return &pb.ApplySourcesResponse{Results: a.results}
}

func toApplyResult(id string, r *operate.SpecResult) *pb.ApplyResult {
	if r.Err != nil {
		err := insideSpec(r.Err)
		return &pb.ApplyResult{SourceId: id, Code: pb.ApplyCode_APPLY_CODE_INVALID, Message: err.Error(), ErrorReason: reasonOf(err)}
	}
	out := &pb.ApplyResult{SourceId: id, Code: pb.ApplyCode(r.Code)}
	if r.Code == operate.SpecUpdated {
		out.ChangedFields, out.LostFields = specDiff(r.Before, r.After)
	}
	return out
}

// sourcesRequest is what the bulk calls on sources have in common.
type sourcesRequest interface {
	bulkRequest
	GetIds() []string
}

// SourceSelection is what a bulk call is about: sources by their ids, or a page of those that a filter selects.
type SourceSelection struct {
	IDs    []string
	Filter SourceFilter
	Selection
}

// Sources reads a bulk call on sources: it names ids, or a filter on purpose.
func Sources(req sourcesRequest) (*SourceSelection, error) {
	var c checks
	s := &SourceSelection{
		Selection: c.selection("ids", len(req.GetIds()), req),
		IDs:       list(&c, "ids", req.GetIds(), 0, MaxBatch, c.id), Filter: c.bulkSources(req.GetFilter()),
	}
	err := s.open(&c, req)
	return s, err
}

// bulkSources reads the filter of a bulk call on sources, if it has one.
func (c *checks) bulkSources(f *pb.Filter) SourceFilter {
	if f != nil {
		c.all(f, f.GetSourceId() != "" || f.GetSourceIdPrefix() != "" || f.GetPool() != "" || len(f.GetLabels()) > 0 ||
			f.GetCreateTimeFrom() != nil || f.GetCreateTimeBefore() != nil)
	}
	return c.sourceFilter(f)
}

// Source converts a source.
func Source(v *operate.SourceView) *pb.Source {
	s := &v.Source
	return &pb.Source{
		Id: s.ID, Uid: s.UID, Spec: toSpec(s.ID, &s.Spec), Status: toSourceStatus(v),
		Etag: SourceEtag(s), Version: s.Version,
		CreateTime: toTime(s.Created), UpdateTime: toTime(s.Updated),
	}
}

// ListedSource leaves out what lists leave out: seeds and payload.
func ListedSource(v *operate.SourceView) *pb.Source {
	out := Source(v)
	out.Spec.Seeds, out.Spec.Payload = nil, nil
	return out
}

func toSourceStatus(v *operate.SourceView) *pb.SourceStatus {
	s := &v.Status
	out := &pb.SourceStatus{
		Health: pb.SourceHealth(v.Health), Holds: standing(v.Source.Holds, time.Now()), PendingVersions: s.PendingVersions,
		Tasks: toCounts(s.Counts), LastSuccessTime: toTime(s.LastSuccess), ConsecutiveFailures: s.FailuresInARow,
		ShortestInterval: toDuration(s.ShortestInterval), LongestInterval: toDuration(s.LongestInterval),
		NextDueTime: toTime(s.NextDue), Lag: toDuration(s.Lag), Limited: s.Limited,
		LastError: toTaskError(s.LastError), LastFailureTime: toTime(s.LastFailure), Outstanding: s.Outstanding,
		Gates: toGates(s.Gates), CanceledSeeds: s.CanceledSeeds, CollectorUnknown: s.CollectorUnknown,
		Rates: toRates(s.Rates, min(s.Outstanding, s.Counts.Ready+s.Counts.Leased)),
	}
	out.Filtered = toFiltered(s.Filtered)
	out.ReleasedTasks = each(s.Released, toReleased)
	for _, m := range s.Moves {
		out.Moves = append(out.Moves, &pb.SeedMove{SeedUrl: m.Seed, MovedTo: m.To, MovedForGoodTo: m.Lasting, Away: m.Away})
	}
	out.LastNewTime, out.UsualGap, out.EmptyCycles, out.NewByDay = toTime(s.LastNew), toDuration(s.UsualGap), s.EmptyCycles, v.NewByDay
	out.RecentPages, out.RecentFailedPages = int64(s.Pages.Ended), int64(s.Pages.Failed)
	if counts := v.Reasons(); v.Health == operate.HealthPagesFail {
		for _, reason := range byCount(counts) {
			out.RecentFailures = append(out.RecentFailures, &pb.FailedAttempts{Reason: pb.FailureReason(reason), Count: int64(counts[reason])})
		}
	}
	if s.GivenUpCycles > 0 || s.DeadSeeds > 0 {
		out.Breaker = &pb.Breaker{GivenUpCycles: int32(s.GivenUpCycles), DeadSeeds: s.DeadSeeds}
	}
	return out
}

func toFiltered(filtered dispatch.Filtered) (out []*pb.FilteredLinks) {
	for reason, n := range filtered {
		if n > 0 {
			out = append(out, &pb.FilteredLinks{Reason: pb.FilterReason(reason), Count: n}) //nolint:gosec // of few
		}
	}
	return out
}

// GetSourceHistory checks a GetSourceHistoryRequest.
func GetSourceHistory(req *pb.GetSourceHistoryRequest) error {
	var c checks
	c.id("id", req.GetId())
	return c.err()
}

// SourceHistory converts what is remembered of a source.
func SourceHistory(v *operate.SourceView) *pb.GetSourceHistoryResponse {
	out := &pb.GetSourceHistoryResponse{Source: Source(v)}
	h := v.Status.History
	if h == nil {
		return out
	}
	for i := range h.Cycles {
		c := &h.Cycles[i]
		out.Cycles = append(out.Cycles, &pb.SourceCycle{
			EndTime: toTime(c.Ended), Failed: c.Failed, Reason: pb.FailureReason(c.Reason), HttpStatus: int32(c.HTTPStatus),
			FetchDuration: toDuration(c.Duration), Bytes: c.Bytes, Document: pb.DocumentKind(c.Document), Unchanged: c.Unchanged,
			BrokenOff: c.BrokenOff, Found: c.Found, New: c.New, Filtered: toFiltered(c.Filtered),
		})
	}
	for i := range h.Days {
		d := &h.Days[i]
		day := &pb.SourceDay{BeginTime: toTime(d.Date), Cycles: d.Cycles, Pages: d.Pages, New: d.New, Kibibytes: d.Bytes >> 10}
		for _, f := range d.Failed {
			day.Failed = append(day.Failed, &pb.FailedAttempts{Reason: pb.FailureReason(f.Reason), Count: f.Count})
		}
		out.Days = append(out.Days, day)
	}
	return out
}

// toReleased converts a task that was released again and again.
func toReleased(t *dispatch.Task) *pb.ReleasedTask {
	out := &pb.ReleasedTask{TaskId: string(t.ID), Url: t.URL, Releases: int32(t.Counters.Released)}
	for _, line := range t.History {
		if line.Result == dispatch.ResultReleased {
			out.CollectorId, out.ReleaseTime = line.Collector, toTime(line.Ended)
		}
	}
	return out
}
