package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/idna"
)

var (
	errRedirects   = errors.New("too many redirects")
	errBadRedirect = errors.New("bad redirect")
)

// get asks for a URL and follows redirects to an answer, which it reads.
func (f *fetcher) get(ctx context.Context, req fetchRequest) (*fetched, error) {
	target := req.url
	seen := make(map[string]bool)
	for hop := 0; ; hop++ {
		if err := f.checkAddress(target); err != nil {
			return nil, err
		}
		answer, err := f.visit(ctx, req, target)
		if hop > 0 && errors.Is(err, errPrivate) { // a name that resolves to what a redirect may not lead to, for robots.txt too
			err = fmt.Errorf("%w to %q: %w", errBadRedirect, target, err)
		}
		if err != nil || answer.location == nil {
			return answer, err
		}
		next := answer.location
		seen[target.String()] = true
		if err := f.checkAddress(next); err != nil {
			return nil, fmt.Errorf("%w to %q: %w", errBadRedirect, next, err)
		}
		if req.leaves != nil && req.leaves(next) {
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

// visit is one hop, after the caller's check of where it goes.
func (f *fetcher) visit(ctx context.Context, req fetchRequest, target *url.URL) (*fetched, error) {
	if req.visit != nil {
		if err := req.visit(ctx, target); err != nil {
			return nil, err
		}
	}
	return f.hop(ctx, req, target)
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
	if len(location) > maxURLLength {
		return nil, fmt.Errorf("%w: Location of %d bytes, limit %d", errBadRedirect, len(location), maxURLLength)
	}
	u, err := parseReference(location, from.Scheme)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadRedirect, err)
	}
	u = from.ResolveReference(u)
	u.User = nil
	u.Path = cmp.Or(u.Path, "/")
	return u, nil
}

// hostQueue is the queue that a URL belongs to when no rule maps its host: the host in lower case and punycode, with the
// port when it is not the scheme's, so that http and https share it.
func hostQueue(u *url.URL) string {
	host := strings.TrimSuffix(u.Hostname(), ".")
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	host = strings.ToLower(host)
	port := u.Port()
	if port == "" || (u.Scheme == "http" && port == "80") || (u.Scheme == "https" && port == "443") {
		return host
	}
	return net.JoinHostPort(host, port)
}
