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

// TestHandler_FetchDurationOfRedirect wants the time counted from the last request, of another spelling of the URL: the
// queue's delay has to pass after that one, too (P6).
func TestHandler_FetchDurationOfRedirect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, web.Config{IgnoreRobots: true, Transport: transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.RawQuery == "" {
				time.Sleep(3 * time.Second)
				moved := answer(r, 302, "")
				moved.Header.Set("Location", "/?PHPSESSID=0123456789abcdef")
				return moved, nil
			}
			time.Sleep(time.Second)
			return answer(r, 200, ""), nil
		})})
		done, err := h.Handle(t.Context(), &collector.Task{URL: "http://a/"})
		if err != nil || done.FetchDuration != time.Second {
			t.Errorf("fetch took %s, want the last request's 1s: %v", done.FetchDuration, err)
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
