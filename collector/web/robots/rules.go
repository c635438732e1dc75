package robots

import (
	"bytes"
	"cmp"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// maxURLBytes is the longest URL that Waggle takes, in bytes.
	maxURLBytes = 2048

	// maxSitemaps is how many sitemaps of a robots.txt count.
	maxSitemaps = 100

	// maxDelay is the longest Crawl-delay that is believed.
	maxDelay = 24 * time.Hour

	// ruleOverhead is what a rule costs in memory beside its pattern, in bytes.
	ruleOverhead = 48
)

// rules are what a robots.txt asks of one crawler. The zero value allows everything.
type rules struct {
	paths    []pathRule    // the one that decides first: the longest pattern, and Allow before Disallow at equal length
	delay    time.Duration // between requests; 0: none is asked for
	sitemaps []string      // that the file names, for all crawlers
}

// pathRule matches the begin of a path, or all of it when atEnd. "*" in the pattern stands for anything; the pattern and
// the path are in the spelling of normalize.
type pathRule struct {
	pattern string
	atEnd   bool
	allow   bool
}

// parse reads the robots.txt at a URL for the crawler with the given product token: the rules of its own groups, else those
// of "*". Every line that can be read counts, as RFC 9309 wants.
func parse(body []byte, agent string, at *url.URL) rules {
	found, ok := readGroups(body, agent)
	if !ok {
		found, _ = readGroups(body, "*")
	}
	slices.SortStableFunc(found.paths, func(a, b pathRule) int { return cmp.Compare(b.rank(), a.rank()) })
	found.paths = slices.Compact(found.paths)
	found.sitemaps = readSitemaps(body, at)
	return found
}

// readGroups collects the rules of every group that names the agent; ok is false when there is none. By RFC 9309 a group is
// a list of user-agent lines and the rules after it. A line of another kind ends neither: a delay between two names counts
// for both.
func readGroups(body []byte, agent string) (found rules, ok bool) {
	named, inAgents := false, false // whether the group names the agent; whether its user-agent lines go on
	var delay time.Duration         // that the group has so far
	for field, value := range fields(body) {
		switch field {
		case "user-agent":
			if !inAgents {
				named, inAgents, delay = false, true, 0
			}
			if strings.EqualFold(groupName(value), agent) {
				named, ok = true, true
			}
		case "crawl-delay":
			delay = max(delay, parseDelay(value))
		case "allow", "disallow":
			inAgents = false
			if rule, ok := newPathRule(value, field == "allow"); named && ok {
				found.paths = append(found.paths, rule)
			}
		}
		if named {
			found.delay = max(found.delay, delay)
		}
	}
	return found, ok
}

// groupName is the crawler that a user-agent line names: a product token, or "*" for all. `*foo` names nobody.
func groupName(value string) string {
	if name, _, _ := strings.Cut(value, " "); name == "*" {
		return "*"
	}
	return ProductToken(value)
}

// readSitemaps are the URLs of the sitemaps that the robots.txt at a URL names, whoever asks: each once, up to maxSitemaps.
// A line may have several, and relative ones.
func readSitemaps(body []byte, at *url.URL) []string {
	var found []string
	for field, value := range fields(body) {
		if field != "sitemap" {
			continue
		}
		for written := range strings.FieldsSeq(value) {
			u, err := at.Parse(written)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				continue
			}
			if text := u.String(); len(text) <= maxURLBytes && len(found) < maxSitemaps && !slices.Contains(found, text) {
				found = append(found, text)
			}
		}
	}
	return found
}

// fields are the lines `Field: value # comment` of a robots.txt, whatever ends them, with the fields in lower case. A known
// field needs no colon before its value.
func fields(body []byte) iter.Seq2[string, string] {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	return func(yield func(field, value string) bool) {
		for line := range strings.FieldsFuncSeq(string(body), func(r rune) bool { return r == '\n' || r == '\r' }) {
			line, _, _ = strings.Cut(line, "#")
			field, value, ok := cutField(strings.TrimSpace(line))
			if ok && !yield(field, value) {
				return
			}
		}
	}
}

