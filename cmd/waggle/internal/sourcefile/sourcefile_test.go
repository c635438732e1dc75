package sourcefile_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
)

// got is what a file was read as.
type got struct {
	entries []sourcefile.Entry
	err     error // why it could not be read further
}

func read(in io.Reader, name string, format sourcefile.Format) (g got) {
	g.entries, g.err = sourcefile.Read(in, name, format)
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

func (g got) want(t *testing.T, want ...string) {
	t.Helper()
	var have []string
	for _, e := range g.entries {
		have = append(have, brief(e))
	}
	if g.err != nil || !slices.Equal(have, want) {
		t.Errorf("%v:\n%s\nwant\n%s", g.err, strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

func TestRead_URLs(t *testing.T) {
	t.Parallel()
	read(strings.NewReader("\ufeff# list\r\nhttps://a.example/\r\n\r\n  https://b.example/x  \nhttps://c.example/\xff\nhttps://d.example"), "urls.txt", "").
		want(t, "2 :https://a.example/", "4 :https://b.example/x", "5 !is not in UTF-8", "6 :https://d.example")
}

func TestRead_OPML(t *testing.T) {
	t.Parallel()
	const file = `<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE opml>
<opml version="2.0"><head><title>x</title></head><body>
<outline text="News"><outline text="World">
<outline type="rss" text="A &amp; ` + "\xe9" + `" xmlUrl="https://a.example/rss?x=1&amp;y=2" htmlUrl="https://a.example/"/>
</outline><outline title="B" xmlUrl=" https://b.example/two words&#xA0;x&#12;"/></outline>
<outline type="rss" text="lost"/>
<outline type="link" text="C" url="https://c.example/" category="/Top/Sub"/>
<outline text="holder" xmlUrl="https://d.example/"><outline text="inner" xmlUrl="https://e.example/"/></outline>
</body></opml>`
	read(strings.NewReader(file), "feeds.xml", "").want(t,
		"5 feed:https://a.example/rss?x=1&y=2 in News/World named A & é", "6 feed:https://b.example/two%20words%C2%A0x in News named B",
		`7 !outline "lost" is a feed without xmlUrl`, "8 :https://c.example/ in Top/Sub named C",
		"9 feed:https://d.example/ named holder", "9 feed:https://e.example/ named inner")
}

func TestRead_CSV(t *testing.T) {
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
	g.want(t,
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

func TestRead_CSV_refuses(t *testing.T) {
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

func TestRead_JSONL(t *testing.T) {
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
	read(strings.NewReader(file), "-", "").want(t,
		"1 :https://a.example/", "3 :https://b.example/",
		`4 !is no SourceSpec: (line 1:13): unknown field "color"`,
		"5 !is no JSON object: it is of JSON's type array",
		"6 !is no JSON object: unexpected end of JSON input",
		"7 :https://d.example/", "15",
		`16 !is no SourceSpec: (line 1:24): "1h30m" is no duration in JSON, where it is in seconds, as "5400s"`,
		`17 !is no SourceSpec: (line 1:24): "often" is no duration in JSON, where it is in seconds, as "90s"`,
		"18 !the file ends within it")
}

func TestRead_Sitemap(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, `<?xml version="1.0"?><sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<sitemap><loc> https://a.example/1.xml </loc><lastmod>2026-01-01</lastmod></sitemap>
<sitemap><lastmod>2026-01-01</lastmod></sitemap></sitemapindex>`)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	read(&zipped, "sitemap.xml.gz", "").want(t, "2 sitemap:https://a.example/1.xml", "3 !the <sitemap> has no <loc>")
	read(strings.NewReader(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
<url><loc>https://a.example/?a=1&amp;b=2</loc><image:image><image:loc>https://a.example/i.png</image:loc></image:image></url>
<url><loc><![CDATA[https://b.example/]]></loc></url></urlset>`), "-", "").
		want(t, "2 :https://a.example/?a=1&b=2", "3 :https://b.example/")
}

// What is broken in one outline is mended, and told by its line, or is an error of that outline alone.
func TestRead_mends(t *testing.T) {
	t.Parallel()
	const file = `<?xml version="1.0"?>
<!DOCTYPE o [<!ENTITY b "no entity of a file is expanded">]>
<opml><head><title/></head><body><!-- a & b -->
<outline text="Q&A&nbsp;x">
<outline text="A & B" xmlUrl="https://a.example/?x=1&y=2&amp;z=&#51;"/>
<outline text="C" xmlUrl="feed://c.example/rss"></outline>
<outline text="D" xmlUrl="FEED:https://d.example/rss"/>
<outline text="E xmlUrl="https://e.example/"/>
<outline text="F < f" xmlUrl='https://f.example/' disabled></outline>
<outline text="G` + "\xff" + `" xmlUrl="https://g.example/"/>
<outline text=H xmlUrl="&b;"/>
</outline>
<outline text="open" xmlUrl="">
<outline text="I" xmlUrl="https://i.example/"/>
</body></opml>`
	g := read(strings.NewReader(file), "-", "")
	g.want(t,
		"5 feed:https://a.example/?x=1&y=2&z=3 in Q&A x named A & B", "6 feed:http://c.example/rss in Q&A x named C",
		"7 feed:https://d.example/rss in Q&A x named D",
		`8 !the tag "<outline text=\"E xmlUrl=\"https://e.example/\"/>" has an xmlUrl that cannot be read; is a quote missing?`,
		"9 feed:https://f.example/ in Q&A x named F < f", "10 feed:https://g.example/ in Q&A x named G\u00ff", "11 feed:&b; in Q&A x named H",
		"14 feed:https://i.example/ in open named I", `13 !outline "open" has no end; what follows was read as part of it`)
	var mended []string
	for _, e := range g.entries {
		for _, m := range e.Mended {
			mended = append(mended, fmt.Sprintf("%d %s", m.Line, m.What))
		}
	}
	const raw = `raw "&" read as "&amp;"`
	if want := []string{
		"4 " + raw, `4 "&nbsp;" read as " "`, "5 " + raw, "5 " + raw, `6 "feed://c.example/rss" read as "http://c.example/rss"`,
		`7 "FEED:https://d.example/rss" read as "https://d.example/rss"`, "10 bytes that are not UTF-8 read as Windows-1252", "11 " + raw,
	}; !slices.Equal(mended, want) {
		t.Errorf("mended\n%s\nwant\n%s", strings.Join(mended, "\n"), strings.Join(want, "\n"))
	}
	g = read(strings.NewReader(`<urlset><url><loc>https://a.example/?a=1&b=2</loc></url></urlset>`), "-", "")
	if g.want(t, "1 :https://a.example/?a=1&b=2"); len(g.entries[0].Mended) != 1 {
		t.Errorf("mended %v", g.entries[0].Mended)
	}
	g = read(strings.NewReader("feed:https://a.example/\n"), "-", sourcefile.URLs)
	if g.want(t, "1 :https://a.example/"); len(g.entries[0].Mended) != 1 {
		t.Errorf("mended %v", g.entries[0].Mended)
	}
}

// TestRead_OPML_noFeeds holds that what is no feed becomes none, and that each line of it is told.
func TestRead_OPML_noFeeds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u00e9", 200)
	g := read(strings.NewReader(`<opml><body>
<outline type="include" text="more" url="https://a.example/more"/>
<outline type="link" text="list" url="https://a.example/Feeds.OPML?x=1"/>
<outline type="rss" text="list" xmlUrl="https://u:secret@a.example/feeds.opml"/>
<outline type="XML+XPath" text="x" xmlUrl="https://a.example/x"/>
<outline type="html+xpath" text="page" xmlUrl="https://a.example/page"/>
<outline text="off" isComment="TRUE"><outline text="f"><outline xmlUrl="https://a.example/off"/></outline></outline>
<outline isComment="false" xmlUrl="https://a.example/on"/>
<outline text="`+long+`"><outline text="`+long+`"><outline text="`+long+`" xmlUrl="https://a.example/deep"/></outline></outline>
<outline text="A, B"><outline text="two&#10;lines&#x7;" xmlUrl="https://a.example/dirty"/></outline>
<outline text="c" xmlUrl="https://a.example/c" category="/One/Two, /Three"/>
<outline text="off" isComment="true" xmlUrl="https://a.example/last"/>
</body></opml>`), "-", "")
	cut := strings.Repeat("\u00e9", 64)
	g.want(t, `2 !outline "more" is another list, "https://a.example/more": import it too`,
		`3 !outline "list" is another list, "https://a.example/Feeds.OPML?x=1": import it too`,
		`4 !outline "list" is another list, "https://xxxxx@a.example/feeds.opml": import it too`,
		`5 !outline "x" is of type "XML+XPath", no feed`, "6 :https://a.example/page named page", "7",
		"8 feed:https://a.example/on", "9", "9", "9 feed:https://a.example/deep in "+cut+" named "+long[:256], "10",
		"10 feed:https://a.example/dirty in A; B named two lines", "11 feed:https://a.example/c in One/Two,Three named c", "12")
	var mended []string
	for _, e := range g.entries {
		for _, m := range e.Mended {
			mended = append(mended, fmt.Sprintf("%d %.12s", m.Line, m.What))
		}
	}
	if want := []string{"6 outline \"pag", "7 outline \"off", "9 folder \"\u00e9\u00e9\u00e9\u00e9", "9 folder \"\u00e9\u00e9\u00e9\u00e9", "9 name \"\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9", "10 folder \"A, B", "10 name \"two\\nl", "12 outline \"off"}; !slices.Equal(mended, want) {
		t.Errorf("mended %q\nwant %q", mended, want)
	}
}

// UTF-16 is what some desktop programs export.
func TestRead_UTF16(t *testing.T) {
	t.Parallel()
	text := []byte{0xff, 0xfe}
	for _, r := range `<?xml version="1.0" encoding="utf-16"?><opml><body><outline xmlUrl="https://a.example/"/></body></opml>` {
		text = append(text, byte(r), 0)
	}
	read(bytes.NewReader(text), "-", "").want(t, "1 feed:https://a.example/")
}

// What cannot be read further says where, and what came before it is given.
func TestRead_broken(t *testing.T) {
	t.Parallel()
	const feed = `<outline xmlUrl="https://a.example/"/>`
	for name, c := range map[string]struct {
		file, want string
		entries    int
	}{
		"cut off":       {"<opml><body>\n" + feed + "\n<outline", "line 3: unexpected EOF", 1},
		"ends inside":   {"<opml><body>" + feed, "unexpected EOF", 1},
		"deep":          {"<opml><body>" + feed + strings.Repeat("<outline>", 200), "more than 100 deep", 1},
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

// A line of 10 MB is one wrong entry.
func TestRead_longLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10<<20)
	read(strings.NewReader("https://a.example/\n"+long+"\nhttps://b.example/\n"), "-", "").
		want(t, "1 :https://a.example/", "2 !an entry is longer than 4194304 bytes", "3 :https://b.example/")
	read(strings.NewReader(`{"id":"`+long+"\"}\n{\"id\":\"a\"}\n"), "-", sourcefile.JSONL).
		want(t, "1 !an entry is longer than 4194304 bytes", "2")
	read(strings.NewReader("url\nhttps://a.example/\n\""+long+"\nhttps://b.example/\n"), "x.csv", "").
		want(t, "2 :https://a.example/", `3 !extraneous or missing " in quoted-field; what follows, up to line 4, was read as part of it`)
}
