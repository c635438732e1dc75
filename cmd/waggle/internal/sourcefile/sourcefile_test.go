package sourcefile_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// got is what a file was read as.
type got struct {
	entries []sourcefile.Entry
	format  sourcefile.Format
	err     error // why it could not be read further
}

func read(in io.Reader, name string, format sourcefile.Format) got {
	r, format, err := sourcefile.Open(in, name, format)
	g := got{format: format, err: err}
	for err == nil {
		var entry sourcefile.Entry
		if entry, err = r.Next(); err == nil {
			g.entries = append(g.entries, entry)
		}
	}
	if !errors.Is(err, io.EOF) {
		g.err = err
	}
	return g
}

// brief writes an entry as "line kind url labels name" or "line !error".
func brief(e sourcefile.Entry) string {
	if e.Err != nil {
		return fmt.Sprintf("%d !%v", e.Line, e.Err)
	}
	text := fmt.Sprint(e.Line)
	for _, seed := range e.Spec.GetSeeds() {
		text += " " + seed.GetKind() + ":" + seed.GetUrl()
	}
	if category := e.Spec.GetLabels()["category"]; category != "" {
		text += " in " + category
	}
	if name := e.Spec.GetDisplayName(); name != "" {
		text += " named " + name
	}
	return text
}

func (g got) want(t *testing.T, format sourcefile.Format, want ...string) {
	t.Helper()
	var have []string
	for _, e := range g.entries {
		have = append(have, brief(e))
	}
	if g.format != format || g.err != nil || !slices.Equal(have, want) {
		t.Errorf("%s, %v:\n%s\nwant %s:\n%s", g.format, g.err, strings.Join(have, "\n"), format, strings.Join(want, "\n"))
	}
}

func TestOpen_URLs(t *testing.T) {
	t.Parallel()
	read(strings.NewReader("\ufeff# list\r\nhttps://a.example/\r\n\r\n  https://b.example/x  \nhttps://c.example/\xff\nhttps://d.example"), "urls.txt", "").
		want(t, sourcefile.URLs, "2 :https://a.example/", "4 :https://b.example/x", "5 !is not in UTF-8", "6 :https://d.example")
}

func TestOpen_OPML(t *testing.T) {
	t.Parallel()
	const file = `<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE opml>
<opml version="2.0"><head><title>x</title></head><body>
<outline text="News"><outline text="World">
<outline type="rss" text="A &amp; ` + "\xe9" + `" xmlUrl="https://a.example/rss?x=1&amp;y=2" htmlUrl="https://a.example/"/>
</outline><outline title="B" xmlUrl="https://b.example/two words"/></outline>
<outline type="rss" text="lost"/>
<outline type="link" text="C" url="https://c.example/" category="/Top/Sub"/>
<outline text="holder" xmlUrl="https://d.example/"><outline text="inner" xmlUrl="https://e.example/"/></outline>
</body></opml>`
	read(strings.NewReader(file), "feeds.xml", "").want(t, sourcefile.OPML,
		"5 feed:https://a.example/rss?x=1&y=2 in News/World named A & é", "6 feed:https://b.example/two%20words in News named B",
		`7 !outline "lost" is a feed without xmlUrl`, "8 :https://c.example/ in Top/Sub named C",
		"9 feed:https://d.example/ named holder", "9 feed:https://e.example/ named inner")
}

