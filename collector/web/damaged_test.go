package web_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/collectortest"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/extract"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// damage is a document, whose entries are the pages 1, 2 and 3 beside it, and how far it can be read.
type damage struct {
	body   string
	coding string
	want   string // pages that are fetched
	after  int    // it is broken off after so many entries; 0: it is read to its end
	failed collector.Reason
}

const (
	rssHead = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<rss version="2.0"><channel><title>t</title><link>/home</link>`
	rssTail = "</channel></rss>"
	item1   = "<item><title>one</title><link>1</link></item>"
	item2   = "<item><title>two</title><link>2</link></item>"
	item3   = "<item><title>three</title><link>3</link></item>"
	items   = item1 + item2 + item3

	setHead = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`
	url1    = "<url><loc>1</loc><lastmod>2024-03-05</lastmod></url>"
	url2    = "<url><loc>2</loc><priority>0.5</priority></url>"
	url3    = "<url><loc>3</loc></url>"
	urls    = url1 + url2 + url3
	setTail = "</urlset>"
)

// utf16BE is a text in UTF-16 without a byte order mark.
func utf16BE(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteByte(byte(r >> 8))
		b.WriteByte(byte(r))
	}
	return b.String()
}

func damagedFeeds(t *testing.T) map[string]damage {
	t.Helper()
	packed := string(zipped(t, zipped(t, []byte(rssHead+items+rssTail))))
	return map[string]damage{
		"a NUL before":              {body: "\x00" + rssHead + items + rssTail, want: "123"},
		"UTF-16 behind blank lines": {body: utf16BE("\n\n" + rssHead + items + rssTail), want: "123"},
		"packed three times":        {body: string(zipped(t, []byte(packed))), coding: "gzip", want: "123"},
		"its own HTTP head":         {body: "HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\n\r\n" + rssHead + items + rssTail, want: "123"},
		"sizes of chunks":           {body: "1f40\r\n" + rssHead + item1 + "\r\n3e8\r\n" + item2 + item3 + rssTail + "\r\n0\r\n\r\n", want: "123"},
		"capitals that do not match": {
			body: "<RSS><Channel><ITEM><Link>1</LINK></item><Item><LINK>2</Link></ITEM><iTem><link>3</link></iTem></channel></rss>", want: "123",
		},
		"items behind the channel":     {body: rssHead + item1 + "</channel>" + item2 + item3 + "</rss>", want: "123"},
		"misspelled ends":              {body: rssHead + "<item><link>1</lnik></item><item><link>2</link></itme>" + item3 + rssTail, want: "123"},
		"a list of attributes":         {body: `<!DOCTYPE rss [<!ENTITY % x PUBLIC "-//W3C//E" "x.ent"> %x;]>` + rssHead + items + rssTail, want: "123"},
		"a page of an error behind":    {body: rssHead + items + "</channel><!doctype html><html><body><h1>Error 500</h1><p>1 < 2 & 3</body></html>", want: "123", after: 3},
		"an image within a link":       {body: rssHead + "<item><link>1<img src=x></link></item>" + item2 + "<item><link>3<!-- x --></link></item>" + rssTail, want: "123"},
		"quotes without an end":        {body: rssHead + item1 + `<item><enclosure url="x></item>` + item2 + `<item><x a="">` + item3 + rssTail, want: "13"},
		"cut in the letter of a title": {body: rssHead + item1 + item2 + "<item><link>3</link><title>caf\xc3", want: "123", after: 3},
		"cut in an attribute":          {body: `<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="1"/></entry><entry><link href="2"/></entry><entry><link href="htt`, want: "12", after: 2},
		"a comma too many in JSON":     {body: `{"version":"https://jsonfeed.org/version/1.1","items":[{"url":"1",},{"url":"2"},],}`, want: "12"},
		"no markup":                    {body: "Fatal error: Allowed memory size exhausted in feed.php on line 3", failed: collector.ReasonParse},
		"a message in JSON":            {body: `{"error":{"code":503,"message":"no"}}`, failed: collector.ReasonParse},
		"a packed body that is none":   {body: rssHead + items + rssTail, coding: "br", failed: collector.ReasonUnsupportedContent},
	}
}

