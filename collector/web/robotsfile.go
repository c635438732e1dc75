package web

import (
	"bytes"
	"iter"
	"slices"
	"strings"
)

// maxSitemaps is how many sitemaps of a robots.txt count.
const maxSitemaps = 100

// parseRobots reads a robots.txt for the crawler with the given product token: the rules of its own groups, else those of
// "*". Every line that can be read counts, as RFC 9309 wants.
func parseRobots(body []byte, agent string) robotsRules {
	rules, found := robotsGroup(body, agent)
	if !found {
		rules, _ = robotsGroup(body, "*")
	}
	rules.rules = sortRules(rules.rules)
	rules.sitemaps = robotsSitemaps(body)
	return rules
}

// robotsSitemaps are the sitemaps that a robots.txt names, whoever asks: absolute URLs, each once, up to maxSitemaps.
func robotsSitemaps(body []byte) []string {
	var found []string
	for line := range robotsLines(body) {
		field, value, ok := robotsLine(line)
		if !ok || field != "sitemap" || len(value) > maxURLLength || len(found) == maxSitemaps {
			continue
		}
		u, err := parseReference(value, "")
		if err != nil || checkAddress(u) != nil {
			continue
		}
		if sitemap := u.String(); !slices.Contains(found, sitemap) {
			found = append(found, sitemap)
		}
	}
	return found
}

// robotsLines are the lines of a robots.txt, whatever ends them.
func robotsLines(body []byte) iter.Seq[string] {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	return func(yield func(string) bool) {
		for some := range strings.SplitSeq(string(body), "\n") {
			for line := range strings.SplitSeq(some, "\r") {
				if line != "" && !yield(line) {
					return
				}
			}
		}
	}
}

// robotsGroup collects the rules of every group that names the agent; found is true when there is one.
func robotsGroup(body []byte, agent string) (rules robotsRules, found bool) {
	named, inAgents := false, false // whether the group names the agent; whether its user-agent lines go on
	for line := range robotsLines(body) {
		field, value, ok := robotsLine(line)
		if !ok {
			continue
		}
		switch field {
		case "user-agent":
			if !inAgents {
				named, inAgents = false, true
			}
			if strings.EqualFold(productToken(value), agent) {
				named, found = true, true
			}
		case "crawl-delay":
			inAgents = false
			if delay, ok := parseCrawlDelay(value); ok && named {
				rules.delay = max(rules.delay, delay)
			}
		case "allow", "disallow":
			inAgents = false
			if !named || value == "" {
				continue
			}
			if rule, ok := newRobotsRule(value); ok {
				rule.allow = field == "allow"
				rules.rules = append(rules.rules, rule)
			}
		}
	}
	return rules, found
}

// newRobotsRule brings a rule's path into its pattern: "$" is special only at the end, and wildcards in a row are one.
// Rules longer than any URL that Waggle takes are left out.
func newRobotsRule(value string) (rule robotsRule, ok bool) {
	if len(value) > maxURLLength {
		return robotsRule{}, false
	}
	path, atEnd := strings.CutSuffix(normalizeRobotsPath(value), "$")
	path = strings.ReplaceAll(path, "$", "%24")
	for strings.Contains(path, "**") {
		path = strings.ReplaceAll(path, "**", "*")
	}
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "*") {
		path = "/" + path
	}
	return robotsRule{pattern: path, atEnd: atEnd}, true
}

// robotsLine splits `Field: value # comment`.
func robotsLine(line string) (field, value string, ok bool) {
	line, _, _ = strings.Cut(line, "#")
	field, value, ok = strings.Cut(line, ":")
	return strings.ToLower(strings.TrimSpace(field)), strings.TrimSpace(value), ok
}

// productToken cuts a user agent down to the part that robots.txt matches: `Bot/1.0 (...)` is `Bot`.
func productToken(agent string) string {
	if strings.HasPrefix(agent, "*") {
		return "*"
	}
	end := strings.IndexFunc(agent, func(r rune) bool {
		isToken := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
		return !isToken
	})
	if end < 0 {
		return agent
	}
	return agent[:end]
}

// normalizeRobotsPath brings a path into one spelling: what URLs escape escaped, escapes in capitals, and none for
// characters that need none.
func normalizeRobotsPath(path string) string {
	const upperHex, escapes = "0123456789ABCDEF", pathEscapes + queryEscapes
	if !strings.ContainsFunc(path, func(r rune) bool { return r == '%' || mustEscape(r, escapes) }) {
		return strings.Clone(path) // so that a rule does not keep the whole file
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		escaped := false
		if c == '%' && isEscape(path[i:]) {
			c = unhex(path[i+1])<<4 | unhex(path[i+2])
			escaped = true
			i += 2
		}
		if (escaped && !isUnreserved(c)) || mustEscape(rune(c), escapes) {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
