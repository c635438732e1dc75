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
	maxDepth         int
	hosts            []string
	named            bool // the rule names the hosts; else they are the seeds'
	include, exclude []*regexp.Regexp
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
	if f.include, err = compilePatterns("follow.include", rule.Include); err != nil {
		return nil, err
	}
	f.exclude, err = compilePatterns("follow.exclude", rule.Exclude)
	return f, err
}

func compilePatterns(field string, patterns []string) ([]*regexp.Regexp, error) {
	var out []*regexp.Regexp
	for i, pattern := range patterns {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return nil, dispatch.Invalid(fmt.Sprintf("%s[%d]", field, i), pattern, "does not compile as an RE2 expression: "+err.Error())
		}
		out = append(out, re)
	}
	return out, nil
}

// passesHost reports whether an item from a page of t may have any host if the rule names none. That is true for the
// item of a feed, and for the target of such an item's redirect.
func passesHost(t *dispatch.Task, relation dispatch.Relation) bool {
	if relation == dispatch.RelationRedirect {
		return t.Relation == dispatch.RelationFeedItem
	}
	return relation == dispatch.RelationFeedItem && t.Relation != dispatch.RelationFeedItem
}

// refuses returns why an item is not followed; dispatch.FilterNone: it is. anyHost is from [passesHost]. An item
// without a URL has no host to check.
func (f *Follower) refuses(to dispatch.Target, depth int, anyHost bool) (dispatch.FilterReason, string) {
	switch {
	case f == nil && anyHost:
		return dispatch.FilterNone, ""
	case f == nil:
		return dispatch.FilterNoRule, "the source has no follow rule"
	case depth > f.maxDepth:
		return dispatch.FilterDepth, fmt.Sprintf("depth %d is over follow.max_depth %d", depth, f.maxDepth)
	case to.Canonical == "":
		return dispatch.FilterNone, ""
	case (f.named || !anyHost) && !f.allows(to.Host):
		return f.refusesHost(to)
	}
	matches := func(re *regexp.Regexp) bool { return re.MatchString(to.Canonical) }
	if len(f.include) > 0 && !slices.ContainsFunc(f.include, matches) {
		return dispatch.FilterInclude, "no follow.include matches"
	}
	return f.excludes(to.Canonical)
}

// refusesMove returns why the target of a seed's redirect is not crawled; dispatch.FilterNone: it is. Only named hosts
// and exclude apply, since a seed needs no rule.
func (f *Follower) refusesMove(to dispatch.Target) (dispatch.FilterReason, string) {
	if f == nil || to.Canonical == "" {
		return dispatch.FilterNone, ""
	}
	if f.named && !f.allows(to.Host) {
		return f.refusesHost(to)
	}
	return f.excludes(to.Canonical)
}

func (f *Follower) refusesHost(to dispatch.Target) (dispatch.FilterReason, string) {
	if f.named {
		return dispatch.FilterHost, fmt.Sprintf("host %q is not among follow.allow_hosts", to.Host)
	}
	return dispatch.FilterHost, fmt.Sprintf("host %q is not a seed's, and follow.allow_hosts is empty", to.Host)
}

// excludes returns the exclude pattern that matches; dispatch.FilterNone: none.
func (f *Follower) excludes(canonical string) (dispatch.FilterReason, string) {
	i := slices.IndexFunc(f.exclude, func(re *regexp.Regexp) bool { return re.MatchString(canonical) })
	if i < 0 {
		return dispatch.FilterNone, ""
	}
	return dispatch.FilterExclude, fmt.Sprintf("follow.exclude[%d] matches", i)
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
