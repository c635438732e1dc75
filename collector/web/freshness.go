package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxFresh bounds a max-age: a longer one, such as a year, does not predict when a page has news.
const maxFresh = 24 * time.Hour

// freshFor is what is left of the max-age of Cache-Control; 0 when there is none, or caches have to ask each time.
func freshFor(header http.Header) time.Duration {
	var fresh time.Duration
	for directive := range strings.SplitSeq(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-cache", "no-store":
			return 0
		case "max-age":
			fresh = wholeSeconds(strings.Trim(value, `"`))
		}
	}
	return min(max(fresh-wholeSeconds(header.Get("Age")), 0), maxFresh)
}

// wholeSeconds reads a number of seconds; 0 when it is none.
func wholeSeconds(text string) time.Duration {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}
