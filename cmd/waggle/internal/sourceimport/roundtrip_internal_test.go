package sourceimport

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/store"
)

// served is a client of a server on a memory store.
func served(t testing.TB) pb.SourceServiceClient {
	t.Helper()
	store, err := store.New(store.Config{})
	must(t, err)
	d, err := engine.New(engine.Config{Store: store, ID: "d1"})
	must(t, err)
	s, err := server.New(server.Config{}, operate.New(d), zap.NewNop())
	must(t, err)
	listener := bufconn.Listen(1 << 20)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.RunOn(ctx, listener, nil) }()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	must(t, err)
	t.Cleanup(func() {
		must(t, conn.Close())
		stop()
		must(t, <-ended)
		must(t, store.Close())
	})
	return pb.NewSourceServiceClient(conn)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// imported are the entries that an import of a text would send.
func imported(t testing.TB, text string, format sourcefile.Format) (specs []*pb.SourceSpec) {
	t.Helper()
	entries, err := sourcefile.Read(strings.NewReader(text), "-", format)
	if err != nil && !placed.MatchString(err.Error()) {
		t.Errorf("%q: the error %q names no line", text, err)
	}
	j := job{flags: &importFlags{}, byID: map[string]*entry{}}
	j.take(entries)
	last, size := strings.Count(text, "\n")+1, 0
	for _, e := range j.entries {
		if size += proto.Size(e.spec) + len(e.message); e.line < 1 || e.line > last {
			t.Errorf("an entry of line %d, in a file of %d lines: %v %s", e.line, last, e.spec, e.message)
		}
		if e.result == "" {
			specs = append(specs, e.spec)
		}
	}
	// Ids, labels and errors are of limited size, and the rest is in the file.
	if size > 8*len(text)+1000*len(entries) {
		t.Errorf("%d bytes of %d entries were made of a file of %d bytes", size, len(entries), len(text))
	}
	return specs
}

// placed is an error of a file that names a line, or is of the whole file.
var placed = regexp.MustCompile(`line \d+|^the CSV is empty|^there is no <opml> in it|^gzip:|encoding`)

// accepted are the specs that a dispatcher would take.
func accepted(t testing.TB, sources pb.SourceServiceClient, specs []*pb.SourceSpec) (taken []*pb.SourceSpec) {
	t.Helper()
	if len(specs) == 0 {
		return nil
	}
	specs = specs[:min(len(specs), maxApply)]
	reply, err := sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: specs, ValidateOnly: true})
	must(t, err)
	for i, result := range reply.GetResults() {
		if result.GetCode() == pb.ApplyCode_APPLY_CODE_CREATED {
			taken = append(taken, specs[i])
		}
	}
	return taken
}

// wantRoundTrip fails the test if sources that were imported are others when they are exported and imported again.
func wantRoundTrip(t testing.TB, sources pb.SourceServiceClient, text string, format sourcefile.Format) {
	t.Helper()
	specs := accepted(t, sources, imported(t, text, format))
	for _, format := range []sourcefile.Format{sourcefile.CSV, sourcefile.JSONL, sourcefile.OPML} {
		for _, spec := range specs {
			var file bytes.Buffer
			w, err := sourcefile.Create(&file, format)
			must(t, err)
			lost, err := w.Write(spec)
			must(t, err)
			must(t, w.Close())
			if len(lost) > 0 && format != sourcefile.OPML {
				t.Errorf("%s cannot hold %v of %v", format, lost, spec)
			}
			again := imported(t, file.String(), format)
			if len(lost) == 0 && (len(again) != 1 || !proto.Equal(sourcefile.Minimal(again[0]), sourcefile.Minimal(spec))) {
				t.Errorf("%s: of %v came back %v\n%s", format, spec, again, file.String())
			}
		}
	}
}

const csvSeed = "id;url;kind;queue;name;labels;scope;canonical_rules;pool;priority;metadata;every;jitter;revisit;first_crawl;follow;max_depth;include;exclude\n" +
	"a.b;https://a.example/ https://a.example/2;feed;q.example;\"A; \"\"b\"\"\";x=y%3B;z=1;s;2;eu;7;k=v;1h30m;5m;true;spread;*.a.example b;3;a+;\"b\nc\"\n"

// FuzzImport_csv and FuzzImport_opml hold an import to its promises: whatever the file, its errors name lines, what
// it makes is bounded by the size of the file, and what a dispatcher takes comes back from an export.
func FuzzImport_csv(f *testing.F) {
	sources := served(f)
	f.Add(csvSeed)
	f.Add("url,name,labels,every,follow\nhttps://a.example/,\"A\nB\",category=x,1h,seeds\nhttps://b.example/,,,soon,\n")
	f.Add("id\turl\tadaptive\tlease_duration\tmax_hold\tmax_attempts\tmin_backoff\tremember\tmax_outstanding\n" +
		"x\thttps://a.example/\t10m..7d\t1m\t1h\t3\t1.5s\t36h\t10\n")
	f.Add("url,cron,time_zone\nfeed:https://a.example/?a=1&b=2,0 6 * * *,Europe/Berlin\nhttps://a.example/,@daily,\n")
	f.Add("id,metadata\nx,a=%253B\nx,\"a=b\n")
	f.Fuzz(func(t *testing.T, text string) { wantRoundTrip(t, sources, text, sourcefile.CSV) })
}

func FuzzImport_opml(f *testing.F) {
	sources := served(f)
	const begin, end = `<?xml version="1.0"?><opml version="2.0"><body>` + "\n", "</body></opml>"
	f.Add(begin + `<outline text="News"><outline text="A &amp; b" xmlUrl="https://a.example/rss?x=1&amp;y=2"/></outline>` + "\n" +
		`<outline type="link" text="C" url="https://c.example/two words" category="/Top/Sub"/>` + end)
	f.Add(begin + `<outline text="A&nbsp;&B &NewLine;" xmlUrl="feed:https://a.example/"/><outline type="rss" text="lost"/>` + end)
	f.Add(begin + `<!-- <outline xmlUrl="x"/> --><![CDATA[<outline/>]]><outline title='&#13;&#x85;' xmlUrl="http://b.example/"></outline>`)
	f.Add(`<?xml version="1.0" encoding="ISO-8859-1"?><x:opml xmlns:x="u"><x:body><x:outline text="` + "\xe9" + `" xmlUrl="https://a.example/"/></x:body></x:opml>`)
	f.Fuzz(func(t *testing.T, text string) { wantRoundTrip(t, sources, text, sourcefile.OPML) })
}

// Feeds in a folder with a long name have the begin of that name.
func TestImport_longFolder(t *testing.T) {
	t.Parallel()
	const feeds = 500
	var file strings.Builder
	fmt.Fprintf(&file, "<opml><body><outline text=%q>\n", strings.Repeat("n", 100_000))
	for i := range feeds {
		fmt.Fprintf(&file, "<outline xmlUrl=\"https://a.example/%d\"/>\n", i)
	}
	file.WriteString("</outline></body></opml>")
	specs, want := imported(t, file.String(), sourcefile.OPML), strings.Repeat("n", bounds.MaxIDLength)
	if len(specs) != feeds || specs[feeds-1].GetLabels()[sourcefile.CategoryLabel] != want {
		t.Errorf("%d feeds, want %d; the last is %v", len(specs), feeds, specs[len(specs)-1])
	}
}
