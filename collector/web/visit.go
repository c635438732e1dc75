package web

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web/extract"
	"github.com/waggle-crawl/waggle/collector/web/robots"
)

// accept is what a page is asked for.
const accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// visit is one fetch of one task, from request to record.
type visit struct {
	cfg     *Config
	fetcher *fetcher
	robots  *robots.Cache // nil: robots.txt is not asked
	task    *collector.Task
	url     *url.URL
	before  memo

	asked   bool          // for changes only
	start   time.Time     // of the page's first request
	whole   time.Duration // from start to the end of the answer
	took    time.Duration // from the last request to the end of the answer
	record  *recording
	answer  *fetched
	body    []byte        // the page's; the sink's copy when the server said 304
	packed  *packedBody   // in place of body
	large   chan struct{} // of capacity 1: who reads a packed body
	hasTurn bool          // it is in large
	after   memo
	found   extract.Result
}

// run does it all. The caller judges an error of isRefusal.
func (v *visit) run(ctx context.Context) (collector.Succeeded, error) {
	err := v.parseURL()
	if err == nil {
		err = v.fetch(ctx)
	}
	defer v.endTurn()
	if err == nil && (v.packed != nil || v.answer.packed != nil) {
		err = v.takeTurn(ctx)
	}
	if err == nil {
		err = v.judge(ctx)
	}
	if err != nil {
		v.warnUnread(err)
		return collector.Succeeded{}, err
	}
	return v.store(ctx)
}

// warnUnread logs that a feed, sitemap or list cannot be read at all. Nothing else shows which of them the site has to mend.
func (v *visit) warnUnread(err error) {
	var failed *collector.Failed
	if !errors.As(err, &failed) {
		return
	}
	switch {
	case failed.Reason == collector.ReasonParse, v.isList() && (failed.Reason == collector.ReasonTooLarge || failed.Reason == collector.ReasonUnsupportedContent):
		v.cfg.Logger.Warn("feed, sitemap or list cannot be read", zap.String("url", v.url.String()), zap.String("source_id", v.task.SourceID),
			zap.Stringer("reason", failed.Reason), zap.String("error", failed.Message))
	}
}

// isList reports whether the task is a feed, sitemap or list.
func (v *visit) isList() bool {
	return v.task.Kind == extract.KindFeed || v.task.Kind == extract.KindSitemap || v.task.Kind == extract.KindList
}

// parseURL finds what to fetch: the task's URL, or the key of one that has none.
func (v *visit) parseURL() (err error) {
	if v.url, err = extract.ParseReference(cmp.Or(v.task.URL, v.task.Key), ""); err == nil {
		err = v.fetcher.checkAddress(v.url)
	}
	if err == nil || isRefusal(err) {
		return err
	}
	return &collector.Failed{Reason: collector.ReasonBadRequest, Message: err.Error(), Permanent: true}
}

// fetch gets the page, asking only for changes where that does no harm. A redirect is an answer: its target waits for its turn.
func (v *visit) fetch(ctx context.Context) error {
	err := v.get(ctx, v.conditions(ctx))
	if err == nil && v.answer.status == http.StatusNotModified && !v.recall(ctx) {
		err = v.get(ctx, nil) // the sink has lost the body since
	}
	if err != nil || v.answer.location == nil {
		return err
	}
	switch next, limit := v.answer.location.String(), max(v.cfg.MaxRedirects, 0); {
	case next == v.url.String() || next == v.task.RedirectedFrom:
		err = fmt.Errorf("%w: a loop, back to %q", errBadRedirect, next)
	case v.task.Redirects >= limit:
		err = fmt.Errorf("%w: more than %d, the last to %s", errRedirects, limit, next)
	default:
		return nil
	}
	return failureOf(err, v.took)
}

