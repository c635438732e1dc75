package web

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"
)

// ruleOverhead is what a rule costs in memory beside its pattern, in bytes.
const ruleOverhead = 48

// robotsRules is what a robots.txt says to one crawler. The zero value allows everything.
type robotsRules struct {
	rules []robotsRule  // the one that decides first: the longest pattern, and Allow before Disallow at equal length
	delay time.Duration // between requests; 0: none is asked for

	sitemaps []string // that the file names, for all crawlers
}

// robotsRule matches the begin of a path, or all of it when atEnd. "*" in the pattern stands for anything; the pattern and
// the path are in the spelling of normalizeRobotsPath.
type robotsRule struct {
	pattern string
	atEnd   bool
	allow   bool
}

// sortRules brings the rules of a group into the order in which they decide.
func sortRules(rules []robotsRule) []robotsRule {
	slices.SortStableFunc(rules, func(a, b robotsRule) int {
		if a.allow != b.allow && a.length() == b.length() {
			if a.allow {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.length(), a.length())
	})
	return slices.CompactFunc(rules, func(a, b robotsRule) bool { return a == b })
}

func (r robotsRule) length() int {
	if r.atEnd {
		return len(r.pattern) + 1
	}
	return len(r.pattern)
}

// bytes is about what the rules cost in memory.
func (r robotsRules) bytes() int {
	total := 0
	for _, rule := range r.rules {
		total += len(rule.pattern) + ruleOverhead
	}
	for _, sitemap := range r.sitemaps {
		total += len(sitemap) + ruleOverhead
	}
	return total
}

// allows tells whether the crawler may fetch u.
func (r robotsRules) allows(u *url.URL) bool {
	if len(r.rules) == 0 || u.EscapedPath() == "/robots.txt" {
		return true
	}
	path := cmp.Or(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	path = strings.NewReplacer("*", "%2A", "$", "%24").Replace(normalizeRobotsPath(path))
	for _, rule := range r.rules {
		if rule.matches(path) {
			return rule.allow
		}
	}
	return true
}

// matches takes time in the length of the path, however many wildcards there are: each part of the pattern is looked for
// behind the one before, at the first place where it stands.
func (r robotsRule) matches(path string) bool {
	part, pattern, wild := strings.Cut(r.pattern, "*")
	path, found := strings.CutPrefix(path, part)
	if !found {
		return false
	}
	for wild {
		part, pattern, wild = strings.Cut(pattern, "*")
		if !wild && r.atEnd {
			return strings.HasSuffix(path, part)
		}
		at := strings.Index(path, part)
		if at < 0 {
			return false
		}
		path = path[at+len(part):]
	}
	return !r.atEnd || path == ""
}
