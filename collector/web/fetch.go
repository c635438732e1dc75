package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/collector/web/extract"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// maxRetryAfter bounds what a host can ask for; the queue's own limit is the dispatcher's to apply.
const maxRetryAfter = 24 * time.Hour

// maxDrain is how much of a body that nobody needs is read to keep its connection.
const maxDrain = 64 << 10

var (
	errInvalidAddress = errors.New("not an http or https URL with a host")
	errRedirects      = errors.New("too many redirects")
	errBadRedirect    = errors.New("bad redirect")
)

// fetcher sends requests with limits on redirects and size. The limit on time is the caller's context.
type fetcher struct {
	transport    http.RoundTripper
	userAgent    string
	codings      string // accepted
	maxRatio     int64
	allowPrivate bool
}

// fetchRequest says what to get.
type fetchRequest struct {
	url      *url.URL
	accept   string
	maxBytes int64
	truncate bool // cut a body at maxBytes instead of failing
	partial  bool // what arrived of a body whose connection was lost will do

	// A long body is packed. Beyond manyPacked bytes it goes on if beyond returns no error; 0: none is packed.
	manyPacked int64
	beyond     func() error

	// conditions are sent with the request for conditionsFor, and with no other hop of a redirect.
	conditions    http.Header
	conditionsFor string

	// maxRedirects bounds the redirects that are followed at once. 0: a redirect is the answer.
	maxRedirects int

	// record notes the exchanges, unless it is nil.
	record *recording

	// visit is asked before each hop; an error ends the fetch.
	visit func(*url.URL) error
}

// fetched is an answer that was read.
type fetched struct {
	url    *url.URL // the one that answered
	status int
	header http.Header
	body   []byte      // decompressed
	packed *packedBody // in place of body
	lost   error       // what ended a partial body

	// location is where the answer leads to, if it is a redirect; it has no body then.
	location *url.URL
}

// get asks for a URL and follows the redirects that it may follow to an answer, which it reads.
func (f *fetcher) get(ctx context.Context, req fetchRequest) (*fetched, error) {
	target := req.url
	seen := make(map[string]bool)
	for hop := 0; ; hop++ {
		if err := f.checkAddress(target); err != nil {
			return nil, err
		}
		answer, err := f.hop(ctx, req, target)
		if hop > 0 && errors.Is(err, errPrivate) { // a name that resolves to what a redirect may not lead to, for robots.txt too
			err = fmt.Errorf("%w to %q: %w", errBadRedirect, target, err)
		}
		if err != nil || answer.location == nil {
			return answer, err
		}
		next := answer.location
		seen[target.String()] = true
		if err := f.checkAddress(next); err != nil {
			return nil, fmt.Errorf("%w to %q: %w", errBadRedirect, canonical.RedactedURL(next.String()), err)
		}
		if req.maxRedirects == 0 {
			return answer, nil
		}
		if seen[next.String()] {
			return nil, fmt.Errorf("%w: a loop, back to %q", errBadRedirect, next)
		}
		if hop >= req.maxRedirects {
			return nil, fmt.Errorf("%w: more than %d, the last to %s", errRedirects, req.maxRedirects, next)
		}
		target = next
	}
}

// checkAddress reports whether a URL, as it is written, may be fetched.
func (f *fetcher) checkAddress(u *url.URL) error {
	switch {
	case !isWeb(u):
		return fmt.Errorf("%q: %w", canonical.RedactedURL(u.String()), errInvalidAddress)
	case f.allowPrivate:
		return nil
	}
	return checkHost(u)
}

func isWeb(u *url.URL) bool { return (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" }

// hop sends one request, once the caller has agreed to where it goes, and reads the answer.
func (f *fetcher) hop(ctx context.Context, req fetchRequest, target *url.URL) (_ *fetched, err error) {
	if req.visit != nil {
		if err := req.visit(target); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalidAddress, err)
	}
	if req.conditionsFor == target.String() {
		maps.Copy(request.Header, req.conditions)
	}
	request.Header.Set("User-Agent", f.userAgent)
	request.Header.Set("Accept", req.accept)
	request.Header.Set("Accept-Encoding", f.codings)

	response, err := req.record.roundTrip(f.transport, request)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := response.Body.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("close body: %w", closeErr)
		}
	}()
	answer := &fetched{url: target, status: response.StatusCode, header: response.Header, body: []byte{}}
	switch {
	case !isFinal(response):
		// The body is never read; closing it closes the connection.
	case isRedirect(response.StatusCode):
		drain(response)
		answer.location, err = redirectTarget(target, response.Header.Get("Location"))
	case response.StatusCode >= 400:
		drain(response)
	default:
		limits := bodyLimits{bytes: req.maxBytes, ratio: f.maxRatio, truncate: req.truncate}
		if req.manyPacked > 0 {
			limits.keep = answer.keep(&req, response.Body)
		}
		if answer.body, err = readBody(response, limits); req.partial && errors.Is(err, errBodyLost) {
			answer.lost, err = err, nil
		}
	}
	return answer, err
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

func redirectTarget(from *url.URL, location string) (*url.URL, error) {
	if location == "" {
		return nil, fmt.Errorf("%w: no Location", errBadRedirect)
	}
	if len(location) > extract.MaxURLBytes {
		return nil, fmt.Errorf("%w: Location of %d bytes, limit %d", errBadRedirect, len(location), extract.MaxURLBytes)
	}
	u, err := extract.ParseReference(location, from.Scheme)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadRedirect, err)
	}
	u = from.ResolveReference(u)
	u.Path = cmp.Or(u.Path, "/")
	return u, nil
}

// drain reads an unneeded body if it is short, so that its connection can be used again.
func drain(response *http.Response) {
	if response.ContentLength <= maxDrain {
		_, _ = io.CopyN(io.Discard, response.Body, maxDrain) // an error here concerns the connection only
	}
}

// retryAfter reads a Retry-After header in both its forms: seconds, or a date, which is taken relative to now. A number of
// seconds as large as a year and more is a date, too. It returns 0 when there is none that can be read, or when it has passed.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	after := wholeSeconds(value)
	if at := extract.ReadTime(value); !at.IsZero() && (after == 0 || after > 365*24*time.Hour) {
		after = max(at.Sub(now), 0)
	}
	return min(after, maxRetryAfter)
}
