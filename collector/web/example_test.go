package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// The collector that ships: sixteen slots, pages kept under out/.
func Example() {
	sink, err := web.NewDirSink("out", "paris-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { fmt.Println(sink.Close()) }()

	handler, err := web.New(web.Config{Contact: "https://example.com/crawler", Sink: sink})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()

	c, err := collector.New(collector.Config{Targets: []string{"127.0.0.1:7070"}, ID: "paris-1", Slots: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Run(context.Background(), handler))
}

// A handler can be tried out on a Task made by hand.
func ExampleHandler_Handle() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private/")
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="/news/1#top">one</a> <a href="mailto:me@example.com">write</a>`)
	}))
	defer server.Close()
	dir, err := os.MkdirTemp("", "pages")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sink, err := web.NewDirSink(dir, "by-hand")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sink.Close() }()
	handler, err := web.New(web.Config{Sink: sink, AllowPrivate: true}) // the server is on loopback
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()

	done, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: server.URL + "/news"})
	fmt.Println(done.HTTPStatus, done.Bytes, err)
	for _, found := range done.Discovered {
		fmt.Println(found.URL[len(server.URL):])
	}
	_, err = handler.Handle(context.Background(), &collector.Task{ID: "12-b", URL: server.URL + "/private/x"})
	fmt.Println(err != nil)
	files, err := filepath.Glob(filepath.Join(dir, "bodies", "*", "*"))
	fmt.Println(len(files), err)
	// Output:
	// 200 71 <nil>
	// /news/1
	// true
	// 1 <nil>
}