func TestOpen_CSV(t *testing.T) {
	t.Parallel()
	file := "\ufeffURL;Title;labels;every;follow\r\n" +
		"https://a.example/ https://a.example/2;\"A; \"\"quoted\"\"\r\nand on\";category=x y;1h;seeds\r\n" +
		"https://b.example/;B;;soon;\r\n" +
		";C;;;\r\n" +
		"https://d.example/;D\r\n" +
		"https://e.example/;\"E\"x;;;\r\n" +
		"https://f.example/;F;no pair;;\r\n" +
		"https://g.example/;\xff;;;\r\n" +
		"https://h.example/;H;;7d12h;*.h.example h.example\r\n"
	g := read(strings.NewReader(file), "x.csv", "")
	g.want(t, sourcefile.CSV,
		"2 :https://a.example/ :https://a.example/2 in x y named A; \"quoted\"\nand on",
		`4 !every "soon": "soon" is no duration; say 90s, 1h30m or 30d`,
		"5 !there is neither a url nor an id",
		"6 !has 2 fields, the header 5",
		`7 !extraneous or missing " in quoted-field`,
		`8 !labels "no pair": "no pair" is not key=value`,
		"9 !column name is not in UTF-8",
		"10 :https://h.example/ named H")
	last := g.entries[len(g.entries)-1].Spec
	if last.GetSchedule().GetEvery().AsDuration() != 180*time.Hour || !slices.Equal(last.GetFollow().GetAllowHosts(), []string{"*.h.example", "h.example"}) {
		t.Errorf("read %v", last)
	}
	if f := g.entries[0].Spec.GetFollow(); f == nil || len(f.GetAllowHosts()) != 0 {
		t.Errorf("follow %v", f)
	}
}

func TestOpen_CSV_refuses(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                          "the CSV is empty",
		"url,color\n":               `column "color" is not known; there are id, url`,
		"url,seeds\n":               `column "url" is there twice`,
		"name,pool\n":               "neither a column url nor id",
		"\"url\nhttps://a.example/": "header",
	} {
		if g := read(strings.NewReader(file), "x.csv", ""); g.err == nil || !strings.Contains(g.err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, g.err, want)
		}
	}
}

func TestOpen_JSONL(t *testing.T) {
	t.Parallel()
	file := `{"id": "a", "seeds": [{"url": "https://a.example/"}]}

{"spec": {"id": "b", "seeds": [{"url": "https://b.example/"}]}, "etag": "x"}
{"id": "c", "color": "red"}
[1]
{"id":
{
  "id": "d",
  "seeds": [
    {
      "url": "https://d.example/"
    }
  ]
}
{"id": "e"}
{"schedule": {"every": "1h30m"}}
{"schedule": {"every": "often"}}
{
  "id": "cut off"`
	read(strings.NewReader(file), "-", "").want(t, sourcefile.JSONL,
		"1 :https://a.example/", "3 :https://b.example/",
		`4 !is no SourceSpec: (line 1:13): unknown field "color"`,
		"5 !is no JSON object: it is of JSON's type array",
		"6 !is no JSON object: unexpected end of JSON input",
		"7 :https://d.example/", "15",
		`16 !is no SourceSpec: (line 1:24): "1h30m" is no duration in JSON, where it is in seconds, as "5400s"`,
		`17 !is no SourceSpec: (line 1:24): "often" is no duration in JSON, where it is in seconds, as "90s"`,
		"18 !the file ends within it")
}

