package canonical

import (
	"regexp"
	"slices"
	"strings"
)

// minSessionValue is how long the value of a parameter with an ambiguous name
// is, in bytes, for it to be taken for a session id. The shortest ids in use,
// PHP's, have 26.
const minSessionValue = 24

// Session ids are left out where nothing else can be meant:
//   - the path parameter jsessionid (Java), with any value;
//   - path segments such as (S(lit3py55t21z5v55vlm25s55)), by which ASP.NET does
//     without cookies;
//   - query parameters that carry a session id in a known language or product,
//     with any value: jsessionid, phpsessid, aspsessionid and 8 letters, cfid and
//     cftoken together;
//   - query parameters that may, by their names (sid, sessid, sessionid,
//     session_id, session-id, oscsid, zenid), if the value is one: 24 or more
//     letters, digits, "-" and "_", with a digit among them.
//
// Names are matched in any letter case.
var (
	pathSession   = regexp.MustCompile(`(?i)^jsessionid=`)
	aspNetSession = regexp.MustCompile(`(?i)^\(([a-z]\([0-9a-z]{24}\))+\)$`)
	aspSession    = regexp.MustCompile(`^aspsessionid[a-z]{8}$`)
)

// withoutPathSession leaves session ids out of a path. Without any it is the same,
// byte for byte.
func withoutPathSession(path string) string {
	if !strings.ContainsAny(path, ";(") {
		return path
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		parts := strings.Split(segment, ";")
		parameters := slices.DeleteFunc(parts[1:], matchesEscaped(pathSession))
		segments[i] = strings.Join(parts[:1+len(parameters)], ";")
	}
	return strings.Join(slices.DeleteFunc(segments, matchesEscaped(aspNetSession)), "/")
}

// matchesEscaped matches what is escaped in whatever way.
func matchesEscaped(re *regexp.Regexp) func(string) bool {
	return func(s string) bool { return re.MatchString(normalizeEscapes(s)) }
}

// withoutQuerySession leaves session ids out of a query. Without any it is the
// same, byte for byte.
func withoutQuerySession(query string) string {
	lower := strings.ToLower(normalizeEscapes(query))
	coldFusion := hasParameter(lower, "cfid") && hasParameter(lower, "cftoken")
	return filterQuery(query, func(name, value string) bool {
		switch name {
		case "jsessionid", "phpsessid":
			return false
		case "cfid", "cftoken":
			return !coldFusion
		case "sid", "sessid", "sessionid", "session_id", "session-id", "oscsid", "zenid":
			return !isSessionValue(value)
		}
		return !aspSession.MatchString(name)
	})
}

// withoutTracking leaves out of a query what only follows visitors.
func withoutTracking(query string) string {
	return filterQuery(query, func(name, _ string) bool { return !isTracking(name) })
}

func isSessionValue(value string) bool {
	if len(value) < minSessionValue || !strings.ContainsAny(value, "0123456789") {
		return false
	}
	return !strings.ContainsFunc(value, func(r rune) bool {
		return r >= 0x80 || !isUnreserved(byte(r)) || r == '.' || r == '~'
	})
}

// isTracking knows the parameters by which advertisers and mailers follow
// visitors; sites ignore them. The name is in lower case. Names that a site may
// have given a meaning of its own, such as ref or source, are not among them.
func isTracking(name string) bool {
	if strings.HasPrefix(name, "utm_") {
		return true
	}
	switch name {
	case "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "srsltid", "_ga", "_gl", // Google
		"fbclid", "igshid", "igsh", // Facebook, Instagram
		"msclkid", "yclid", "ysclid", "twclid", "ttclid", "li_fat_id", "epik", // Microsoft, Yandex, X, TikTok, LinkedIn, Pinterest
		"mc_cid", "mc_eid", "_hsenc", "_hsmi", "__hssc", "__hstc", "__hsfp", "mkt_tok", "vero_id", "_openstat": // mailers
		return true
	}
	return false
}

// sortedQuery orders a query by name, and leaves out what is empty.
func sortedQuery(query string) string {
	name := func(part string) string {
		name, _, _ := strings.Cut(part, "=")
		return name
	}
	parts := slices.DeleteFunc(strings.Split(query, "&"), func(part string) bool { return part == "" })
	slices.SortStableFunc(parts, func(a, b string) int { return strings.Compare(name(a), name(b)) })
	return strings.Join(parts, "&")
}

// filterQuery leaves out the parameters that keep refuses; it is given their
// names in lower case, and both as [normalizeEscapes] writes them.
func filterQuery(query string, keep func(name, value string) bool) string {
	if query == "" {
		return ""
	}
	parts := strings.Split(query, "&")
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool {
		name, value, _ := strings.Cut(normalizeEscapes(part), "=")
		return !keep(strings.ToLower(name), value)
	}), "&")
}

func hasParameter(query, name string) bool {
	return strings.HasPrefix(query, name+"=") || strings.Contains(query, "&"+name+"=")
}
