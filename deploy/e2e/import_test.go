//go:build e2e

package e2e_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	importSources = 5000
	// importSpan is the interval of the imported sources: all of them are due
	// in the first hour.
	importSpan = time.Hour
	// importBuckets of the histogram, of importSpan each.
	importBuckets = 12
)

// TestImport imports sources from CSV and from OPML, each in one go into an empty Redis, and measures how long that takes,
// what a source costs in memory, and how evenly the first crawls are spread over the first hour. WAGGLE_E2E_SOURCES sets how
// many; the figures that are published are of 100,000.
func TestImport(t *testing.T) {
	sources := importSources
	if text := os.Getenv("WAGGLE_E2E_SOURCES"); text != "" {
		var err error
		if sources, err = strconv.Atoi(text); err != nil || sources < 1000 {
			t.Fatalf("WAGGLE_E2E_SOURCES: %q is no number of at least 1000", text)
		}
	}
	for _, format := range []string{"csv", "opml"} {
		t.Run(format, func(t *testing.T) { importFormat(t, format, sources) })
	}
}

func importFormat(t *testing.T, format string, sources int) {
	server := redistest.Start(t)
	d := serve(t, "dispatcher", server.URL(), "waggle")
	c := dial(t, d.addr)
	file := filepath.Join(t.TempDir(), "sources."+format)
	writeSources(t, file, format, sources)

	before := usedMemory(t, server)
	began := time.Now()
	out := command(t, d.addr, "source", "import", file, "--every", "1h", "--prefix", "feeds.", "--timeout", "1m")
	took := time.Since(began)
	if want := " created, 0 updated, 0 unchanged, 0 duplicates, 0 refused\n"; !strings.HasSuffix(out, want) {
		t.Fatalf("import: %s", out)
	}
	memory := usedMemory(t, server) - before
	redisCPU := redisCLI(t, server, "INFO", "cpu")
	if tasks := c.stats(t).GetTasks(); tasks.GetScheduled()+tasks.GetReady() != int64(sources) {
		t.Fatalf("%v tasks, want %d", tasks, sources)
	}
	t.Logf("%d sources from %s in %v: %.0f/s; %d bytes of Redis, %.0f a source; Redis CPU since its start: %s", sources, format,
		took.Round(time.Millisecond), float64(sources)/took.Seconds(), memory, float64(memory)/float64(sources), userCPU(redisCPU))

	buckets := spread(t, c, sources)
	t.Logf("first crawls in each %v of the first %v:\n%s", importSpan/importBuckets, importSpan, histogram(buckets))
	even := sources / importBuckets
	for i, n := range buckets {
		if n < even*7/10 || n > even*13/10 {
			t.Errorf("part %d has %d first crawls; an even part is %d", i, n, even)
		}
	}

	began = time.Now()
	if out := command(t, d.addr, "source", "import", file, "--every", "1h", "--prefix", "feeds.", "--timeout", "1m"); !strings.Contains(out, " 0 created, 0 updated") {
		t.Errorf("again: %s", out)
	}
	t.Logf("the same import again: %v", time.Since(began).Round(time.Millisecond))
}

// writeSources writes a file of feeds, a tenth as many hosts as feeds.
func writeSources(t *testing.T, path, format string, sources int) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(file)
	url := func(i int) string { return fmt.Sprintf("https://site-%d.example/feeds/%d.xml", i%(sources/10), i) }
	switch format {
	case "csv":
		fmt.Fprintln(w, "url,name,labels,kind")
		for i := range sources {
			fmt.Fprintf(w, "%s,Feed %d,category=topic-%d,feed\n", url(i), i, i%50)
		}
	case "opml":
		fmt.Fprintln(w, `<?xml version="1.0" encoding="UTF-8"?><opml version="2.0"><head><title>Feeds</title></head><body>`)
		for topic := range 50 {
			fmt.Fprintf(w, "<outline text=\"topic-%d\">\n", topic)
			for i := topic; i < sources; i += 50 {
				fmt.Fprintf(w, "<outline type=\"rss\" text=\"Feed %d\" xmlUrl=\"%s\"/>\n", i, url(i))
			}
			fmt.Fprintln(w, "</outline>")
		}
		fmt.Fprintln(w, "</body></opml>")
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// spread counts the sources by when they are first due after they were made.
func spread(t *testing.T, c *client, sources int) (buckets [importBuckets]int) {
	t.Helper()
	request, seen := &pb.ListSourcesRequest{PageSize: 1000}, 0
	for {
		reply, err := c.sources.ListSources(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range reply.GetSources() {
			seen++
			after := s.GetStatus().GetNextDueTime().AsTime().Sub(s.GetCreateTime().AsTime())
			if after < 0 || after >= importSpan {
				t.Fatalf("%s is first due %v after it was made", s.GetId(), after)
			}
			buckets[after/(importSpan/importBuckets)]++
		}
		if request.PageToken = reply.GetNextPageToken(); request.GetPageToken() == "" {
			break
		}
	}
	if seen != sources {
		t.Fatalf("%d sources are listed, want %d", seen, sources)
	}
	return buckets
}

// histogram draws a line a bucket.
func histogram(buckets [importBuckets]int) string {
	most := 1
	for _, n := range buckets {
		most = max(most, n)
	}
	var b strings.Builder
	for i, n := range buckets {
		from := time.Duration(i) * importSpan / importBuckets
		fmt.Fprintf(&b, "  %3d to %3d min %6d %s\n", int(from.Minutes()), int((from + importSpan/importBuckets).Minutes()), n, strings.Repeat("#", 50*n/most))
	}
	return b.String()
}

// userCPU is the line of INFO cpu that says what commands cost.
func userCPU(info string) string {
	for line := range strings.Lines(info) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), "used_cpu_user:"); is {
			return value + " s"
		}
	}
	return "unknown"
}

// An import that is killed is made again, and what comes of it is as if it had not been. It runs alone: beside other tests
// Redis answers an import too late.
func TestImport_kill(t *testing.T) {
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c, file := dial(t, d.addr), filepath.Join(t.TempDir(), "sources.csv")
	const sources = 5_000
	writeSources(t, file, "csv", sources)
	args := []string{"source", "import", file, "--every", "1h", "--timeout", "1m"}
	first := launch(t, "import", programs.path("waggle"), append(args, "--server", d.addr)...)
	until(t, time.Minute, "some sources are there", func() bool { return c.stats(t).GetTasks().GetScheduled() > 1000 })
	first.kill()
	out := command(t, d.addr, args...)
	if !strings.HasPrefix(out, "5,000 sources: ") || !strings.Contains(out, " 0 updated") || !strings.HasSuffix(out, " 0 duplicates, 0 refused\n") {
		t.Errorf("again: %s", out)
	}
	t.Logf("killed, and then %s", strings.TrimSpace(out))
	if tasks := c.stats(t).GetTasks(); tasks.GetScheduled()+tasks.GetReady() != sources {
		t.Errorf("%v tasks, want %d", tasks, sources)
	}
}
