package server_test

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func createWith(change func(*pb.SourceSpec)) func(context.Context, *bed) error {
	spec := &pb.SourceSpec{Id: "news"}
	change(spec)
	return func(ctx context.Context, b *bed) error {
		_, err := b.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: spec})
		return err
	}
}

func badSpecs() []badRequest {
	spec := func(name, field string, change func(*pb.SourceSpec)) badRequest {
		return badRequest{"source: " + name, "spec." + field, createWith(change)}
	}
	every := func(d time.Duration) *pb.Schedule {
		return &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(d)}}
	}
	cron := func(line, zone string) *pb.Schedule {
		return &pb.Schedule{Rule: &pb.Schedule_Cron{Cron: line}, TimeZone: zone}
	}
	adaptive := func(from, to time.Duration) *pb.Schedule {
		return &pb.Schedule{Rule: &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{
			MinInterval: durationpb.New(from), MaxInterval: durationpb.New(to),
		}}}
	}
	zero, ten := int32(0), int32(10)
	return []badRequest{
		{"source: none", "spec.id", func(ctx context.Context, b *bed) error {
			_, err := b.sources.CreateSource(ctx, &pb.CreateSourceRequest{})
			return err
		}},
		spec("id with brace", "id", func(s *pb.SourceSpec) { s.Id = "a{b}" }),
		spec("long id", "id", func(s *pb.SourceSpec) { s.Id = strings.Repeat("a", 129) }),
		spec("long name", "display_name", func(s *pb.SourceSpec) { s.DisplayName = strings.Repeat("a", 257) }),
		spec("scope", "scope", func(s *pb.SourceSpec) { s.Scope = "a/b" }),
		spec("pool", "pool", func(s *pb.SourceSpec) { s.Pool = "EU" }),
		spec("label", "labels[k]", func(s *pb.SourceSpec) { s.Labels = map[string]string{"k": strings.Repeat("v", 129)} }),
		spec("seed without URL", "seeds[0].url", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{}} }),
		spec("seed that does not parse", "seeds[0].url", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{Url: "http://[::1"}} }),
		spec("seed with a space in its host", "seeds[0].url", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{Url: "http://a .example/"}} }),
		spec("seeds that are the same escaped", "seeds[1]", func(s *pb.SourceSpec) {
			s.Seeds = []*pb.Seed{{Url: "http://example.com/a b?c d"}, {Url: "http://example.com/a%20b?c%20d"}}
		}),
		spec("seed without host", "seeds[0].url", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{Url: "http:///path"}} }),
		spec("seed with queue with brace", "seeds[0].queue", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{Key: "k", Queue: "{q}"}} }),
		spec("seeds that are the same", "seeds[1]", func(s *pb.SourceSpec) {
			s.Seeds = []*pb.Seed{{Url: "http://example.com"}, {Url: "http://EXAMPLE.com/#x"}}
		}),
		spec("short every", "schedule.every", func(s *pb.SourceSpec) { s.Schedule = every(time.Millisecond) }),
		spec("negative every", "schedule.every", func(s *pb.SourceSpec) { s.Schedule = every(-time.Hour) }),
		spec("cron that does not parse", "schedule.cron", func(s *pb.SourceSpec) { s.Schedule = cron("61 * * * *", "") }),
		spec("empty cron", "schedule.cron", func(s *pb.SourceSpec) { s.Schedule = cron("", "") }),
		spec("time zone", "schedule.time_zone", func(s *pb.SourceSpec) { s.Schedule = cron("@daily", "Mars/Olympus") }),
		spec("adaptive without bounds", "schedule.adaptive.min_interval", func(s *pb.SourceSpec) {
			s.Schedule = &pb.Schedule{Rule: &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{}}}
		}),
		spec("adaptive without an end", "schedule.adaptive.max_interval", func(s *pb.SourceSpec) {
			s.Schedule = adaptive(time.Hour, 367*24*time.Hour)
		}),
		spec("adaptive upside down", "schedule.adaptive.max_interval", func(s *pb.SourceSpec) { s.Schedule = adaptive(time.Hour, time.Minute) }),
		spec("jitter of an interval", "schedule.jitter", func(s *pb.SourceSpec) {
			s.Schedule = every(time.Hour)
			s.Schedule.Jitter = durationpb.New(time.Hour)
		}),
		spec("negative jitter", "schedule.jitter", func(s *pb.SourceSpec) { s.Schedule = &pb.Schedule{Jitter: durationpb.New(-1)} }),
		spec("priority", "priority", func(s *pb.SourceSpec) { s.Priority = &ten }),
		spec("lease_duration", "lease_duration", func(s *pb.SourceSpec) { s.LeaseDuration = durationpb.New(2 * time.Hour) }),
		spec("max_hold below lease", "max_hold", func(s *pb.SourceSpec) {
			s.LeaseDuration, s.MaxHold = durationpb.New(time.Minute), durationpb.New(time.Second)
		}),
		spec("no attempts", "retry.max_attempts", func(s *pb.SourceSpec) { s.Retry = &pb.RetryPolicy{MaxAttempts: &zero} }),
		spec("negative backoff", "retry.min_backoff", func(s *pb.SourceSpec) { s.Retry = &pb.RetryPolicy{MinBackoff: durationpb.New(-1)} }),
		spec("remember", "remember", func(s *pb.SourceSpec) { s.Remember = durationpb.New(time.Second) }),
		spec("expression", "follow.include[0]", func(s *pb.SourceSpec) { s.Follow = &pb.Follow{Include: []string{"("}} }),
		spec("max_depth", "follow.max_depth", func(s *pb.SourceSpec) { s.Follow = &pb.Follow{MaxDepth: proto.Int32(10_001)} }),
		spec("host", "follow.allow_hosts[0]", func(s *pb.SourceSpec) { s.Follow = &pb.Follow{AllowHosts: []string{"*."}} }),
		spec("long host", "follow.allow_hosts[1]", func(s *pb.SourceSpec) {
			s.Follow = &pb.Follow{AllowHosts: []string{"*." + strings.Repeat("a", 259), "*." + strings.Repeat("a", 260)}}
		}),
		spec("hosts", "follow.allow_hosts", func(s *pb.SourceSpec) { s.Follow = &pb.Follow{AllowHosts: make([]string, 1001)} }),
		spec("metadata", "metadata", func(s *pb.SourceSpec) { s.Metadata = map[string]string{"k": strings.Repeat("v", 8<<10)} }),
		spec("payload", "payload", func(s *pb.SourceSpec) { s.Payload = make([]byte, 256<<10+1) }),
	}
}
