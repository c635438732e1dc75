package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
)

// accept is what a page is asked for.
const accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// visit is one fetch of one task, from request to record.
type visit struct {
	handler *Handler
	task    *collector.Task
	url     *url.URL
	before  memo

	start  time.Time     // of the page's first request
	last   time.Time     // of the last request; zero: none was sent
	whole  time.Duration // from start to the end of the answer
	took   time.Duration // from last to the end of the answer
	record *recording
	answer *fetched
	body   []byte // the page's; the sink's copy when the server said 304
	after  memo
	links  Links
}

// run does it all.
func (v *visit) run(ctx context.Context) (collector.Succeeded, error) {
	if err := v.fetch(ctx); err != nil {
		return collector.Succeeded{}, err
	}
	if err := v.judge(ctx); err != nil {
		return collector.Succeeded{}, err
	}
	return v.store(ctx)
}

// fetch gets the page, asking only for changes where that does no harm.
func (v *visit) fetch(ctx context.Context) error {
	err := v.get(ctx, v.conditions(ctx))
	if err == nil && v.answer.status == http.StatusNotModified && !v.recall(ctx) {
		err = v.get(ctx, nil) // the sink has lost what it had a moment ago
	}
	return err
}

func (v *visit) get(ctx context.Context, conditions http.Header) error {
	h := v.handler
	fetchCtx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	v.record = newRecording(&h.cfg)
	request := fetchRequest{
		url: v.url, accept: accept, maxBytes: h.cfg.MaxBytes,
		conditions: conditions, conditionsFor: v.before.URL,
		maxRedirects: max(h.cfg.MaxRedirects, 0), record: v.record,
	}
	own := hostQueue(v.url)
	request.leaves = func(next *url.URL) bool { return hostQueue(next) != own }
	v.start = time.Now()
	first := true
	var sent atomic.Pointer[time.Time]
	note := func() {
		now := time.Now()
		sent.Store(&now)
	}
	request.visit = func(ctx context.Context, u *url.URL) error {
		if h.robots != nil {
			if err := h.robots.check(ctx, u); err != nil {
				return err
			}
		}
		if first { // the queue's delay is counted from the page's own request, not from that for robots.txt
			v.start, first = time.Now(), false
		}
		note()
		return nil
	}
	request.wrote = note // a host sees the request then, not when its name is looked up and its connection begun
	answer, err := h.fetcher.get(fetchCtx, request)
	v.whole = time.Since(v.start)
	v.took = v.whole
	if last := sent.Load(); last != nil {
		v.last, v.took = *last, time.Since(*last)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case isRefusal(err):
		return h.refusal(v.task, v.url, err, v.took)
	case err != nil:
		return failureOf(err, v.took)
	}
	v.answer = answer
	return nil
}

// conditions are those of the memo. A page that had links is asked for whole unless the sink can show its body: what it
// links to has to be reported each time, since a later run may revisit it.
func (v *visit) conditions(ctx context.Context) http.Header {
	if v.before.Digest == "" || (v.before.HasLinks && !v.recall(ctx)) {
		return nil
	}
	return v.before.conditions()
}

// recall reads the body of the last crawl from the sink, if the page had links, and tells whether that will do.
func (v *visit) recall(ctx context.Context) bool {
	if !v.before.HasLinks || v.body != nil {
		return true
	}
	body, err := v.handler.cfg.Sink.Body(ctx, v.before.Digest)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			v.handler.cfg.Logger.Warn("sink cannot read back", zap.String("digest", v.before.Digest), zap.Error(err))
		}
		return false
	}
	v.body = body
	return true
}

