// Package canonical brings URLs into the form that identifies what they stand for, and into
// the form in which they are fetched. It imports nothing of this module.
package canonical

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode/utf8"
)

// Numbers of the canonicalisation rules. A source keeps the number it was made
// with, because its keys were made by them: the rules of a number never change
// once released. New rules get a new number.
const (
	// Plain are the rules that do not change which document a URL
	// stands for.
	Plain = 1
	// Sorted are those of Plain, and those that hardly ever
	// do: the query in order, what only follows visitors left out.
	Sorted = 2
)

// MaxLength of a URL as it comes in, in bytes. Its other forms may be longer.
const MaxLength = 2 << 10

// URL is a URL in its forms.
type URL struct {
	// Address is what is fetched: the URL with the scheme and the host of Canonical, so that
	// all resolvers and proxies take it for one host; the rest as it came in, escaped (see
	// [Escape]), less the session ids and what else the rules leave out of its query.
	Address string
	// Canonical identifies the page: it is the key of its task, and what follow
	// patterns are matched with.
	Canonical string
	// Host in lower case and punycode, with ":port" if the port is not the scheme's: so
	// http and https share it.
	Host string
}

// Parse brings a URL into its forms, by the rules of the given number.
//
// Rules 1 ([Plain]), after RFC 3986 section 6.2.2 and 6.2.3, and after
// what crawlers do:
//   - the URL is escaped (see [Escape]); only http and https are taken;
//   - the scheme is in lower case; the host is what WHATWG's host parser makes of it
//     (percent-decoded, in lower case and punycode by UTS 46, an IPv4 address if it ends
//     in a number), without a trailing dot; IP addresses are in their shortest form;
//   - no port that is the scheme's, no leading zeros in another, no ":" without
//     a port, no user information that is empty; any other is an error;
//   - percent-encodings are in upper case, those of unreserved characters are
//     decoded, and bytes that may not stand in a URL are encoded; "+" stays, and
//     so does an encoded "/";
//   - dot segments are removed; an empty path is "/"; empty segments stay;
//   - no fragment, no query that is empty;
//   - no session ids (see withoutSessions).
//
// Everything else is kept: letter case and trailing slash of the path, the order of the
// query.
//
// Rules 2 ([Sorted]) are rules 1, then:
//   - parameters of the query that only follow visitors are left out (see
//     isTracking), and so are empty ones;
//   - the others are ordered by their names; those of one name stay in their
//     order, which lists are made of.
//
// The error completes "the URL ...", such as "must have a host".
func Parse(rules int, raw string) (URL, error) {
	if err := CheckRules(rules); err != nil {
		return URL{}, fmt.Errorf("has rules that %w", err)
	}
	if len(raw) > MaxLength {
		return URL{}, fmt.Errorf("is %d bytes long; the limit is %d", len(raw), MaxLength)
	}
	if host, ok := plainHost(raw); ok {
		return URL{Address: raw, Canonical: raw, Host: host}, nil
	}
	head, parts, err := parseURL(raw)
	if err != nil {
		return URL{}, err
	}
	parts.path = withoutPathSession(parts.path)
	if parts.query != "" {
		query := withoutQuerySession(parts.query[1:])
		if rules == Sorted {
			query = withoutTracking(query)
		}
		if query != "" || len(parts.query) == 1 {
			query = "?" + query
		}
		parts.query = query
	}
	t := URL{Address: head.String() + parts.path + parts.query + parts.fragment, Host: head.host}
	path, query := removeDotSegments(normalizeEscapes(parts.path)), normalizeEscapes(strings.TrimPrefix(parts.query, "?"))
	if rules == Sorted {
		query = sortedQuery(query)
	}
	if query != "" {
		query = "?" + query
	}
	t.Canonical = head.String() + path + query
	return t, nil
}

// Form is the canonical form of a URL as [URL] has it. The error is that of [Parse].
func Form(rules int, raw string) (string, error) {
	u, err := Parse(rules, raw)
	return u.Canonical, err
}

// CheckRules refuses a number of which there are no rules. Its error completes "the number
// ...".
func CheckRules(rules int) error {
	if rules < Plain || rules > Sorted {
		return fmt.Errorf("must be %d or %d", Plain, Sorted)
	}
	return nil
}

// removeDotSegments is RFC 3986 section 5.2.4 for an absolute path whose
// percent-encodings are normalized.
func removeDotSegments(path string) string {
	if path == "" {
		return "/"
	}
	var out []string
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case ".":
			if last {
				out = append(out, "")
			}
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, segment)
		}
	}
	return "/" + strings.Join(out, "/")
}

// Host is the host of a URL as [URL] has it. The error is that of [Parse].
func Host(raw string) (string, error) {
	u, err := Parse(Plain, raw)
	return u.Host, err
}

// QueueName is the name of the queue that people mean by text: of a URL its [Host]; of a
// host in whatever case and script that host, with its port. What is neither is returned
// as it is, for others to refuse; so is a number, which is no address outside of a URL.
func QueueName(text string) string {
	if strings.Contains(text, "://") {
		if queue, err := Host(text); err == nil {
			return queue
		}
		return text
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, ""
	}
	if strings.Contains(host, ":") { // IPv6
		host = "[" + strings.Trim(host, "[]") + "]"
	}
	name, err := canonicalHost(host)
	if err != nil || plainAddress(name) && !strings.HasPrefix(host, "[") && !plainAddress(host) {
		return text
	}
	if port == "" {
		return name
	}
	return name + ":" + port
}

// urlHead is what stands before the path of a URL, in canonical form.
type urlHead struct{ scheme, host string }

func (h urlHead) String() string { return h.scheme + "://" + h.host }

// parseURL takes an absolute http or https URL apart, and brings scheme and host
// into canonical form.
func parseURL(raw string) (head urlHead, parts urlParts, err error) {
	if !utf8.ValidString(raw) {
		return head, parts, errors.New("must be UTF-8")
	}
	trimmed := trimURL(raw)
	if i := strings.IndexFunc(trimmed, isControl); i >= 0 {
		return head, parts, fmt.Errorf("must have no control character in it, such as %q", trimmed[i])
	}
	parts = splitURL(trimmed)
	scheme, authority, found := strings.Cut(parts.head, "://")
	head.scheme = strings.ToLower(scheme)
	if !found || head.scheme != "http" && head.scheme != "https" {
		return head, parts, errors.New("must begin with http:// or https://")
	}
	head.host, err = Authority(head.scheme, authority)
	return head, parts, err
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
