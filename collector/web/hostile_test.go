package web_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/extract"
)

const (
	hostileSlots   = 8
	hostileTimeout = 5 * time.Second // enough for a busy machine

	// hostileMemory is what eight slots with bodies of up to 2 MiB may keep alive: 16 times the body each.
	hostileMemory = hostileSlots * 16 * 2 << 20
)

// hostile is one thing that a server does to its visitors, and what should come of it.
type hostile struct {
	serve http.HandlerFunc
	kind  string
	want  collector.Reason // 0: a success
	links int              // for a success
}

// forever writes text until the visitor has gone.
func forever(w io.Writer, text string) {
	text = strings.Repeat(text, 1+4096/len(text))
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// dripping writes text again and again, a little at a time, until the visitor has gone.
func dripping(w io.Writer, flush func(), text string, gone <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
		}
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
		flush()
	}
}

// raw serves bytes that are no answer of an http.Handler. They end when the visitor has gone, or after ten seconds.
func raw(serve func(w io.Writer, gone <-chan struct{})) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		gone := make(chan struct{})
		var reader sync.WaitGroup
		reader.Go(func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, conn)
		})
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		serve(conn, gone)
		_ = conn.Close()
		reader.Wait()
	}
}

// body serves a body of the given content type and coding.
func body(contentType, coding string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		if coding != "" {
			w.Header().Set("Content-Encoding", coding)
		}
		_, _ = w.Write(content)
	}
}

func location(target string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", target)
		w.WriteHeader(http.StatusFound)
	}
}

// status serves an error, and a robots.txt first if there is to be one.
func status(code int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" && !strings.HasPrefix(r.Host, "robots") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(code)
	}
}

// robotsTxt serves a robots.txt, and a page of one link behind it.
func robotsTxt(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			serve(w, r)
			return
		}
		body("text/html", "", []byte(`<a href="/1">x</a>`))(w, r)
	}
}

