package dispatch

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// Follower is a compiled [Follow] of a source.
type Follower struct {
	maxDepth         int
	hosts            []string
	named            bool // the rule names the hosts; else they are the seeds'
	include, exclude []*regexp.Regexp
}

// NewFollower compiles the source's follow rule; nil when it has none. The
// error is a [FieldError].
func NewFollower(spec *SourceSpec) (*Follower, error) {
	rule := spec.Follow
	if rule == nil {
		return nil, nil
	}
	f := &Follower{maxDepth: MaxDepth, hosts: slices.Clone(rule.AllowHosts), named: len(rule.AllowHosts) > 0}
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
			return nil, Invalid(fmt.Sprintf("%s[%d]", field, i), pattern, "does not compile as an RE2 expression: "+err.Error())
		}
		out = append(out, re)
	}
	return out, nil
}

// PassesHost reports whether an item that a page of t's leads to is followed on
// any host, unless the rule names hosts: an item of a feed is, one step, and where
// it redirects to.
func PassesHost(t *Task, relation Relation) bool {
	if relation == RelationRedirect {
		return t.Relation == RelationFeedItem
	}
	return relation == RelationFeedItem && t.Relation != RelationFeedItem
}

// Refuses says why an item that stands for this, at this depth, is not
// followed; FilterNone when it is. anyHost is for [passesHost]. An item without a
// URL has no host to check.
func (f *Follower) Refuses(to Target, depth int, anyHost bool) (FilterReason, string) {
	switch {
	case f == nil && anyHost:
		return FilterNone, ""
	case f == nil:
		return FilterNoRule, "the source has no follow rule"
	case depth > f.maxDepth:
		return FilterDepth, fmt.Sprintf("depth %d is over follow.max_depth %d", depth, f.maxDepth)
	case to.Canonical == "":
		return FilterNone, ""
	case (f.named || !anyHost) && !f.allows(to.Host):
		return f.refusesHost(to)
	}
	matches := func(re *regexp.Regexp) bool { return re.MatchString(to.Canonical) }
	if len(f.include) > 0 && !slices.ContainsFunc(f.include, matches) {
		return FilterInclude, "no follow.include matches"
	}
	return f.excludes(to.Canonical)
}

// RefusesMove says why a seed's page is not crawled where the seed redirects to;
// FilterNone when it is. A seed is crawled whatever the rule says, and so is its page
// in its new place, unless the rule names hosts that this is none of, or
// excludes it.
func (f *Follower) RefusesMove(to Target) (FilterReason, string) {
	if f == nil || to.Canonical == "" {
		return FilterNone, ""
	}
	if f.named && !f.allows(to.Host) {
		return f.refusesHost(to)
	}
	return f.excludes(to.Canonical)
}

func (f *Follower) refusesHost(to Target) (FilterReason, string) {
	if f.named {
		return FilterHost, fmt.Sprintf("host %q is not among follow.allow_hosts", to.Host)
	}
	return FilterHost, fmt.Sprintf("host %q is not a seed's, and follow.allow_hosts is empty", to.Host)
}

// excludes says which exclude pattern matches; FilterNone: none.
func (f *Follower) excludes(canonical string) (FilterReason, string) {
	i := slices.IndexFunc(f.exclude, func(re *regexp.Regexp) bool { return re.MatchString(canonical) })
	if i < 0 {
		return FilterNone, ""
	}
	return FilterExclude, fmt.Sprintf("follow.exclude[%d] matches", i)
}

// allows matches a host, with its port if it has one, as queue rules match a
// queue.
func (f *Follower) allows(host string) bool {
	bare := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		bare = h
	}
	return slices.ContainsFunc(f.hosts, func(allowed string) bool {
		suffix, isSuffix := strings.CutPrefix(allowed, "*.")
		switch {
		case allowed == "*", allowed == host, allowed == bare:
			return true
		case isSuffix:
			return strings.HasSuffix(bare, "."+suffix)
		}
		return false
	})
}
