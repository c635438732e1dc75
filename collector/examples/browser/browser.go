package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/waggle-crawl/waggle/collector"
)

// browser is one Chromium that all slots share; each task gets a tab of its own, with cookies and storage of its own.
type browser struct {
	ctx   context.Context // of the process, made by chromedp
	close context.CancelFunc
}

// startBrowser starts Chromium without a window. program may be empty: then it is looked for. Chromium refuses its
// sandbox to root, so sandbox must be false there; then render only pages you trust.
func startBrowser(ctx context.Context, program string, sandbox bool) (*browser, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("no-sandbox", !sandbox))
	if program != "" {
		options = append(options, chromedp.ExecPath(program))
	}
	allocator, closeAllocator := chromedp.NewExecAllocator(ctx, options...)
	tab, closeTab := chromedp.NewContext(allocator)
	b := &browser{ctx: tab, close: func() { closeTab(); closeAllocator() }}
	if _, err := chromedp.Run(tab, chromedp.Location()); err != nil { // the first Run starts the process
		b.close()
		return nil, fmt.Errorf("start Chromium: %w", err)
	}
	return b, nil
}

// rendered is a page after its scripts have run.
type rendered struct {
	status int64
	html   string
	links  []string
}

// render opens url in a tab of its own, until ctx ends. ready is a selector that must be there; empty: the body.
func (b *browser) render(ctx context.Context, url, ready string) (*rendered, error) {
	tab, closeTab := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	defer closeTab()
	stop := context.AfterFunc(ctx, closeTab) // the tab's context is the browser's child, not ctx's
	defer stop()
	answer, err := chromedp.Run(tab, chromedp.NavigateResponse(url))
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	page := &rendered{status: int64(answer.Status)}
	if page.status >= http.StatusBadRequest {
		return page, nil // an error page need not have the selector
	}
	_, err = chromedp.Run(tab, chromedp.WaitReady(cmp.Or(ready, "body")))
	if err == nil {
		page.links, err = chromedp.Run(tab, chromedp.Evaluate[[]string](`Array.from(document.links, a => a.href)`))
	}
	if err == nil {
		page.html, err = chromedp.Run(tab, chromedp.Evaluate[string](`document.documentElement.outerHTML`))
	}
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return page, nil
}

// handler renders pages. A task's metadata may name, as "ready", a selector to wait for.
type handler struct {
	browser *browser
	keep    func(t *collector.Task, html string) error
}

// Handle renders a page, keeps it, and reports the links that it has once its scripts have run.
func (h *handler) Handle(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
	began := time.Now()
	page, err := h.browser.render(ctx, t.URL, t.Metadata["ready"])
	took := time.Since(began)
	switch {
	case err != nil && h.browser.ctx.Err() != nil: // it crashed or was closed: no fault of the page's
		return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonBrowser, Message: err.Error()}
	case err != nil && ctx.Err() != nil:
		return collector.Succeeded{}, err
	case err != nil:
		return collector.Succeeded{}, &collector.Failed{Reason: reasonOf(err), Message: err.Error(), FetchDuration: took}
	case page.status >= http.StatusBadRequest:
		failed := &collector.Failed{Reason: collector.ReasonClientError, HTTPStatus: int(page.status), FetchDuration: took, Message: t.URL}
		if page.status >= http.StatusInternalServerError {
			failed.Reason = collector.ReasonServerError
		}
		return collector.Succeeded{}, failed
	}
	if err := h.keep(t, page.html); err != nil {
		return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonDisk, Message: err.Error()}
	}
	done := collector.Succeeded{HTTPStatus: int(page.status), Bytes: int64(len(page.html)), FetchDuration: took}
	for _, link := range page.links {
		done.Discovered = append(done.Discovered, collector.Discovered{URL: link})
	}
	return done, nil
}

// reasonOf reads the network errors of Chromium, which come as text.
func reasonOf(err error) collector.Reason {
	for text, reason := range map[string]collector.Reason{
		"net::ERR_NAME_NOT_RESOLVED":    collector.ReasonDNS,
		"net::ERR_CONNECTION_REFUSED":   collector.ReasonConnect,
		"net::ERR_CONNECTION_TIMED_OUT": collector.ReasonConnect,
		"net::ERR_CONNECTION_RESET":     collector.ReasonConnectionLost,
		"net::ERR_EMPTY_RESPONSE":       collector.ReasonConnectionLost,
		"net::ERR_TIMED_OUT":            collector.ReasonTimeout,
		"net::ERR_CERT":                 collector.ReasonTLS,
		"net::ERR_SSL":                  collector.ReasonTLS,
		// An error page without a body.
		"net::ERR_HTTP_RESPONSE_CODE_FAILURE": collector.ReasonClientError,
	} {
		if strings.Contains(err.Error(), text) {
			return reason
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return collector.ReasonTimeout
	}
	return collector.ReasonOther
}
