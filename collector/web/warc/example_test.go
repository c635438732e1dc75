package warc_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/warc"
)

// crawl archives the pages of tasks, which a site on loopback answers with their path, in a new directory.
func crawl(paths []string, tasks ...*collector.Task) (dir string, err error) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "this is "+r.URL.Path)
	}))
	defer site.Close()
	if dir, err = os.MkdirTemp("", "archive"); err != nil {
		return "", err
	}
	sink, err := warc.New(warc.Config{Dir: dir, CollectorID: "paris-1", Operator: "https://news.example/bot"})
	if err != nil {
		return dir, err
	}
	handler, err := web.New(web.Config{Sink: sink, Exchanges: true, AllowPrivate: true, IgnoreRobots: true})
	if err != nil {
		return dir, err
	}
	defer handler.Close()
	for i, task := range tasks {
		task.URL = site.URL + paths[i]
		if _, err := handler.Handle(context.Background(), task); err != nil {
			return dir, err
		}
	}
	return dir, sink.Close()
}

// A crawler that writes WARC files: the sink needs the exchanges of the handler.
func Example() {
	dir, err := os.MkdirTemp("", "archive")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sink, err := warc.New(warc.Config{Dir: dir, CollectorID: "paris-1", MaxFileBytes: 1 << 30, Operator: "https://news.example/bot"})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler, err := web.New(web.Config{Sink: sink, Exchanges: true, AllowPrivate: true, IgnoreRobots: true}) // a site of our own
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()

	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "news") }))
	defer site.Close()
	done, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: site.URL}) // a collector does this
	fmt.Println(done.HTTPStatus, err)
	fmt.Println(sink.Close()) // finishes the file
	files, err := filepath.Glob(filepath.Join(dir, "*.warc.gz"))
	fmt.Println(len(files), err)
	// Output:
	// 200 <nil>
	// <nil>
	// 1 <nil>
}

// The index holds a line for each page. A body that the archive has already is stored once: the second record is a revisit.
func ExampleReadIndex() {
	dir, err := crawl([]string{"/a", "/b", "/a"},
		&collector.Task{ID: "12-a"}, &collector.Task{ID: "12-b"}, &collector.Task{ID: "12-c"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for entry, err := range warc.ReadIndex(dir) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(entry.TaskID, entry.Status, entry.Bytes, entry.Type)
	}
	// Output:
	// 12-a 200 10 response
	// 12-b 200 10 response
	// 12-c 200 10 revisit
}

// A task that was handed out twice may be archived twice. Of one task and cycle the record with the highest fence counts.
func ExampleWinners() {
	dir, err := crawl([]string{"/a", "/a", "/a"},
		&collector.Task{ID: "12-a", Cycle: 0, Fence: 8},
		&collector.Task{ID: "12-a", Cycle: 0, Fence: 7}, // late: its lease had expired
		&collector.Task{ID: "12-a", Cycle: 1, Fence: 9})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	winners, err := warc.Winners(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, entry := range winners {
		fmt.Println("cycle", entry.Cycle, "fence", entry.Fence)
	}
	// Output:
	// cycle 0 fence 8
	// cycle 1 fence 9
}

// A record is read by its place in the file, without the rest of the archive.
func ExampleEntry() {
	dir, err := crawl([]string{"/a", "/b"}, &collector.Task{ID: "12-a"}, &collector.Task{ID: "12-b"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	winners, err := warc.Winners(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	entry := winners[1]
	file, err := os.Open(filepath.Join(dir, entry.File))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = file.Close() }()
	unzip, err := gzip.NewReader(io.NewSectionReader(file, entry.Offset, entry.Length))
	if err != nil {
		fmt.Println(err)
		return
	}
	record := bufio.NewReader(unzip)
	head := textproto.NewReader(record)
	version, errVersion := head.ReadLine()
	fields, errFields := head.ReadMIMEHeader()
	answer, errAnswer := http.ReadResponse(record, nil)
	if err := errors.Join(errVersion, errFields, errAnswer); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	fmt.Println(version, fields.Get("WARC-Type"), answer.Status, string(body), err)
	// Output: WARC/1.1 response 200 OK this is /b <nil>
}
