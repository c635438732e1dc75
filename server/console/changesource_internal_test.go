package console

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// What a form shows of a schedule it reads back as the same.
func TestScheduleOf(t *testing.T) {
	t.Parallel()
	v := &visit{text: allTexts()[english]}
	for text, want := range map[string]*pb.Schedule{
		"30m": {Rule: &pb.Schedule_Every{Every: durationpb.New(30 * time.Minute)}}, "1h": {Rule: &pb.Schedule_Every{Every: durationpb.New(time.Hour)}},
		"1h30m": {Rule: &pb.Schedule_Every{Every: durationpb.New(90 * time.Minute)}}, "90s": nil, "10s": {Rule: &pb.Schedule_Every{Every: durationpb.New(10 * time.Second)}},
		"7d": {Rule: &pb.Schedule_Every{Every: durationpb.New(7 * 24 * time.Hour)}}, "0 6 * * *": {Rule: &pb.Schedule_Cron{Cron: "0 6 * * *"}}, "@daily": {Rule: &pb.Schedule_Cron{Cron: "@daily"}},
		"10m..7d": {Rule: &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{MinInterval: durationpb.New(10 * time.Minute), MaxInterval: durationpb.New(7 * 24 * time.Hour)}}},
		"1h0m5s":  {Rule: &pb.Schedule_Every{Every: durationpb.New(time.Hour + 5*time.Second)}}, "100ms": nil, "": nil,
	} {
		got, err := v.scheduleOf(&pb.Schedule{Revisit: true}, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		again, err := v.scheduleOf(nil, scheduleText(got))
		if err != nil || scheduleText(again) != scheduleText(got) || want != nil && scheduleText(want) != text {
			t.Errorf("%q: %v, then %v, %v; %q", text, got, again, err, scheduleText(want))
		}
		if text != "" && !got.GetRevisit() {
			t.Errorf("%q: what else the schedule has is lost", text)
		}
	}
	for _, text := range []string{"soon", "1", "-", "d", "xd", "99999d", "5m..", "..5m", "5m..x", "1d1d"} {
		if got, err := v.scheduleOf(nil, text); err == nil && !(got.GetAdaptive() != nil && (got.GetAdaptive().GetMinInterval() == nil || got.GetAdaptive().GetMaxInterval() == nil)) {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"news.a": "news.a", "it's": `'it'\''s'`, "": "''", "a b": "'a b'", "$(x)": "'$(x)'", "*.example": "'*.example'"} {
		if got := quoted(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
