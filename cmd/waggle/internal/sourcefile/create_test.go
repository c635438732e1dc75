package sourcefile_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func rich() *pb.SourceSpec {
	return &pb.SourceSpec{
		Id: "news.full", DisplayName: `Full, "quoted" & <strange>`, Labels: map[string]string{"category": "a/b", "team": "x"}, Scope: "shared", CanonicalRules: 2,
		Seeds: []*pb.Seed{{Url: "https://example.com/?a=1&b=2", Kind: "list"}, {Url: "https://example.com/2", Kind: "list"}}, Pool: "browser",
		Schedule:   &pb.Schedule{Rule: &pb.Schedule_Cron{Cron: "0 6 * * *"}, TimeZone: "Europe/Berlin", Revisit: true},
		FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_SPREAD, Priority: proto.Int32(0),
		LeaseDuration: durationpb.New(time.Minute), MaxHold: durationpb.New(time.Hour),
		Retry: &pb.RetryPolicy{
			MaxAttempts: proto.Int32(2), MaxExpirations: proto.Int32(3), MaxThrottled: proto.Int32(4),
			MinBackoff: durationpb.New(1500 * time.Millisecond), MaxBackoff: durationpb.New(time.Minute),
		},
		Remember: durationpb.New(36 * time.Hour), RevisitAfter: durationpb.New(2 * time.Hour),
		Follow:         &pb.Follow{MaxDepth: proto.Int32(0), AllowHosts: []string{"example.com", "*.example.org"}, Include: []string{"/a/", "with space"}, Exclude: []string{"x$", "y,z"}},
		MaxOutstanding: proto.Int64(1000), Metadata: map[string]string{"a": "b", "c": "d=e;f%3B"},
	}
}

// What a writer writes, the reader of the format reads.
func TestCreate_roundTrip(t *testing.T) {
	t.Parallel()
	feed := &pb.SourceSpec{
		Id: "feed", Seeds: []*pb.Seed{{Url: "https://f.example/", Kind: "feed"}}, FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_NOW,
		Schedule: &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(90 * time.Minute)}}, Follow: &pb.Follow{},
	}
	page := &pb.SourceSpec{Id: "page", DisplayName: "P", Seeds: []*pb.Seed{{Url: "https://p.example/"}}, Schedule: &pb.Schedule{
		Rule: &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{
			MinInterval: durationpb.New(10 * time.Minute), MaxInterval: durationpb.New(7 * 24 * time.Hour),
		}},
		Jitter: durationpb.New(5 * time.Minute),
	}}
	empty := &pb.SourceSpec{Id: "empty"}
	hard := rich()
	hard.Payload, hard.Seeds[1].Key, hard.Metadata["s"], hard.Follow.Include = []byte("p"), "k", "a;b", []string{"a\nb"}
	for _, format := range []sourcefile.Format{sourcefile.JSONL, sourcefile.CSV} {
		var file bytes.Buffer
		w, err := sourcefile.Create(&file, format)
		if err != nil {
			t.Fatal(err)
		}
		specs := []*pb.SourceSpec{rich(), feed, page, empty}
		for _, spec := range specs {
			if lost, err := w.Write(spec); err != nil || len(lost) > 0 {
				t.Errorf("%s: %s loses %v, %v", format, spec.GetId(), lost, err)
			}
		}
		lost, err := w.Write(hard)
		if want := []string{"follow", "payload", "seeds"}; err != nil || format != sourcefile.JSONL && !slices.Equal(lost, want) {
			t.Errorf("%s: the hard one loses %v, %v, want %v", format, lost, err, want)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		written := file.String()
		g := read(&file, "-", "")
		if g.err != nil || len(g.entries) != len(specs)+1 {
			t.Fatalf("%s: %d entries, %v\n%s", format, len(g.entries), g.err, written)
		}
		for i, spec := range specs {
			if e := g.entries[i]; e.Err != nil || !proto.Equal(e.Spec, spec) {
				t.Errorf("%s: wrote %v\nread %v, %v", format, spec, e.Spec, e.Err)
			}
		}
		if format == sourcefile.JSONL && !proto.Equal(g.entries[len(specs)].Spec, hard) {
			t.Errorf("%s: read %v", format, g.entries[len(specs)].Spec)
		}
	}
}

