package web_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// TestHandler_LongList holds that a sitemap or feed longer than a page may be is read and stored whole, and again when the
// server says that it has not changed; and that none is longer than its own limit.
func TestHandler_LongList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var sitemap, feed bytes.Buffer
	sitemap.WriteString("<urlset>")
	feed.WriteString("<rss><channel>")
	for i := range 3000 {
		fmt.Fprintf(&sitemap, "<url><loc>/%d</loc><!-- %d %s --></url>", i, i, strings.Repeat("x", 1000))
		fmt.Fprintf(&feed, "<item><link>/%d</link><description>%d %s</description></item>", i, i, strings.Repeat("y", 1000))
	}
	sitemap.WriteString("</urlset>")
	feed.WriteString("</channel></rss>")
	serve := func(w http.ResponseWriter, r *http.Request, content []byte) {
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(content)
	}
	packed := zipped(t, sitemap.Bytes())
	s.mux.HandleFunc("/sitemap", func(w http.ResponseWriter, r *http.Request) { serve(w, r, sitemap.Bytes()) })
	s.mux.HandleFunc("/sitemap.xml.gz", func(w http.ResponseWriter, r *http.Request) { serve(w, r, zipped(t, packed)) })
	s.mux.HandleFunc("/feed", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		serve(w, r, zipped(t, feed.Bytes()))
	})
	s.mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { forever(w, "<item><link>/1</link></item>") })
	sink, err := web.NewDirSink(t.TempDir(), "c1", web.Rotation{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	h := newHandler(t, web.Config{MaxBytes: 2 << 20, MaxRatio: 2000, Sink: sink})
	archive := &memorySink{}
	archiving := newHandler(t, web.Config{MaxBytes: 2 << 20, MaxRatio: 2000, Sink: archive, Exchanges: true})
	for _, test := range []struct {
		path, kind string
		body       []byte
	}{
		{"/sitemap", extract.KindSitemap, sitemap.Bytes()}, {"/sitemap.xml.gz", extract.KindSitemap, zipped(t, packed)}, {"/feed", extract.KindFeed, feed.Bytes()},
	} {
		task := &collector.Task{URL: s.URL + test.path, Kind: test.kind, Recurring: true}
		for cycle := range 2 {
			done, err := handle(t, h, task)
			if err != nil || len(done.Discovered) != 3000 || cycle == 1 && done.HTTPStatus != http.StatusNotModified || done.Message != "" {
				t.Fatalf("%s, cycle %d: status %d, %d links, %q, %v", test.path, cycle, done.HTTPStatus, len(done.Discovered), done.Message, err)
			}
			task.Memo = done.Memo
		}
		if _, err := handle(t, archiving, &collector.Task{URL: s.URL + test.path, Kind: test.kind}); err != nil {
			t.Fatal(err)
		}
		exchange := archive.exchanges[len(archive.exchanges)-1][0]
		if got, err := web.DecodeBody(sent(t, exchange), bytes.NewReader(exchange.Body), 8<<20); err != nil || !bytes.Equal(got, test.body) || exchange.Truncated != "" {
			t.Errorf("%s: the exchange has %d bytes of %d, %q, %v", test.path, len(got), len(test.body), exchange.Truncated, err)
		}
		sum := sha256.Sum256(test.body)
		if got, err := sink.Body(t.Context(), hex.EncodeToString(sum[:])); err != nil || !bytes.Equal(got, test.body) {
			t.Errorf("%s: the sink has %d bytes of %d, %v", test.path, len(got), len(test.body), err)
		}
	}
	for path, kind := range map[string]string{"/long": extract.KindFeed, "/feed": ""} {
		_, err = handle(t, h, &collector.Task{URL: s.URL + path, Kind: kind})
		if got := failedOf(t, err); got.Reason != collector.ReasonTooLarge {
			t.Errorf("%s as %q: %+v", path, kind, got)
		}
	}
}

// TestHandler_incompressible holds that long feeds that cannot be packed well, as those with pictures in them, are read too.
func TestHandler_incompressible(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	random := make([]byte, 11<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	feed := []byte("<rss><channel><item><link>/1</link><description>" + base64.StdEncoding.EncodeToString(random) + "</description></item></channel></rss>")
	s.mux.HandleFunc("/feed", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(feed) })
	h := newHandler(t, web.Config{MaxBytes: 1 << 20})
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if done, err := handle(t, h, &collector.Task{URL: s.URL + "/feed", Kind: extract.KindFeed}); err != nil || len(done.Discovered) != 1 {
				t.Errorf("%d links, %v", len(done.Discovered), err)
			}
		})
	}
	both.Wait()
}