func TestOpen_Sitemap(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, `<?xml version="1.0"?><sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<sitemap><loc> https://a.example/1.xml </loc><lastmod>2026-01-01</lastmod></sitemap>
<sitemap><lastmod>2026-01-01</lastmod></sitemap></sitemapindex>`)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	read(&zipped, "sitemap.xml.gz", "").want(t, sourcefile.Sitemap, "2 sitemap:https://a.example/1.xml", "3 !the <sitemap> has no <loc>")
	read(strings.NewReader(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
<url><loc>https://a.example/?a=1&amp;b=2</loc><image:image><image:loc>https://a.example/i.png</image:loc></image:image></url>
<url><loc><![CDATA[https://b.example/]]></loc></url></urlset>`), "-", "").
		want(t, sourcefile.Sitemap, "2 :https://a.example/?a=1&b=2", "3 :https://b.example/")
}

// UTF-16 is what some desktop programs export.
func TestOpen_UTF16(t *testing.T) {
	t.Parallel()
	text := []byte{0xff, 0xfe}
	for _, r := range `<?xml version="1.0" encoding="utf-16"?><opml><body><outline xmlUrl="https://a.example/"/></body></opml>` {
		text = append(text, byte(r), 0)
	}
	read(bytes.NewReader(text), "-", "").want(t, sourcefile.OPML, "1 feed:https://a.example/")
}

// What cannot be read further says where, and what came before it is given.
func TestOpen_broken(t *testing.T) {
	t.Parallel()
	const feed = `<outline xmlUrl="https://a.example/"/>`
	for name, c := range map[string]struct {
		file, want string
		entries    int
	}{
		"cut off":       {"<opml><body>\n" + feed + "\n<outline", "line 3: XML syntax error", 1},
		"ends inside":   {"<opml><body>" + feed, "unexpected EOF", 1},
		"not closed":    {"<opml><body>" + feed + "\n<outline text=\"x\"></body>", "closed by </body>", 1},
		"entity":        {`<!DOCTYPE o [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><opml><body>` + feed + `<outline xmlUrl="&b;"/></body></opml>`, "invalid character entity &b;", 1},
		"deep":          {"<opml><body>" + feed + strings.Repeat("<outline text='x'>", 200), "more than 100 deep", 1},
		"charset":       {`<?xml version="1.0" encoding="klingon"?><opml/>`, "klingon", 0},
		"a feed":        {`<rss version="2.0"><channel/></rss>`, "is a feed itself", 0},
		"a page":        {"<html><body>", "is neither OPML nor a sitemap", 0},
		"sitemap ends":  {`<urlset><url><loc>https://a.example/</loc></url><url><loc>x`, "unexpected EOF", 1},
		"no element":    {"<!-- nothing -->", "no XML element", 0},
		"gzip cut off":  {"\x1f\x8b\x08", "gzip", 0},
		"opml by name?": {`<opml><body><outline xmlUrl="` + strings.Repeat("x", 10<<20) + `"/></body></opml>`, "longer than 4194304 bytes", 0},
	} {
		g := read(strings.NewReader(c.file), "-", "")
		if g.err == nil || !strings.Contains(g.err.Error(), c.want) || len(g.entries) != c.entries {
			t.Errorf("%s: %d entries, %v; want %d, %q", name, len(g.entries), g.err, c.entries, c.want)
		}
	}
	if g := read(strings.NewReader("nonsense"), "feeds.opml", ""); g.err == nil || !strings.Contains(g.err.Error(), "no <opml>") {
		t.Errorf("no XML in a file said to be OPML: %v", g.err)
	}
	if g := read(strings.NewReader("x"), "x", "yaml"); g.err == nil || !strings.Contains(g.err.Error(), "csv, jsonl, opml, sitemap, urls") {
		t.Errorf("unknown format: %v", g.err)
	}
}

// A line of 10 MB is one wrong entry, or the end of the file where nobody can
// tell where the next begins.
func TestOpen_longLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10<<20)
	read(strings.NewReader("https://a.example/\n"+long+"\nhttps://b.example/\n"), "-", "").
		want(t, sourcefile.URLs, "1 :https://a.example/", "2 !an entry is longer than 4194304 bytes", "3 :https://b.example/")
	read(strings.NewReader(`{"id":"`+long+"\"}\n{\"id\":\"a\"}\n"), "-", sourcefile.JSONL).
		want(t, sourcefile.JSONL, "1 !an entry is longer than 4194304 bytes", "2")
	g := read(strings.NewReader("url\nhttps://a.example/\n\""+long+"\nhttps://b.example/\n"), "x.csv", "")
	if g.err == nil || !strings.Contains(g.err.Error(), "after line 2: an entry is longer than 4194304 bytes: is a quote not closed?") || len(g.entries) != 1 {
		t.Errorf("csv: %d entries, %v", len(g.entries), g.err)
	}
}

// endless gives a beginning, and then a part again and again.
type endless struct {
	part string
	left int
	rest string
}

func (e *endless) Read(p []byte) (int, error) {
	if e.rest == "" {
		if e.left == 0 {
			return 0, io.EOF
		}
		e.left--
		e.rest = e.part
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// A file is gone through in little memory, however long it is.
func TestOpen_memory(t *testing.T) {
	for format, file := range map[sourcefile.Format]*endless{
		sourcefile.URLs:    {part: "https://a.example/\n"},
		sourcefile.CSV:     {rest: "url,name\n", part: "https://a.example/,A\n"},
		sourcefile.JSONL:   {part: `{"id":"a"}` + "\n"},
		sourcefile.OPML:    {rest: "<opml><body>", part: `<outline text="a" xmlUrl="https://a.example/"/>`},
		sourcefile.Sitemap: {rest: "<urlset>", part: "<url><loc>https://a.example/</loc></url>"},
	} {
		file.left = 50_000
		r, _, err := sourcefile.Open(file, "-", format)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		n := 0
		for ; ; n++ {
			if n == 1000 {
				runtime.GC()
				runtime.ReadMemStats(&before)
			}
			if _, err := r.Next(); err != nil {
				break
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); n < 50_000 || grown > 4<<20 {
			t.Errorf("%s: %d entries, %d bytes more at the end", format, n, grown)
		}
		runtime.KeepAlive(r)
	}
}

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
	for _, format := range []sourcefile.Format{sourcefile.JSONL, sourcefile.CSV, sourcefile.OPML} {
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
		if g.format != format || g.err != nil || len(g.entries) != len(specs)+1 {
			t.Fatalf("%s: %s, %d entries, %v\n%s", format, g.format, len(g.entries), g.err, written)
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

func TestCreate_URLs(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	w, err := sourcefile.Create(&file, sourcefile.URLs)
	if err != nil {
		t.Fatal(err)
	}
	if lost, err := w.Write(&pb.SourceSpec{Id: "empty"}); err != nil || !slices.Equal(lost, sourcefile.NothingHeld()) {
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
	read(&file, "-", "").want(t, sourcefile.URLs, "1 :https://a.example/x", "2 :https://example.com/?a=1&b=2", "3 :https://example.com/2")
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

func TestID(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://example.com":                           "example.com",
		"https://example.com/feeds/rss.xml":             "example.com_feeds_rss.xml",
		"https://example.com/":                          "example.com",
		"http://example.com/":                           "example.com-2a1b402420",
		"https://example.com/feeds/":                    "",
		"https://Example.com/Feeds?b=1&a=2#x":           "",
		"https://example.com:8443/a":                    "",
		"https://example.com/a_b":                       "",
		"https://bücher.example/ä":                      "",
		"no url":                                        "",
		"https://a.example/" + strings.Repeat("x", 300): "",
	} {
		id := sourcefile.ID("", url)
		if want != "" && id != want {
			t.Errorf("%s: %s, want %s", url, id, want)
		}
		if id == "" || len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
		}) || id != sourcefile.ID("", url) {
			t.Errorf("%s: %q", url, id)
		}
		if long := sourcefile.ID(strings.Repeat("p", 100), url); len(long) > 128 {
			t.Errorf("%s: %d bytes with a prefix", url, len(long))
		}
	}
	ids := map[string]string{}
	for _, url := range []string{
		"https://a.example/b_c", "https://a.example/b/c", "https://a.example/b/c/", "http://a.example/b/c", "https://a.example/b/c?x",
		"https://a.example/B/c", "https://a.example/b%2Fc", "https://a.example/b//c", "https://a.example//b/c", "https://a.example/b/c#f",
	} {
		id := sourcefile.ID("", url)
		if other, taken := ids[id]; taken {
			t.Errorf("%s and %s are both %s", url, other, id)
		}
		ids[id] = url
	}
}
