package web_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// TestHandler_Credentials holds that a password in a URL, be it of a task, a redirect or a link, is neither sent to the host
// nor shown in a report, a log or a page.
func TestHandler_Credentials(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	host := strings.TrimPrefix(s.URL, "http://")
	s.page("/", map[string]string{"Content-Type": "text/html"}, 200, `<base href="http://ada:secret@`+host+`/"><a href="//ada:secret@b.example/1">1</a><a href="2">2</a>`)
	for path, location := range map[string]string{
		"/here": "http://ada:secret@" + host + "/", "/there": "http://ada:secret@b.example:1/", "/ftp": "ftp://ada:secret@b.example/",
		"/port": "http://ada:secret/@b.example/", "/scheme": "feed:https://ada:secret@b.example/", "/bad": "ftp://ada:secret@[b", "/private": "http://ada:secret@127.1/",
	} {
		s.page(path, map[string]string{"Location": location}, 302, "")
	}
	core, logs := observer.New(zap.DebugLevel)
	sink := &memorySink{}
	h := newHandler(t, web.Config{Logger: zap.New(core), Sink: sink})
	strict := strictHandler(t, web.Config{Logger: zap.New(core)})
	for _, url := range []string{
		s.URL + "/", "http://ada:secret@" + host + "/", s.URL + "/here", s.URL + "/there", s.URL + "/ftp", s.URL + "/port", s.URL + "/scheme", s.URL + "/bad",
		"ftp://ada:secret@b.example/", "ftp://ada:secret@[b", "http://ada:secret@[b/", "http://ada:secret/x@b.example/", "feed:https://ada:secret@b.example/",
		"http://ada:secret@b.example:x/", "ada:secret@b.example",
	} {
		done, err := handle(t, h, &collector.Task{Key: url, Recurring: true})
		said := fmt.Sprintf("%v %s %v", done.Discovered, done.Memo, err)
		_, err = handle(t, strict, &collector.Task{Key: url, Recurring: true})
		if said += fmt.Sprint(" ", err); strings.Contains(said, "secret") {
			t.Errorf("%s: %s", url, said)
		}
	}
	if said := fmt.Sprintf("%+v", sink.pages); strings.Contains(said, "secret") || len(sink.pages) == 0 {
		t.Errorf("kept %s", said)
	}
	for _, entry := range logs.All() {
		if said := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(said, "secret") {
			t.Errorf("logged %s", said)
		}
	}
	for _, r := range s.seen {
		if sent := r.Header.Get("Authorization"); sent != "" {
			t.Errorf("%s was asked for with %q", r.URL, sent)
		}
	}
}