// cutField cuts a line at its colon, or behind a field that is known.
func cutField(line string) (field, value string, ok bool) {
	end := strings.IndexFunc(line, func(r rune) bool { return r == ':' || unicode.IsSpace(r) })
	if end < 0 {
		return "", "", false
	}
	field, value = strings.ToLower(line[:end]), strings.TrimSpace(line[end:])
	if rest, colon := strings.CutPrefix(value, ":"); colon {
		return field, strings.TrimSpace(rest), true
	}
	known := slices.Contains([]string{"user-agent", "allow", "disallow", "crawl-delay", "sitemap"}, field)
	return field, value, known
}

// parseDelay reads the seconds of a Crawl-delay line, also parts of them; 0 when there are none to be read.
func parseDelay(value string) time.Duration {
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || !(seconds >= 0 && seconds <= maxDelay.Seconds()) {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// newPathRule brings a rule's path into its pattern: "$" is special only at the end. Wildcards in a row stay, since the
// length of the pattern decides between rules. A path that begins with neither a slash nor a wildcard matches no URL; ok is
// false for it, and for one longer than any URL.
func newPathRule(value string, allow bool) (rule pathRule, ok bool) {
	if len(value) > maxURLBytes || !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "*") {
		return pathRule{}, false
	}
	path, atEnd := strings.CutSuffix(normalize(value), "$")
	return pathRule{pattern: strings.ReplaceAll(path, "$", "%24"), atEnd: atEnd, allow: allow}, true
}

// ProductToken cuts a user agent down to the part that robots.txt matches: `Bot/1.0 (...)` is `Bot`.
func ProductToken(agent string) string {
	end := strings.IndexFunc(agent, func(r rune) bool {
		isToken := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
		return !isToken
	})
	if end < 0 {
		return agent
	}
	return agent[:end]
}

// rank is higher for the rule that decides before another: twice its length, and one more for Allow.
func (r pathRule) rank() int {
	rank := 2 * len(r.pattern)
	if r.atEnd {
		rank += 2
	}
	if r.allow {
		rank++
	}
	return rank
}

// bytes is about what the rules cost in memory.
func (r *rules) bytes() int {
	total := 0
	for _, rule := range r.paths {
		total += len(rule.pattern) + ruleOverhead
	}
	for _, sitemap := range r.sitemaps {
		total += len(sitemap) + ruleOverhead
	}
	return total
}

// allows reports whether the crawler may fetch u.
func (r *rules) allows(u *url.URL) bool {
	if len(r.paths) == 0 || u.EscapedPath() == "/robots.txt" {
		return true
	}
	path := cmp.Or(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	path = strings.NewReplacer("*", "%2A", "$", "%24").Replace(normalize(path))
	for _, rule := range r.paths {
		if rule.matches(path) {
			return rule.allow
		}
	}
	return true
}

// matches takes time in the length of the path, however many wildcards there are: each part of the pattern is looked for
// behind the one before, at the first place where it stands.
func (r pathRule) matches(path string) bool {
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

// normalize brings a path into one spelling: what URLs escape escaped, escapes in capitals, and none for characters that
// need none.
func normalize(path string) string {
	const upperHex = "0123456789ABCDEF"
	if !strings.ContainsFunc(path, func(r rune) bool { return r == '%' || mustEscape(r) }) {
		return strings.Clone(path) // so that a rule does not keep the whole file
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c, escaped := path[i], false
		if c == '%' && i+2 < len(path) {
			if code, err := strconv.ParseUint(path[i+1:i+3], 16, 8); err == nil {
				c, escaped = byte(code), true
				i += 2
			}
		}
		if escaped && !isUnreserved(c) || mustEscape(rune(c)) {
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// mustEscape reports whether URLs escape a character in a path or a query, by WHATWG's URL standard.
func mustEscape(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.IndexByte("\"<>^`{}|'", byte(r)) >= 0
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