func (v *visit) get(ctx context.Context, conditions http.Header) error {
	fetchCtx, cancel := context.WithTimeout(ctx, v.cfg.Timeout)
	defer cancel()
	if v.cfg.Exchanges {
		v.record = &recording{limit: v.maxBytes()}
	}
	request := fetchRequest{
		url: v.url, accept: accept, maxBytes: v.maxBytes(),
		conditions: conditions, conditionsFor: v.before.URL, record: v.record,
		partial: v.isList() && v.task.Attempt > 1, // the first loss may be one of the moment
	}
	v.asked = len(conditions) > 0
	if v.maxBytes() > v.cfg.MaxBytes {
		request.manyPacked, request.beyond = v.manyPacked(), func() error { return v.takeTurn(fetchCtx) }
	}
	v.start = time.Now()
	first := true
	var sent atomic.Pointer[time.Time]
	note := func() { sent.Store(new(time.Now())) }
	request.visit = func(u *url.URL) error {
		if v.robots != nil {
			if err := v.robots.Check(fetchCtx, u); err != nil {
				return err
			}
		}
		if first { // the queue's delay is counted from the page's own request, not from that for robots.txt
			v.start, first = time.Now(), false
		}
		note()
		return nil
	}
	// The host gets the request when it is written, after the DNS lookup and the dial.
	wrote := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { note() }}
	answer, err := v.fetcher.get(httptrace.WithClientTrace(fetchCtx, wrote), request)
	v.whole = time.Since(v.start)
	v.took = v.whole
	if last := sent.Load(); last != nil {
		v.took = time.Since(*last)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case isRefusal(err):
		return err
	case err != nil:
		return failureOf(err, v.took)
	}
	v.answer = answer
	return nil
}

// conditions are those of the memo. A page that had links is fetched whole unless the sink has its body: its links are reported
// each time, since a later run may revisit them.
func (v *visit) conditions(ctx context.Context) http.Header {
	if v.before.Digest == "" || (v.before.HasLinks && !v.recall(ctx)) {
		return nil
	}
	if sink, expires := v.cfg.Sink.(Expiring); expires && !sink.Has(v.before.Digest) {
		return nil
	}
	return v.before.conditions()
}

// recall reads the body of the last crawl from the sink if the page had links. It returns false if the sink does not have it.
func (v *visit) recall(ctx context.Context) bool {
	if !v.before.HasLinks || v.body != nil || v.packed != nil {
		return true
	}
	if v.before.Bytes > maxPlain {
		if v.takeTurn(ctx) != nil {
			return false // the fetch ends, too
		}
		defer v.endTurn()
	}
	body, err := v.cfg.Sink.Body(ctx, v.before.Digest)
	if err == nil && len(body) > maxPlain && v.maxBytes() > v.cfg.MaxBytes {
		if v.packed, err = pack(bytes.NewReader(body), v.manyPacked(), func() error { return errTooLarge }); err != nil {
			v.packed = nil
			return false // many such bodies would wait for their requests at once
		}
		body = nil
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			v.cfg.Logger.Warn("sink cannot read the body of the last crawl", zap.String("digest", v.before.Digest), zap.Error(err))
		}
		return false
	}
	v.body = body
	return true
}

