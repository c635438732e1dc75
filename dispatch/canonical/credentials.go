package canonical

import (
	"errors"
	"regexp"
	"strings"
)

var (
	// credentials stand before the host of a URL: what is before the last "@" of its authority, but for a user name.
	credentials = regexp.MustCompile(`(?i)((?:[a-z][a-z0-9+.-]*:[/\\]{2,}|https?:)(?:[^\s/\\?#@:]*:)?)[^\s/\\?#]*@`)

	// likelyCredentials are before the "@", too, or what stands for one, of what is no valid URL. If a ":" is followed by
	// no port, they go to the last of all, since passwords have characters in them such as "/".
	likelyCredentials = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*:[/\\]{2,}|https?:[/\\]*|^\s*[/\\]{2,})` +
		`(?:[^/\\?#]+|[^/\\?#@:\[]*:[0-9]*[^0-9/\\?#].*)(?:@|＠|%40)`)
)

// Redacted is a text with xxxxx in place of the passwords of URLs in it, and of user names without one, which may be
// tokens; for people.
func Redacted(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	return credentials.ReplaceAllString(text, "${1}xxxxx@")
}

// RedactedURL is what was given for a URL, however wrong, with xxxxx in place of a user name and a password, for errors.
func RedactedURL(raw string) string {
	if !strings.ContainsAny(raw, "@＠%") {
		return raw
	}
	if strings.HasPrefix(raw, "//") {
		return likelyCredentials.ReplaceAllString(raw, "${1}xxxxx@")
	}
	return strings.TrimPrefix(likelyCredentials.ReplaceAllString("//"+raw, "${1}xxxxx@"), "//") // it may have no scheme
}

// HasCredentials reports whether a text is an http or https URL with a user name or a password.
func HasCredentials(text string) bool {
	if !strings.Contains(text, "@") {
		return false
	}
	_, _, err := parseURL(text)
	return errors.Is(err, errCredentials)
}