// OPML carries URLs, names and folders; what else a source has is named.
func TestCreate_OPML(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	w, err := sourcefile.Create(&file, sourcefile.OPML)
	if err != nil {
		t.Fatal(err)
	}
	feed := &pb.SourceSpec{
		Id: "f.example_rss", DisplayName: `"F" & <f>`, Seeds: []*pb.Seed{{Url: "https://f.example/rss", Kind: "feed"}}, Labels: map[string]string{"category": "News/World"},
	}
	if lost, err := w.Write(feed); err != nil || len(lost) > 0 {
		t.Errorf("lost %v, %v", lost, err)
	}
	plain := &pb.SourceSpec{Id: "plain", Seeds: []*pb.Seed{{Url: "https://p.example/?a=1&b=2"}}, Priority: proto.Int32(7)}
	if lost, err := w.Write(plain); err != nil || !slices.Equal(lost, []string{"display_name", "id", "priority"}) {
		t.Errorf("lost %v, %v", lost, err)
	}
	if lost, err := w.Write(&pb.SourceSpec{Id: "empty"}); err != nil || !slices.Equal(lost, []string{sourcefile.Everything}) {
		t.Errorf("lost %v, %v", lost, err)
	}
	controls := &pb.SourceSpec{Id: "c.example", DisplayName: "C\x01", Seeds: []*pb.Seed{{Url: "\x02https://c.example"}}}
	if lost, err := w.Write(controls); err != nil || !slices.Equal(lost, []string{"display_name", "seeds"}) {
		t.Errorf("lost %v of characters that XML does not have, %v", lost, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	read(&file, "-", "").want(t, `5 feed:https://f.example/rss in News/World named "F" & <f>`, "6 :https://p.example/?a=1&b=2 named plain",
		"7 :\uFFFDhttps://c.example named C\uFFFD")
}

func TestCreate_URLs(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	w, err := sourcefile.Create(&file, sourcefile.URLs)
	if err != nil {
		t.Fatal(err)
	}
	if lost, err := w.Write(&pb.SourceSpec{Id: "empty"}); err != nil || !slices.Equal(lost, []string{sourcefile.Everything}) {
		t.Errorf("lost %v, %v", lost, err)
	}
	plain := &pb.SourceSpec{Id: "a.example_x", Seeds: []*pb.Seed{{Url: "https://a.example/x"}}}
	if lost, err := w.Write(plain); err != nil || len(lost) != 0 {
		t.Errorf("lost %v, %v", lost, err)
	}
	lost, err := w.Write(rich())
	if err != nil || !slices.Contains(lost, "id") || !slices.Contains(lost, "schedule") || !slices.Contains(lost, "seeds") {
		t.Errorf("lost %v, %v", lost, err)
	}
	read(&file, "-", "").want(t, "1 :https://a.example/x", "2 :https://example.com/?a=1&b=2", "3 :https://example.com/2")
	if _, err := sourcefile.Create(&file, sourcefile.Sitemap); err == nil {
		t.Error("a sitemap can be written")
	}
}

// Defaults that the server fills in are left out, so that what was applied and
// exported is what was written.
func TestMinimal(t *testing.T) {
	t.Parallel()
	filled := &pb.SourceSpec{
		Id: "a", Pool: "default", Priority: proto.Int32(5), LeaseDuration: durationpb.New(30 * time.Second), MaxHold: durationpb.New(30 * time.Minute),
		Retry: &pb.RetryPolicy{
			MaxAttempts: proto.Int32(4), MaxExpirations: proto.Int32(5), MaxThrottled: proto.Int32(20),
			MinBackoff: durationpb.New(10 * time.Second), MaxBackoff: durationpb.New(time.Hour),
		},
		Remember: durationpb.New(30 * 24 * time.Hour), FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_NOW,
	}
	if got := sourcefile.Minimal(filled); !proto.Equal(got, &pb.SourceSpec{Id: "a", FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_NOW}) {
		t.Errorf("left %v", got)
	}
	if got := sourcefile.Minimal(rich()); !proto.Equal(got, rich()) {
		t.Errorf("left %v", got)
	}
}
