package server_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func every(d time.Duration) *pb.Schedule {
	return &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(d)}}
}

// What a spec leaves out stays with keep_absent, and is told as lost without it.
func TestSourceService_ApplySources_absent(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	whole := &pb.SourceSpec{
		Id: "s", Labels: map[string]string{"team": "x"}, Pool: "eu",
		Seeds:    []*pb.Seed{{Url: "https://a.example/", Kind: "feed"}, {Url: "https://b.example/"}},
		Schedule: &pb.Schedule{Rule: &pb.Schedule_Cron{Cron: "0 6 * * *"}, TimeZone: "Europe/Berlin"},
		Follow:   &pb.Follow{MaxDepth: proto.Int32(2)}, FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_NOW,
	}
	if _, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: whole}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		spec          *pb.SourceSpec
		keep          bool
		changed, lost []string
	}{
		{name: "nothing", spec: &pb.SourceSpec{}, keep: true},
		{name: "what it has", spec: &pb.SourceSpec{Pool: "eu", FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_SPREAD, Follow: &pb.Follow{}}, keep: true},
		{
			name: "a seed of it", spec: &pb.SourceSpec{Seeds: []*pb.Seed{{Url: "https://a.example/"}}}, keep: true,
			changed: []string{"seeds"}, lost: []string{"seeds"},
		},
		{
			name: "another rule", spec: &pb.SourceSpec{Schedule: every(time.Hour), Labels: map[string]string{"a": "b"}}, keep: true,
			changed: []string{"labels", "schedule.every", "schedule.time_zone"}, lost: []string{"schedule.time_zone"},
		},
		{
			name: "the whole", spec: &pb.SourceSpec{Pool: "us", Seeds: whole.GetSeeds(), Follow: whole.GetFollow()},
			changed: []string{"labels", "pool", "schedule"}, lost: []string{"labels", "schedule"},
		},
	} {
		c.spec.Id = "s"
		reply, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{c.spec}, KeepAbsent: c.keep, ValidateOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if r := reply.GetResults()[0]; !slices.Equal(r.GetChangedFields(), c.changed) || !slices.Equal(r.GetLostFields(), c.lost) {
			t.Errorf("%s: %v", c.name, r)
		}
	}
	part := &pb.SourceSpec{
		Id: "s", Labels: map[string]string{"from": "csv"}, Schedule: every(time.Hour),
		Seeds: []*pb.Seed{{Url: "https://a.example/"}, {Url: "https://c.example/"}},
	}
	if _, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{part}, KeepAbsent: true}); err != nil {
		t.Fatal(err)
	}
	got, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "s"})
	if err != nil {
		t.Fatal(err)
	}
	s := got.GetSource().GetSpec()
	if len(s.GetLabels()) != 2 || s.GetPool() != "eu" || s.GetFollow().GetMaxDepth() != 2 || s.GetSchedule().GetEvery().AsDuration() != time.Hour ||
		len(s.GetSeeds()) != 2 || s.GetSeeds()[0].GetKind() != "feed" || s.GetSeeds()[1].GetUrl() != "https://c.example/" {
		t.Errorf("kept %v", s)
	}
}

// A part of a spec that makes none on its own is refused where there is no source.
func TestSourceService_ApplySources_absentNew(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	part := &pb.SourceSpec{Id: "new", Schedule: &pb.Schedule{Jitter: durationpb.New(time.Minute)}}
	for _, validateOnly := range []bool{true, false} {
		reply, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{part}, KeepAbsent: true, ValidateOnly: validateOnly})
		if err != nil || reply.GetResults()[0].GetCode() != pb.ApplyCode_APPLY_CODE_INVALID {
			t.Errorf("answered %v, %v", reply, err)
		}
	}
}