// judge decides whether the answer is a success, and finds the page's links.
func (v *visit) judge(ctx context.Context) error {
	answer := v.answer
	if answer.location != nil {
		v.passOn()
		return nil
	}
	if answer.status == http.StatusNotModified && v.asked {
		v.after = v.before
		v.after.NotModified++
	} else {
		if failed := statusFailure(answer, v.task.Recurring, v.took, time.Now()); failed != nil {
			return failed
		}
		v.body, v.packed = answer.body, answer.packed
		v.after = memo{
			URL: answer.url.String(), Bytes: answer.length(),
			ContentType: cmp.Or(answer.header.Get("Content-Type"), http.DetectContentType(v.body)),
		}
		if v.packed != nil {
			v.after.Digest = v.packed.digest
		} else {
			v.after.Digest = digestOf(v.body)
		}
	}
	// A 304 may leave out what has not changed.
	v.after.ETag = cmp.Or(octets(answer.header.Get("ETag")), v.after.ETag)
	v.after.LastModified = cmp.Or(octets(answer.header.Get("Last-Modified")), v.after.LastModified)
	if answer.lost != nil { // the next cycle asks for the whole
		v.after.ETag, v.after.LastModified = "", ""
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := v.findLinks(ctx); err != nil {
		return v.unreadable(ctx, err)
	}
	// When the server only said that nothing has changed, the page asks for what it asked for when it was last read.
	unread := answer.status == http.StatusNotModified && len(v.body) == 0 && v.packed == nil
	v.after.NoIndex = v.found.NoIndex || unread && v.before.NoIndex
	v.after.HasLinks = len(v.found.Links) > 0
	return nil
}

// findLinks finds what the page leads to, unless the page or its depth forbids it.
func (v *visit) findLinks(ctx context.Context) error {
	base, err := url.Parse(v.after.URL)
	if err != nil {
		return nil
	}
	doc := extract.Document{
		URL: base, Kind: v.task.Kind, ContentType: v.after.ContentType, RobotsTag: v.answer.header.Values("X-Robots-Tag"),
		Refresh: v.answer.header.Get("Refresh"), Body: v.body,
	}
	if v.packed != nil {
		doc.Open = v.packed.open
	}
	if v.answer.lost != nil {
		doc.Open = func() (_ io.Reader, err error) {
			arrived := io.Reader(bytes.NewReader(v.body))
			if v.packed != nil {
				arrived, err = v.packed.open()
			}
			return io.MultiReader(arrived, lost{v.answer.lost}), err
		}
	}
	v.found, err = extract.Find(ctx, doc, extract.Options{
		Resources: v.cfg.Resources, RobotsAgent: v.cfg.RobotsAgent, FollowNofollow: v.cfg.FollowNofollow,
		MaxLinks: v.cfg.MaxLinks, MaxListed: v.cfg.MaxListed,
		MaxURLBytes: v.cfg.MaxURLBytes, MaxPathSegments: v.cfg.MaxPathSegments, MaxPathRepeats: v.cfg.MaxPathRepeats,
		Unzip: v.unzip, Known: v.before.Entries, Now: v.start,
	})
	if v.found.Trapped > 0 {
		v.cfg.Logger.Info("links skipped that look like a trap", zap.String("url", v.after.URL), zap.Int("links", v.found.Trapped))
	}
	if v.found.Surplus > 0 {
		v.cfg.Logger.Warn("page has too many links; the rest is skipped", zap.String("url", v.after.URL),
			zap.Int("reported", len(v.found.Links)), zap.Int("skipped", v.found.Surplus))
	}
	if v.found.Broken != "" {
		v.cfg.Logger.Warn("list cannot be read to its end", zap.String("url", v.after.URL), zap.String("error", v.found.Broken))
	}
	v.after.Entries = v.found.Entries
	if v.cfg.MaxDepth > 0 && v.task.Depth >= v.cfg.MaxDepth {
		v.found.Links = nil
	}
	return err
}

// unzip undoes the gzip of a feed, sitemap or list that is kept so.
func (v *visit) unzip(packed io.Reader) (io.Reader, error) {
	limits := bodyLimits{bytes: v.maxBytes(), ratio: int64(v.cfg.MaxRatio)}
	wire := &meter{r: packed, limits: limits}
	plain, err := decoder("gzip", bufio.NewReader(wire))
	if err != nil {
		return nil, err
	}
	return &meter{r: plain, limits: limits, packed: wire}, nil
}

// unreadable reports content that is not what it claims to be.
func (v *visit) unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if v.answer.lost != nil {
		return failureOf(v.answer.lost, v.took)
	}
	failed := &collector.Failed{
		Reason: collector.ReasonParse, Message: v.after.URL + ": " + err.Error(),
		HTTPStatus: v.answer.status, FetchDuration: v.took,
	}
	if errors.Is(err, errTooLarge) {
		failed.Reason, failed.Permanent = collector.ReasonTooLarge, true
	}
	return failed
}

// passOn makes a task of the target of a redirect, which waits for its turn.
func (v *visit) passOn() {
	target := v.answer.location.String()
	v.body = v.answer.body
	v.after = memo{URL: target, Digest: digestOf(v.body)}
	v.found.Links = []extract.Link{{URL: target}}
	if v.task.Recurring && target != v.before.URL {
		v.cfg.Logger.Info("seed redirects; the target is crawled as a task of its own unless the source excludes it",
			zap.String("url", v.url.String()), zap.Int("status", v.answer.status), zap.String("to", target))
	}
}

