package dispatch

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
	pathSession   = regexp.MustCompile(`(?i);jsessionid=[^/;]*`)
	aspNetSession = regexp.MustCompile(`(?i)^\(([a-z]\([0-9a-z]{24}\))+\)$`)
	aspSession    = regexp.MustCompile(`^aspsessionid[a-z]{8}$`)
)

// withoutPathSession leaves session ids out of a path.
func withoutPathSession(path string) string {
	if !strings.ContainsAny(path, ";(") {
		return path
	}
	segments := strings.Split(pathSession.ReplaceAllString(path, ""), "/")
	return strings.Join(slices.DeleteFunc(segments, aspNetSession.MatchString), "/")
}

// withoutQuerySession leaves session ids out of a query. Without any it is the
// same, byte for byte.
func withoutQuerySession(query string) string {
	lower := strings.ToLower(query)
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

// sortedQuery leaves out what only follows visitors, and what is empty, and
// orders the rest by name.
func sortedQuery(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if part != "" && !isTracking(strings.ToLower(name)) {
			kept = append(kept, part)
		}
	}
	slices.SortStableFunc(kept, func(a, b string) int {
		nameA, _, _ := strings.Cut(a, "=")
		nameB, _, _ := strings.Cut(b, "=")
		return strings.Compare(nameA, nameB)
	})
	return strings.Join(kept, "&")
}

// filterQuery leaves out the parameters that keep refuses; it is given their
// names in lower case.
func filterQuery(query string, keep func(name, value string) bool) string {
	if query == "" {
		return ""
	}
	parts := strings.Split(query, "&")
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool {
		name, value, _ := strings.Cut(part, "=")
		return !keep(strings.ToLower(name), value)
	}), "&")
}

func hasParameter(query, name string) bool {
	return strings.HasPrefix(query, name+"=") || strings.Contains(query, "&"+name+"=")
}
