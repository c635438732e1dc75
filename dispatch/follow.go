package dispatch

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
)

// follower is a compiled [Follow] of a source.
type follower struct {
	maxDepth         int
	hosts            []string
	named            bool // the rule names the hosts; else they are the seeds'
	include, exclude []*regexp.Regexp
}

// newFollower compiles the source's follow rule; nil when it has none. The
// error is a [FieldError].
func newFollower(spec *SourceSpec) (*follower, error) {
	rule := spec.Follow
	if rule == nil {
		return nil, nil
	}
	f := &follower{maxDepth: MaxDepth, hosts: slices.Clone(rule.AllowHosts), named: len(rule.AllowHosts) > 0}
	if rule.MaxDepth != nil {
		f.maxDepth = *rule.MaxDepth
	}
	if len(f.hosts) == 0 {
		for _, seed := range spec.Seeds {
			if host, err := HostQueue(seed.URL); err == nil && !slices.Contains(f.hosts, host) {
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

// refuses says why an item that stands for this, at this depth, is not
// followed; empty when it is. An item without a URL has no host to check.
func (f *follower) refuses(to target, depth int) string {
	switch {
	case f == nil:
		return "the source has no follow rule"
	case depth > f.maxDepth:
		return fmt.Sprintf("depth %d is over follow.max_depth %d", depth, f.maxDepth)
	}
	if to.canonical == "" {
		return ""
	}
	if !f.allows(to.host) {
		return fmt.Sprintf("host %q is not among follow.allow_hosts", to.host)
	}
	matches := func(re *regexp.Regexp) bool { return re.MatchString(to.canonical) }
	if len(f.include) > 0 && !slices.ContainsFunc(f.include, matches) {
		return "no follow.include matches"
	}
	return f.excludes(to.canonical)
}

// refusesMove says why a seed's page is not crawled where the seed redirects to;
// empty when it is. A seed is crawled whatever the rule says, and so is its page
// in its new place, unless the rule names hosts that this is none of, or
// excludes it.
func (f *follower) refusesMove(to target) string {
	if f == nil || to.canonical == "" {
		return ""
	}
	if f.named && !f.allows(to.host) {
		return fmt.Sprintf("host %q is not among follow.allow_hosts", to.host)
	}
	return f.excludes(to.canonical)
}

// excludes says which exclude pattern matches; empty: none.
func (f *follower) excludes(canonical string) string {
	i := slices.IndexFunc(f.exclude, func(re *regexp.Regexp) bool { return re.MatchString(canonical) })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("follow.exclude[%d] matches", i)
}

// allows matches a host, with its port if it has one, as queue rules match a
// queue.
func (f *follower) allows(host string) bool {
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
