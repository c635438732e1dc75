package sourceimport_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourceimport"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// What is uploaded is read as the command reads it: feeds with their names and categories, twice the same once, and what is wrong by its
// line.
func TestReadForConsole(t *testing.T) {
	t.Parallel()
	const text = `<opml version="2.0"><body>
<outline text="News"><outline type="rss" text="A" xmlUrl="https://a.example/feed"/></outline>
<outline type="rss" text="A" xmlUrl="https://a.example/feed"/>
<outline type="rss" text="B" xmlUrl="https://b.example/feed"/>
<outline type="include" text="C" xmlUrl="https://c.example/more.opml"/>
</body></opml>`
	every := &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(time.Hour)}}
	got, err := sourceimport.ReadForConsole(strings.NewReader(text), "feeds.opml", every)
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	a, b, c := got[0], got[1], got[2]
	if spec := a.Spec; a.Line != 2 || spec.GetId() != "a.example_feed" || spec.GetDisplayName() != "A" || spec.GetLabels()["category"] != "News" || spec.GetScope() != "import" ||
		spec.GetSchedule().GetEvery().AsDuration() != time.Hour || spec.GetFirstCrawl() != pb.FirstCrawl_FIRST_CRAWL_SPREAD || spec.GetSeeds()[0].GetKind() != "feed" {
		t.Errorf("%v", a)
	}
	if b.Line != 4 || b.Fault != "" || c.Line != 5 || c.Fault == "" || c.Spec != nil {
		t.Errorf("%v, %v", b, c)
	}
	if got, err := sourceimport.ReadForConsole(strings.NewReader("https://a.example/\nnothing\n"), "x", nil); err != nil || len(got) != 2 || got[0].Spec.GetFirstCrawl() != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := sourceimport.ReadForConsole(strings.NewReader("<opml><body>"), "x.opml", nil); err == nil {
		t.Errorf("a file that is cut short is %v", got)
	}
}