// hostileNetwork is what the names of hosts do.
func hostileNetwork(t *testing.T) map[string]hostile {
	t.Helper()
	html := func(text string) http.HandlerFunc { return body("text/html", "", []byte(text)) }
	zeros := make([]byte, 16<<20)
	return map[string]hostile{
		"drip": {serve: func(w http.ResponseWriter, r *http.Request) {
			dripping(w, func() { _ = http.NewResponseController(w).Flush() }, "x", r.Context().Done())
		}, want: collector.ReasonTimeout},
		"drip-head": {serve: raw(func(w io.Writer, gone <-chan struct{}) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n")
			dripping(w, func() {}, "X-Drip: x\r\n", gone)
		}), want: collector.ReasonTimeout},
		"silent":  {serve: raw(func(_ io.Writer, gone <-chan struct{}) { <-gone }), want: collector.ReasonTimeout},
		"endless": {serve: func(w http.ResponseWriter, _ *http.Request) { forever(w, "x") }, want: collector.ReasonTooLarge},
		"endless-head": {serve: raw(func(w io.Writer, _ <-chan struct{}) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n")
			forever(w, "X-Head: x\r\n")
		}), want: collector.ReasonConnectionLost},
		"endless-line": {serve: raw(func(w io.Writer, _ <-chan struct{}) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nX-Line: ")
			forever(w, "x")
		}), want: collector.ReasonConnectionLost},
		"endless-hints": {serve: raw(func(w io.Writer, _ <-chan struct{}) {
			forever(w, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
		}), want: collector.ReasonConnectionLost},
		"endless-trailer": {serve: raw(func(w io.Writer, _ <-chan struct{}) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n")
			forever(w, "X-Trailer: x\r\n")
		}), want: collector.ReasonConnectionLost},
		"no-http": {serve: raw(func(w io.Writer, _ <-chan struct{}) { forever(w, "\x00\x01\xff") }), want: collector.ReasonConnectionLost},
		"bad-chunks": {serve: raw(func(w io.Writer, _ <-chan struct{}) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
		}), want: collector.ReasonConnectionLost},
		"short": {serve: raw(func(w io.Writer, _ <-chan struct{}) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")
		}), want: collector.ReasonConnectionLost},

		"loop": {serve: location("/"), want: collector.ReasonRedirect},
		"redirects": {serve: func(w http.ResponseWriter, r *http.Request) {
			location("/"+strings.Repeat("x", len(r.URL.Path)))(w, r)
		}, links: 1}, // each is a task of its own, which knows how many there were
		"to-loopback": {serve: location("http://127.0.0.1:7070/"), want: collector.ReasonRedirect},
		"to-metadata": {serve: location("http://169.254.169.254/latest/meta-data/"), want: collector.ReasonRedirect},
		"to-file":     {serve: location("file:///etc/passwd"), want: collector.ReasonRedirect},

		"gzip-bomb":    {serve: body("text/html", "gzip", zipped(t, zeros)), want: collector.ReasonTooLarge},
		"brotli-bomb":  {serve: body("text/html", "br", brotlied(t, zeros)), want: collector.ReasonTooLarge},
		"zstd-bomb":    {serve: body("text/html", "zstd", zstded(t, zeros)), want: collector.ReasonTooLarge},
		"double-bomb":  {serve: body("text/html", "gzip, gzip", zipped(t, zipped(t, zeros))), want: collector.ReasonTooLarge},
		"sitemap-bomb": {serve: body("text/xml", "", zipped(t, zeros)), kind: extract.KindSitemap, want: collector.ReasonTooLarge},
		"not-gzip":     {serve: body("text/html", "gzip", []byte("plain text")), want: collector.ReasonUnsupportedContent},

		"bad-charset":   {serve: body("text/html; charset=klingon", "", []byte("<a href='/\xff\xfe'>x</a><a href=/2>")), links: 2},
		"wrong-charset": {serve: body("text/html; charset=utf-16le", "", []byte("<a href=/1>x</a>")), links: 0},
		"bad-type":      {serve: body(";;;=", "", []byte("<a href=/1>x</a>")), links: 1},
		"bad-html":      {serve: html(`<a href=/1><p <<a href="/2"<!--><!---><a href=/3></a></b><![CDATA[<a href='/4'`), links: 2},
		"many-links": {serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			for i := range 30_000 {
				_, _ = fmt.Fprintf(w, "<a href=%d>", i)
			}
		}, links: 20_000},
		"many-attributes": {serve: html("<a " + strings.Repeat("a ", 900_000) + "><a href=/1>"), links: 1},
		"deep-html":       {serve: html(strings.Repeat("<b>", 600_000) + "<a href=/1>"), links: 1},
		"nested-paths":    {serve: html(`<a href="/a/a/a/a/a/a/a/">x</a><a href="/b">x</a>`), links: 1},
		"bad-feed":        {serve: body("application/rss+xml", "", []byte("<rss><channel><item><link>/1")), want: collector.ReasonParse},
		"deep-feed":       {serve: body("application/atom+xml", "", []byte("<feed>"+strings.Repeat("<x>", 150_000))), want: collector.ReasonParse},
		"fat-feed":        {serve: body("application/rss+xml", "", []byte("<rss><channel>"+strings.Repeat("<item/>", 100_000))), want: collector.ReasonParse},
		"fat-json":        {serve: body("application/feed+json", "", []byte(`{"items":[`+strings.Repeat("{},", 150_000)+"{}]}")), links: 0},
		"square-feed": {
			serve: body("application/rss+xml", "", []byte("<rss><channel><x:a>"+strings.Repeat("&lt;", 100_000)+"</x:a></channel></rss>")), links: 0,
		},
		"laughs": {serve: body("application/rss+xml", "", []byte(`<!DOCTYPE rss [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>`+
			`<rss><channel><title>&b;</title><item><link>/&b;</link></item></channel></rss>`)), links: 1}, // taken as they stand
		"bad-sitemap":  {serve: body("text/xml", "", []byte("<urlset><url><loc>/1</lo")), want: collector.ReasonParse},
		"deep-sitemap": {serve: body("text/xml", "", []byte("<urlset>"+strings.Repeat("<url>", 400_000))), want: collector.ReasonParse},

		"robots-large": {serve: robotsTxt(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "User-agent: *\nDisallow: /secret\n")
			_, _ = w.Write(bytes.Repeat([]byte("Disallow: /*a*b*c*d$\n"), 10<<20/21))
		}), links: 1},
		"robots-endless": {serve: robotsTxt(func(w http.ResponseWriter, _ *http.Request) { forever(w, "# x\n") }), links: 1},
		"robots-stars": {serve: robotsTxt(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "User-agent: *\n"+strings.Repeat("Disallow: /"+strings.Repeat("*a", 900)+"\n", 280))
		}), links: 1},
		"robots-drip": {serve: robotsTxt(func(w http.ResponseWriter, r *http.Request) {
			dripping(w, func() { _ = http.NewResponseController(w).Flush() }, "#", r.Context().Done())
		}), want: collector.ReasonRobotsUnavailable},
		"robots-loop":  {serve: robotsTxt(location("/robots.txt")), links: 1},
		"robots-bomb":  {serve: robotsTxt(body("text/plain", "gzip", zipped(t, zeros))), links: 1},
		"robots-storm": {serve: status(429, "120"), want: collector.ReasonThrottled},
		"storm":        {serve: status(429, "1"), want: collector.ReasonThrottled},
		"storm-503":    {serve: status(503, "999999999999999999999"), want: collector.ReasonServerError},
	}
}

