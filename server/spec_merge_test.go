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

// A seed of a source is told by its key, or by its URL however that is spelled: what it
// leaves out stays with keep_absent, and is told as lost without it.
func TestSourceService_ApplySources_absentOfSeeds(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	whole := &pb.SourceSpec{Id: "s", Seeds: []*pb.Seed{
		{Url: "https://k.example/", Queue: "slow", Kind: "feed"},
		{Url: "https://k.example/", Queue: "fast", Kind: "page"},
		{Url: "https://l.example/", Key: "l", Kind: "sitemap"},
		{Key: "n", Queue: "q", Kind: "api"},
	}}
	if _, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: whole}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		seeds, kept   []*pb.Seed // kept: with keep_absent
		changed, lost []string   // without it
	}{
		{
			"less of each",
			[]*pb.Seed{{Url: "https://k.example/"}, {Url: "https://k.example/", Queue: "fast"}, {Url: "https://l.example/"}, {Key: "n", Queue: "q"}},
			whole.GetSeeds(),
			[]string{"seeds.key", "seeds.kind", "seeds.queue"},
			[]string{"seeds.key", "seeds.kind", "seeds.queue"},
		},
		{
			"another spelling",
			[]*pb.Seed{{Url: "https://K.example", Queue: "slow"}, whole.GetSeeds()[1], whole.GetSeeds()[2], whole.GetSeeds()[3]},
			[]*pb.Seed{{Url: "https://K.example", Queue: "slow", Kind: "feed"}, whole.GetSeeds()[1], whole.GetSeeds()[2], whole.GetSeeds()[3]},
			[]string{"seeds.kind", "seeds.url"},
			[]string{"seeds.kind"},
		},
		{
			"another place, another queue, another URL of a key",
			[]*pb.Seed{{Url: "https://m.example/", Key: "l"}, {Url: "https://k.example:443/", Queue: "third"}},
			[]*pb.Seed{{Url: "https://m.example/", Key: "l", Kind: "sitemap"}, {Url: "https://k.example:443/", Queue: "third", Kind: "feed"}},
			[]string{"seeds", "seeds.kind", "seeds.queue", "seeds.url"},
			[]string{"seeds", "seeds.kind"},
		},
		{
			"others",
			[]*pb.Seed{{Key: "n", Queue: "r"}, {Url: "https://l.example/", Key: "m"}},
			[]*pb.Seed{{Key: "n", Queue: "r"}, {Url: "https://l.example/", Key: "m"}},
			[]string{"seeds"},
			[]string{"seeds"},
		},
	} {
		spec := &pb.SourceSpec{Id: "s", Seeds: c.seeds}
		reply, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{spec}, ValidateOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if r := reply.GetResults()[0]; !slices.Equal(r.GetChangedFields(), c.changed) || !slices.Equal(r.GetLostFields(), c.lost) {
			t.Errorf("%s: %v", c.name, r)
		}
		for _, request := range []*pb.ApplySourcesRequest{{Specs: []*pb.SourceSpec{spec}, KeepAbsent: true}, {Specs: []*pb.SourceSpec{whole}}} {
			if reply, err = b.sources.ApplySources(t.Context(), request); err != nil || reply.GetResults()[0].GetMessage() != "" {
				t.Fatalf("%s: %v, %v", c.name, reply, err)
			}
			want := whole.GetSeeds()
			if request.GetKeepAbsent() {
				want = c.kept
			}
			got, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "s"})
			if s := got.GetSource().GetSpec(); err != nil || !proto.Equal(&pb.SourceSpec{Seeds: s.GetSeeds()}, &pb.SourceSpec{Seeds: want}) {
				t.Errorf("%s: kept %v, %v", c.name, s.GetSeeds(), err)
			}
		}
	}
}

// What is fixed at creation may be left out.
func TestSourceService_fixedFields(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	fixed := &pb.SourceSpec{Id: "s", Scope: "shared", CanonicalRules: 2}
	if _, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: fixed}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.sources.UpdateSource(t.Context(), &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "s", DisplayName: "S"}}); err != nil {
		t.Error(err)
	}
	reply, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{{Id: "s"}}})
	if err != nil || !slices.Equal(reply.GetResults()[0].GetChangedFields(), []string{"display_name"}) {
		t.Errorf("%v, %v", reply, err)
	}
	got, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "s"})
	if s := got.GetSource().GetSpec(); err != nil || s.GetScope() != "shared" || s.GetCanonicalRules() != 2 {
		t.Errorf("kept %v, %v", s, err)
	}
}