// judge decides what the answer is worth, and finds the page's links.
func (v *visit) judge(ctx context.Context) error {
	answer := v.answer
	if answer.location != nil {
		v.passOn()
		return nil
	}
	if answer.status == http.StatusNotModified && v.before.Digest != "" {
		v.after = v.before
		v.keepValidators()
	} else {
		if failed := statusFailure(answer, v.task.Recurring, v.took, time.Now()); failed != nil {
			return failed
		}
		v.body = answer.body
		v.after = memo{
			URL: answer.url.String(), Digest: digestOf(v.body), Bytes: int64(len(v.body)),
			ContentType: contentType(answer.header, v.body),
		}
		v.keepValidators()
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := v.findLinks(ctx); err != nil {
		return v.unreadable(ctx, err)
	}
	v.after.NoIndex = v.noIndex()
	v.after.HasLinks = len(v.links.URLs) > 0
	return nil
}

// passOn makes a link of a redirect into another queue: whoever gets it waits for that queue's turn. It is the page's own
// place, so it keeps the page's depth, and each cycle of a seed crawls it.
func (v *visit) passOn() {
	target := v.answer.location.String()
	v.body = v.answer.body
	v.after = memo{URL: target, Digest: digestOf(v.body)}
	v.links = Links{URLs: []string{target}}
	if v.task.Recurring {
		v.handler.cfg.Logger.Info("seed redirects into another queue, where it is crawled if the source may follow it there",
			zap.String("url", v.url.String()), zap.String("to", target))
	}
}

// isChanged tells whether the page, or what it redirects to, is another one than last time.
func (v *visit) isChanged() bool {
	return v.after.Digest != v.before.Digest || v.answer.location != nil && v.after.URL != v.before.URL
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// keepValidators takes over what the answer says; a 304 may leave out what has not changed.
func (v *visit) keepValidators() {
	if etag := v.answer.header.Get("ETag"); etag != "" {
		v.after.ETag = etag
	}
	if modified := v.answer.header.Get("Last-Modified"); modified != "" {
		v.after.LastModified = modified
	}
}

// contentType is what the server says, or what the body looks like when it says nothing.
func contentType(header http.Header, body []byte) string {
	if declared := header.Get("Content-Type"); declared != "" {
		return declared
	}
	return http.DetectContentType(body)
}

// store gives the page to the sink and makes the report.
func (v *visit) store(ctx context.Context) (collector.Succeeded, error) {
	if deadline := v.task.Deadline(); !deadline.IsZero() && !time.Now().Before(deadline) {
		return collector.Succeeded{}, collector.ErrLeaseLost // the process was frozen, and so was what ends ctx
	}
	changed := v.isChanged()
	page := v.page(changed)
	body := v.body
	if !changed && v.answer.status == http.StatusNotModified {
		body = nil // the sink has it, or never kept it
	}
	if err := v.handler.cfg.Sink.Put(ctx, page, v.record.content(body)); err != nil {
		if ctx.Err() != nil {
			return collector.Succeeded{}, context.Cause(ctx)
		}
		return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonDisk, Message: err.Error(), FetchDuration: v.took}
	}
	note, err := v.after.encode()
	if err != nil {
		return collector.Succeeded{}, fmt.Errorf("encode memo: %w", err)
	}
	done := collector.Succeeded{
		HTTPStatus: v.answer.status, Bytes: int64(len(v.answer.body)), FetchDuration: v.took,
		Changed: collector.Changed, Memo: note, Discovered: make([]collector.Discovered, 0, len(v.links.URLs)),
	}
	if !changed {
		done.Changed = collector.Unchanged
	}
	if v.task.Recurring {
		done.NextCrawlDelay = v.nextCrawlDelay()
	}
	sitemaps := v.sitemaps()
	for _, link := range v.links.URLs {
		if slices.Contains(sitemaps, link) {
			continue // as a sitemap, below
		}
		item := collector.Discovered{
			URL: link, Kind: v.links.Kind, Relation: cmp.Or(v.links.Relations[link], collector.RelationLink), Modified: v.links.Modified[link],
		}
		if v.answer.location != nil { // what it is read as does not change with its place
			item.Relation, item.Kind = collector.RelationRedirect, v.task.Kind
		}
		done.Discovered = append(done.Discovered, item)
	}
	for _, sitemap := range sitemaps {
		done.Discovered = append(done.Discovered, collector.Discovered{URL: sitemap, Kind: KindSitemap, Relation: collector.RelationSitemap})
	}
	return done, nil
}

// sitemaps are those that robots.txt names, for a page where a crawl begins.
func (v *visit) sitemaps() []string {
	if !v.handler.cfg.Sitemaps || v.task.Depth > 0 || v.answer.location != nil {
		return nil
	}
	rules, ok := v.handler.robots.rulesOf(v.answer.url)
	if !ok {
		return nil
	}
	own := v.answer.url.String()
	return slices.DeleteFunc(slices.Clone(rules.sitemaps), func(sitemap string) bool { return sitemap == own })
}

// finalURL is the one that answered, or the one that a redirect into another queue leads to.
func (v *visit) finalURL() string {
	if v.answer.location != nil {
		return v.answer.location.String()
	}
	return v.answer.url.String()
}

func (v *visit) page(changed bool) Page {
	t := v.task
	return Page{
		URL: v.url.String(), FinalURL: v.finalURL(), Status: v.answer.status,
		ContentType: v.after.ContentType,
		FetchTime:   v.start.UTC(), FetchMillis: v.whole.Milliseconds(),
		Digest: v.after.Digest, Bytes: v.after.Bytes, Changed: changed, Links: len(v.links.URLs),
		Canonical: v.links.Canonical, NoIndex: v.after.NoIndex,
		SourceID: t.SourceID, TaskID: t.ID, Cycle: t.Cycle, Run: t.Run, Attempt: t.Attempt, Fence: t.Fence,
	}
}