// TestHandler_Hostile sends eight slots through everything that a server may do to a crawler, twice, and a ninth to
// a well-behaved host beside them. All hosts are names behind one proxy, so that the Handler runs as in production:
// its own transport, private networks refused. It is not parallel, for it measures the memory of the process.
func TestHandler_Hostile(t *testing.T) { //nolint:paralleltest // see above
	network := hostileNetwork(t)
	network["good"] = hostile{serve: body("text/html", "", []byte(`<a href="/1">x</a>`)), links: 1}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimSuffix(r.URL.Host, ".example")
		if r.URL.Path == "/robots.txt" && !strings.HasPrefix(name, "robots") {
			http.NotFound(w, r)
			return
		}
		network[name].serve(w, r)
	}))
	t.Cleanup(proxy.Close)
	h := strictHandler(t, web.Config{Proxy: parse(t, proxy.URL), Timeout: hostileTimeout, MaxBytes: 2 << 20})

	runtime.GC() // of what was made to be served
	before := liveHeap()
	var peak uint64
	var sampler, slots, good sync.WaitGroup
	stop, stopGood := make(chan struct{}), make(chan struct{})
	sampler.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				peak = max(peak, liveHeap())
			case <-stop:
				return
			}
		}
	})
	visits := 0
	good.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stopGood:
				return
			case <-tick.C:
			}
			visit(t, h, "good", network["good"])
			visits++
		}
	})
	names := make(chan string)
	for range hostileSlots {
		slots.Go(func() {
			for name := range names {
				visit(t, h, name, network[name])
			}
		})
	}
	var waits, rest []string
	for name, want := range network {
		if want.want == collector.ReasonTimeout || want.want == collector.ReasonRobotsUnavailable {
			waits = append(waits, name)
		} else {
			rest = append(rest, name)
		}
	}
	for _, name := range slices.Concat(waits, rest, rest) { // what runs out of time does so beside the others, once
		names <- name
	}
	close(names)
	slots.Wait()
	close(stopGood)
	good.Wait()
	close(stop)
	sampler.Wait()
	if grown := int64(peak) - int64(before); grown > hostileMemory {
		t.Errorf("memory grew by %d MiB, limit %d MiB", grown>>20, hostileMemory>>20)
	}
	if visits < 20 { // thousands, on an idle machine
		t.Errorf("the good host was visited only %d times meanwhile", visits)
	}
	t.Logf("memory grew by at most %d MiB; the good host was visited %d times", (int64(peak)-int64(before))>>20, visits)
}

// visit fetches the page of a host and checks what becomes of it, and that the slot is back in time.
func visit(t *testing.T, h *web.Handler, name string, want hostile) {
	t.Helper()
	start := time.Now()
	done, err := handle(t, h, &collector.Task{URL: "http://" + name + ".example/", Kind: want.kind})
	if took := time.Since(start); took > hostileTimeout+20*time.Second { // the race detector is slow, and the machine may be busy
		t.Errorf("%s: took %s", name, took)
	}
	if want.want == 0 {
		if err != nil || len(done.Discovered) != want.links {
			t.Errorf("%s: %d links, %v; want %d", name, len(done.Discovered), err, want.links)
		}
		return
	}
	if err == nil {
		t.Errorf("%s: a success, want %s", name, want.want)
		return
	}
	if got := failedOf(t, err); got.Reason != want.want {
		t.Errorf("%s: %+v, want %s", name, got, want.want)
	}
}

// liveHeap is what the last collection of garbage found in use.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return min(sample[0].Value.Uint64(), math.MaxInt64)
}
