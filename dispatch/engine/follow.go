package engine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// Follower is a compiled [dispatch.Follow] of a source.
type Follower struct {
	maxDepth int
	hosts    []string
	named    bool // the rule names the hosts; else they are the seeds'
	patterns dispatch.Patterns
}

// newFollower compiles the source's follow rule; nil if it has none. The error is a [dispatch.FieldError].
func newFollower(spec *dispatch.SourceSpec) (*Follower, error) {
	rule := spec.Follow
	if rule == nil {
		return nil, nil
	}
	f := &Follower{maxDepth: bounds.MaxDepth, hosts: slices.Clone(rule.AllowHosts), named: len(rule.AllowHosts) > 0}
	if rule.MaxDepth != nil {
		f.maxDepth = *rule.MaxDepth
	}
	if len(f.hosts) == 0 {
		for _, seed := range spec.Seeds {
			if host, err := canonical.Host(seed.URL); err == nil && !slices.Contains(f.hosts, host) {
				f.hosts = append(f.hosts, host)
			}
		}
	}
	var err error
	f.patterns, err = rule.Compile()
	return f, err
}

// passesHost reports whether an item from a page of t may have any host if the rule names none. That is true for the
// item of a feed, and for the target of such an item's redirect.
func passesHost(t *dispatch.Task, relation dispatch.Relation) bool {
	if relation == dispatch.RelationRedirect {
		return t.Relation == dispatch.RelationFeedItem
	}
	return relation == dispatch.RelationFeedItem && t.Relation != dispatch.RelationFeedItem
}

// refuses returns why an item is not followed, by its depth and host; dispatch.FilterNone: it is, unless its URL is
// refused. anyHost is from [passesHost]. An item without a URL has no host to check.
func (f *Follower) refuses(to dispatch.Target, depth int, anyHost bool) (dispatch.FilterReason, string) {
	switch {
	case f == nil && anyHost:
		return dispatch.FilterNone, ""
	case f == nil:
		return dispatch.FilterNoRule, "the source has no follow rule"
	case depth > f.maxDepth:
		return dispatch.FilterDepth, fmt.Sprintf("depth %d is over follow.max_depth %d", depth, f.maxDepth)
	case to.Canonical != "" && (f.named || !anyHost) && !f.allows(to.Host):
		return f.refusesHost(to)
	}
	return dispatch.FilterNone, ""
}

// refusesURL returns why an item is not followed, by the patterns for its URL; dispatch.FilterNone: it is. Only exclude
// applies to the target of a seed's redirect, since a seed needs no rule.
func (f *Follower) refusesURL(to dispatch.Target, move bool) (dispatch.FilterReason, string) {
	matches := func(re *regexp.Regexp) bool { return re.MatchString(to.Canonical) }
	if include := f.patterns.Include; !move && len(include) > 0 && !slices.ContainsFunc(include, matches) {
		return dispatch.FilterInclude, "no follow.include matches"
	}
	i := slices.IndexFunc(f.patterns.Exclude, matches)
	if i < 0 {
		return dispatch.FilterNone, ""
	}
	return dispatch.FilterExclude, fmt.Sprintf("follow.exclude[%d] matches", i)
}

// refusesMove returns why the target of a seed's redirect is not crawled, by its host; dispatch.FilterNone: it is,
// unless its URL is refused. Only named hosts apply.
func (f *Follower) refusesMove(to dispatch.Target) (dispatch.FilterReason, string) {
	if f != nil && to.Canonical != "" && f.named && !f.allows(to.Host) {
		return f.refusesHost(to)
	}
	return dispatch.FilterNone, ""
}

func (f *Follower) refusesHost(to dispatch.Target) (dispatch.FilterReason, string) {
	if f.named {
		return dispatch.FilterHost, fmt.Sprintf("host %q is not among follow.allow_hosts", to.Host)
	}
	return dispatch.FilterHost, fmt.Sprintf("host %q is not a seed's, and follow.allow_hosts is empty", to.Host)
}

// allows reports whether a host is followed. A host of [canonical.URL] has a port only if it is not the scheme's, so a
// pattern without a port, except "*", means the default ports. Another port may be another owner's server. Patterns of
// queue rules are about the load of a host, so they mean all its ports.
func (f *Follower) allows(host string) bool {
	return slices.ContainsFunc(f.hosts, func(allowed string) bool {
		suffix, isSuffix := strings.CutPrefix(allowed, "*")
		return allowed == host || isSuffix && strings.HasSuffix(host, suffix)
	})
}
