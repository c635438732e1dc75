package web

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"

	"github.com/temoto/robotstxt"
)

// robotsAnchor is put before every rule and every tested path. The library looks for a rule with a wildcard anywhere
// in the path; a mark that no path has further on makes it look from the start, as RFC 9309 wants.
const robotsAnchor = "/\u00a6"

// robotsRules is what a robots.txt says to one crawler.
type robotsRules struct {
	group *robotstxt.Group // nil: everything is allowed
}

// allows tells whether the crawler may fetch u.
func (r robotsRules) allows(u *url.URL) bool {
	if r.group == nil || u.EscapedPath() == "/robots.txt" {
		return true
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	literal := strings.NewReplacer("*", "%2A", "$", "%24").Replace(normalizeRobotsPath(path))
	return r.group.Test(robotsAnchor + literal)
}

// parseRobots reads a robots.txt for the crawler with the given product token.
//
// RFC 9309 asks to use every line that can be read. The library gives up at the first that cannot, so the file is
// first reduced to the lines that matter here, in a form that the library reads exactly: the group of this agent, else
// of "*", with Allow before Disallow (at equal length Allow wins) and paths in one spelling.
func parseRobots(body []byte, agent string) (robotsRules, error) {
	own, found := robotsGroup(body, agent)
	if !found {
		own, _ = robotsGroup(body, "*")
	}
	if len(own.allow)+len(own.disallow) == 0 {
		return robotsRules{}, nil
	}
	var clean bytes.Buffer
	clean.WriteString("User-agent: *\n")
	for _, path := range own.allow {
		clean.WriteString("Allow: " + robotsAnchor + path + "\n")
	}
	for _, path := range own.disallow {
		clean.WriteString("Disallow: " + robotsAnchor + path + "\n")
	}
	data, err := robotstxt.FromBytes(clean.Bytes())
	if err != nil {
		return robotsRules{}, fmt.Errorf("parse robots.txt: %w", err)
	}
	return robotsRules{group: data.FindGroup("*")}, nil
}

// robotsPaths are the rules of one group.
type robotsPaths struct {
	allow, disallow []string
}

// robotsGroup collects the rules of every group that names the agent; found is true when there is one.
func robotsGroup(body []byte, agent string) (rules robotsPaths, found bool) {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	named, inAgents := false, false // whether the group names the agent; whether its user-agent lines go on
	for line := range strings.FieldsFuncSeq(string(body), func(r rune) bool { return r == '\n' || r == '\r' }) {
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
		case "allow", "disallow":
			inAgents = false
			if !named || value == "" {
				continue
			}
			path, ok := robotsPattern(value)
			if !ok {
				continue
			}
			if field == "allow" {
				rules.allow = append(rules.allow, path)
			} else {
				rules.disallow = append(rules.disallow, path)
			}
		}
	}
	return rules, found
}

// robotsPattern brings a rule's path into the form that the library reads exactly: "$" is special only at the end,
// and wildcards in a row are one. Rules longer than any URL that Waggle takes are left out.
func robotsPattern(value string) (pattern string, ok bool) {
	if len(value) > maxURLLength {
		return "", false
	}
	path, atEnd := strings.CutSuffix(normalizeRobotsPath(value), "$")
	path = strings.ReplaceAll(path, "$", "%24")
	for strings.Contains(path, "**") {
		path = strings.ReplaceAll(path, "**", "*")
	}
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "*") {
		path = "/" + path
	}
	if atEnd {
		path += "$"
	}
	return path, true
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

// normalizeRobotsPath brings a path into one spelling: characters outside ASCII and white space escaped, escapes in
// capitals, and none for characters that need none.
func normalizeRobotsPath(path string) string {
	const upperHex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		escaped := false
		if c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]) {
			c = unhex(path[i+1])<<4 | unhex(path[i+2])
			escaped = true
			i += 2
		}
		if (escaped && !isUnreserved(c)) || c <= ' ' || c >= 0x7f {
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
