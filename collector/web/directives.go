package web

import (
	"net/http"
	"strings"
)

// directives are what a page asks of crawlers.
type directives struct {
	noIndex, noFollow bool
}

// add reads the content of a meta robots element.
func (d *directives) add(content string) {
	for word := range strings.SplitSeq(content, ",") {
		d.addWord(word)
	}
}

func (d *directives) addWord(word string) {
	switch strings.ToLower(strings.TrimSpace(word)) {
	case "noindex":
		d.noIndex = true
	case "nofollow":
		d.noFollow = true
	case "none":
		d.noIndex, d.noFollow = true, true
	}
}

// headerDirectives reads the X-Robots-Tag headers of an answer. A crawler's name and a colon begin what is meant for that
// crawler alone, up to the next name or the end of the header.
func headerDirectives(header http.Header, agent string) directives {
	var d directives
	for _, value := range header.Values("X-Robots-Tag") {
		ours := true
		for word := range strings.SplitSeq(value, ",") {
			name, rest, found := strings.Cut(strings.TrimSpace(word), ":")
			if name = strings.TrimSpace(name); found && isAgentName(name) {
				ours, word = strings.EqualFold(name, agent), rest
			}
			if ours {
				d.addWord(word)
			}
		}
	}
	return d
}

// isAgentName tells a crawler's name from a directive with a value, and from the time of day in one.
func isAgentName(name string) bool {
	switch strings.ToLower(name) {
	case "", "unavailable_after", "max-snippet", "max-image-preview", "max-video-preview":
		return false
	}
	return productToken(name) == name
}
