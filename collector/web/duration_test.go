package web_test

import (
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// TestHandler_FetchDuration wants the time for robots.txt left out: the queue's delay is counted back from the report by
// the fetch's duration, and would otherwise begin before the page's own request (P6).
func TestHandler_FetchDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, web.Config{Transport: transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/robots.txt" {
				time.Sleep(3 * time.Second)
				return answer(r, 404, ""), nil
			}
			time.Sleep(time.Second)
			return answer(r, 200, ""), nil
		})})
		for range 2 {
			done, err := h.Handle(t.Context(), &collector.Task{URL: "http://a/"})
			if err != nil || done.FetchDuration != time.Second {
				t.Errorf("fetch took %s, want the page's 1s: %v", done.FetchDuration, err)
			}
		}
	})
}

// TestHandler_FetchDurationOfConnect wants the time for looking up a name and connecting left out: the host sees the
// request only when it is written (P6).
func TestHandler_FetchDurationOfConnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, web.Config{IgnoreRobots: true, Transport: transport(func(r *http.Request) (*http.Response, error) {
			time.Sleep(3 * time.Second) // connecting
			httptrace.ContextClientTrace(r.Context()).WroteRequest(httptrace.WroteRequestInfo{})
			time.Sleep(time.Second)
			return answer(r, 200, ""), nil
		})})
		done, err := h.Handle(t.Context(), &collector.Task{URL: "http://a/"})
		if err != nil || done.FetchDuration != time.Second {
			t.Errorf("fetch took %s, want 1s from when its request was written: %v", done.FetchDuration, err)
		}
	})
}