func damagedSitemaps(t *testing.T) map[string]damage {
	t.Helper()
	clean := setHead + urls + setTail
	cut := string(zipped(t, []byte(setHead+urls+"<!--"+strings.Repeat(" 0123456789abcdef", 9000))))
	return map[string]damage{
		"a NUL before":                  {body: "\x00" + clean, want: "123"},
		"UTF-16 behind blank lines":     {body: utf16BE("\n" + clean), want: "123"},
		"NULs behind":                   {body: clean + strings.Repeat("\x00", 4096), want: "123"},
		"addresses in lines":            {body: setHead + "<url><loc>\n\t1\n\t</loc></url><url><loc><![CDATA[\n2 ]]></loc></url>" + url3 + setTail, want: "123"},
		"entries without an address":    {body: setHead + "<url/>" + url1 + "<url><loc></loc></url>" + url2 + "<url><lastmod>2024</lastmod></url>" + url3 + setTail, want: "123"},
		"another root around":           {body: "<xml>" + clean + "</xml>", want: "123"},
		"one root an entry":             {body: setHead + url1 + setTail + setHead + url2 + setTail + setHead + url3 + setTail, want: "123"},
		"loc without an end":            {body: setHead + "<url><loc>1<lastmod>2024</lastmod></url><url><loc>2</url>" + url3 + setTail, want: "123"},
		"a word too many in an end":     {body: strings.ReplaceAll(clean, "</url>", "</url of page>"), want: "123"},
		"a comment that ends wrong":     {body: setHead + url1 + "<!-- x --!>" + url2 + "<!--->" + url3 + setTail, want: "123"},
		"a query of the database":       {body: setHead + url1 + "SQLSTATE[HY000]: <b>1 < 2</b> & gone away" + url2 + url3 + setTail, want: "123"},
		"a prefix that is not declared": {body: "<sm:urlset><sm:url><sm:loc>1</sm:loc></sm:url><sm:url><sm:loc>2</sm:loc></sm:url></sm:urlset>", want: "12"},
		"packed, and cut":               {body: cut[:len(cut)-40], want: "123", after: 3},
		"a timeout in the midst":        {body: setHead + url1 + url2 + "<url><loc>3", want: "12", after: 2},
		"the worst of all":              {body: "\ufeff<br>" + strings.ToUpper(setHead) + "<URL><LOC>1&#0;</LOC>" + url2 + "<url><loc>3\x07</loc>" + "\xff", want: "123", after: 3},
		"a list with headings":          {body: "Our pages:\n{S}/1\n{S}/2\n\n{S}/3\n", want: "123"},
		"a page":                        {body: "<!doctype html><html><body><a href=/x>maintenance</a></body></html>", failed: collector.ReasonParse},
		"the head of another":           {body: setHead + "<url><loc>", failed: collector.ReasonParse},
	}
}

// TestDamaged crawls damaged feeds and sitemaps, each of a source of its own. Each is read as far as it can be. What is broken off
// shows in the history of its task, and what cannot be read in its error; both are warned of in the collector's log.
func TestDamaged(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), collectortest.Start(t)
	s.page("/robots.txt", nil, 404, "")
	all := map[string]damage{}
	for kind, some := range map[string]map[string]damage{extract.KindFeed: damagedFeeds(t), extract.KindSitemap: damagedSitemaps(t)} {
		for name, document := range some {
			id := fmt.Sprintf("%s-%d", kind, len(all))
			dir := "/" + id + "/"
			document.body = strings.ReplaceAll(document.body, "{S}", s.URL+"/"+id)
			s.mux.HandleFunc(dir, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == dir+"x.xml" {
					w.Header().Set("Content-Type", "text/xml")
					w.Header().Set("Content-Encoding", document.coding)
					_, _ = io.Copy(w, bytes.NewReader([]byte(document.body)))
				}
			})
			all[kind+" with "+name+": "+id] = document
			d.CreateSource(&wagglev1.SourceSpec{
				Id: id, Seeds: []*wagglev1.Seed{{Url: s.URL + dir + "x.xml", Kind: kind}},
				Schedule: &wagglev1.Schedule{Rule: &wagglev1.Schedule_Every{Every: durationpb.New(time.Hour)}},
				Follow:   &wagglev1.Follow{AllowHosts: []string{"*"}},
			})
		}
	}
	core, log := observer.New(zap.WarnLevel)
	d.Work(newHandler(t, web.Config{Logger: zap.New(core)}))
	for name, document := range all {
		id := name[strings.LastIndex(name, " ")+1:]
		seed, got := s.URL+"/"+id+"/x.xml", ""
		for _, page := range []string{"1", "2", "3"} {
			if len(s.requests("/"+id+"/"+page)) > 0 {
				got += page
			}
		}
		history := d.Task(id, seed).GetHistory()
		if got != document.want || len(history) != 1 {
			t.Errorf("%s: fetched %q, want %q; %v", name, got, document.want, history)
			continue
		}
		warned := log.FilterField(zap.String("url", seed)).All()
		switch message := history[0].GetMessage(); {
		case document.failed != 0:
			if history[0].GetReason() != document.failed || message == "" || len(warned) != 1 || !slices.Contains(warned[0].Context, zap.String("error", message)) {
				t.Errorf("%s: %v, logged %v; want %s", name, history[0], warned, document.failed)
			}
		case document.after > 0:
			after := fmt.Sprintf("broken off after %d entries: ", document.after)
			if !strings.Contains(message, after) || len(warned) != 1 || !slices.Contains(warned[0].Context, zap.String("error", message)) {
				t.Errorf("%s: %q, logged %v; want %q", name, message, warned, after)
			}
		case message != "" || len(warned) > 0:
			t.Errorf("%s: %q, logged %v; want it read to its end", name, message, warned)
		}
	}
}