// moved is the target of the redirect. What it is read as does not change with its place.
func (v *visit) moved() collector.Discovered {
	return collector.Discovered{URL: v.answer.location.String(), Kind: v.task.Kind, Relation: collector.RelationRedirect}
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// store gives the page to the sink and makes the report.
func (v *visit) store(ctx context.Context) (collector.Succeeded, error) {
	if deadline := v.task.Deadline(); !deadline.IsZero() && !time.Now().Before(deadline) {
		return collector.Succeeded{}, collector.ErrLeaseLost // the process was frozen, and the timer of ctx with it
	}
	changed := v.after.Digest != v.before.Digest || v.answer.location != nil && v.after.URL != v.before.URL
	body := v.body
	switch {
	case !changed && v.answer.status == http.StatusNotModified:
		body = nil // the sink has it, or never kept it
	case v.packed != nil:
		var err error
		if body, err = v.packed.bytes(); err != nil {
			return collector.Succeeded{}, fmt.Errorf("unpack body: %w", err)
		}
	}
	if err := v.cfg.Sink.Put(ctx, v.page(changed), v.record.content(body)); err != nil {
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
		HTTPStatus: v.answer.status, Bytes: v.answer.length(), FetchDuration: v.took,
		Changed: collector.Changed, Memo: note, Discovered: v.discovered(), Message: v.found.Broken,
	}
	switch {
	case changed:
	case v.answer.location != nil:
		done.Changed = collector.ChangeUnknown // what is there may have
	default:
		done.Changed = collector.Unchanged
	}
	if (v.task.Recurring || v.task.Redirects > 0) && v.answer.location == nil {
		done.NextCrawlDelay = cmp.Or(v.found.Period, freshFor(v.answer.header))
	}
	return done, nil
}

// discovered are the links as they are reported.
func (v *visit) discovered() []collector.Discovered {
	if v.answer.location != nil {
		return []collector.Discovered{v.moved()}
	}
	sitemaps := v.sitemaps()
	items := make([]collector.Discovered, 0, len(v.found.Links)+len(sitemaps))
	for _, link := range v.found.Links {
		if slices.Contains(sitemaps, link.URL) {
			continue // as a sitemap, below
		}
		item := collector.Discovered{URL: link.URL, Kind: v.found.Kind, Relation: collector.RelationLink, Modified: link.Modified}
		switch link.ListedBy {
		case extract.KindFeed:
			item.Relation = collector.RelationFeedItem
		case extract.KindSitemap:
			item.Relation = collector.RelationSitemap
		}
		items = append(items, item)
	}
	for _, sitemap := range sitemaps {
		items = append(items, collector.Discovered{URL: sitemap, Kind: extract.KindSitemap, Relation: collector.RelationSitemap})
	}
	return items
}

// sitemaps are those that robots.txt names, for a page where a crawl begins.
func (v *visit) sitemaps() []string {
	if !v.cfg.Sitemaps || v.task.Depth > 0 {
		return nil
	}
	var sitemaps []string
	for _, written := range v.robots.Sitemaps(v.answer.url) {
		u, err := extract.ParseReference(written, "")
		if err != nil || !isWeb(u) {
			continue
		}
		if sitemap := u.String(); sitemap != v.answer.url.String() && !slices.Contains(sitemaps, sitemap) {
			sitemaps = append(sitemaps, sitemap)
		}
	}
	return sitemaps
}

// queueDelay is the delay that the host asks for between requests. Nil: it is not known, or nothing new. That a host asks for none
// is reported a few times after each read of its robots.txt, in case it asked for one before.
func (v *visit) queueDelay() *time.Duration {
	if v.robots == nil || v.url == nil || v.cfg.MaxCrawlDelay < 0 {
		return nil
	}
	if delay, ok := v.robots.Delay(v.url); ok {
		return new(min(delay, v.cfg.MaxCrawlDelay))
	}
	return nil
}

func (v *visit) page(changed bool) Page {
	t, final := v.task, cmp.Or(v.answer.location, v.answer.url)
	return Page{
		URL: v.url.String(), FinalURL: final.String(), RedirectedFrom: t.RedirectedFrom, Status: v.answer.status,
		ContentType: v.after.ContentType,
		FetchTime:   v.start.UTC(), FetchMillis: v.whole.Milliseconds(),
		Digest: v.after.Digest, Bytes: v.after.Bytes, Changed: changed, Links: len(v.found.Links),
		Canonical: v.found.Canonical, NoIndex: v.after.NoIndex,
		Title: v.found.Title, Author: v.found.Author, Published: v.found.Published, Depth: t.Depth, Kind: t.Kind,
		SourceID: t.SourceID, TaskID: t.ID, Cycle: t.Cycle, Run: t.Run, Attempt: t.Attempt, Fence: t.Fence,
	}
}