// TestHandler_BrokenList holds that what of a list could be read counts, and that the report says where it broke off.
func TestHandler_BrokenList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const list = "<urlset><url><loc>/1</loc></url><url><loc>/2</loc></url>"
	cut := zipped(t, []byte(list+"<!-- 1234567890 "+strings.Repeat("abc", 10_000)))
	s.page("/cut", nil, 200, list+"<url><loc>/3")
	s.page("/cut.xml.gz", nil, 200, string(cut[:len(cut)-10]))
	s.page("/bomb.xml.gz", nil, 200, string(zipped(t, []byte(list+strings.Repeat(" ", 8<<20)))))
	h := newHandler(t, web.Config{})
	for path, want := range map[string]string{
		"/cut": "<urlset> has no end", "/cut.xml.gz": "unexpected EOF", "/bomb.xml.gz": "times its",
	} {
		done, err := handle(t, h, &collector.Task{URL: s.URL + path, Kind: extract.KindSitemap})
		if err != nil || len(done.Discovered) != 2 || !strings.Contains(done.Message, "after 2 entries") || !strings.Contains(done.Message, want) {
			t.Errorf("%s: %d links, %q, %v; want %q", path, len(done.Discovered), done.Message, err, want)
		}
	}
}

// TestHandler_LostList holds that what arrived of a list counts when its connection was lost before, and that the next cycle asks for
// the whole again. The first loss is retried, and so is each of a page.
func TestHandler_LostList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const page, feed = `<a href="/1">x</a><a href="/2">x</a>`, "<rss><channel><item><link>/1</link></item><item><link>/2</link></item>"
	long := "<urlset>" + strings.Repeat("<!-- 0123456789abcdef -->", 60_000) + "<url><loc>/1</loc></url><url><loc>/2</loc></url><url><loc>/3"
	for path, body := range map[string]string{
		"/feed": feed + "<item><link>/3", "/json": `{"items":[{"url":"/1"},{"url":"/2"},{"url":"/3`, "/list": "/1\n/2\n/3", "/sitemap": long,
		"/page": page, "/none": feed[:20], "/packed": string(zipped(t, []byte(long)))[:2000],
	} {
		s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				t.Errorf("%s: asked for changes", path)
			}
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Content-Length", strconv.Itoa(len(body)+100))
			_, _ = io.WriteString(w, body)
		})
	}
	h := newHandler(t, web.Config{Sink: &memorySink{}})
	for _, test := range []struct {
		path, kind string
		read       bool
	}{
		{"/feed", extract.KindFeed, true},
		{"/json", extract.KindFeed, true},
		{"/list", extract.KindList, true},
		{"/sitemap", extract.KindSitemap, true},
		{"/none", extract.KindFeed, false},
		{"/page", "", false},
		{"/packed", extract.KindSitemap, false},
	} {
		task := &collector.Task{URL: s.URL + test.path, Kind: test.kind, Recurring: true}
		for attempt, read := range []bool{false, test.read, test.read} {
			task.Attempt = attempt + 1
			done, err := handle(t, h, task)
			task.Memo = done.Memo
			switch {
			case !read:
				if got := failedOf(t, err); got.Reason != collector.ReasonConnectionLost {
					t.Errorf("%s, attempt %d: %+v", test.path, attempt+1, got)
				}
			case err != nil || len(done.Discovered) != 2 || !strings.Contains(done.Message, "after 2 entries: ") || !strings.Contains(done.Message, "read body: unexpected EOF"):
				t.Errorf("%s, attempt %d: %+v, %v", test.path, attempt+1, done, err)
			}
		}
	}
}

// TestHandler_NewEntry holds that a new entry of a feed without dates is news, though its page is known.
func TestHandler_NewEntry(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	items := "<item><link>/log#1</link><guid>1</guid></item>"
	s.mux.HandleFunc("/feed", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "<rss><channel>"+items+"</channel></rss>")
	})
	h := newHandler(t, web.Config{})
	task := &collector.Task{URL: s.URL + "/feed", Kind: extract.KindFeed, Recurring: true}
	for cycle, isNew := range []bool{false, false, true, false} {
		if isNew {
			items += "<item><link>/log#2</link><guid>2</guid></item>"
		}
		done, err := handle(t, h, task)
		if err != nil || len(done.Discovered) != 1 || done.Discovered[0].Modified.IsZero() == isNew {
			t.Errorf("cycle %d: %+v, %v", cycle, done.Discovered, err)
		}
		task.Memo = done.Memo
	}
}

// sent is the header of an exchange's answer.
func sent(t *testing.T, exchange web.Exchange) http.Header {
	t.Helper()
	_, fields, _ := bytes.Cut(exchange.Response, []byte("\r\n"))
	header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(fields))).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	return http.Header(header)
}
