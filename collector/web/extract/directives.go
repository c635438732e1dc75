package extract

import "strings"

// directives are what a document asks of crawlers.
type directives struct {
	agent             string // the crawler's name; empty: only what is asked of all is read
	noIndex, noFollow bool
}

// addMeta reads a meta element, if it is one for this crawler.
func (d *directives) addMeta(name, content string) {
	if !strings.EqualFold(name, "robots") && (d.agent == "" || !strings.EqualFold(name, d.agent)) {
		return
	}
	for word := range strings.SplitSeq(content, ",") {
		d.addWord(word)
	}
}

// addHeader reads the X-Robots-Tag headers of an answer. A crawler's name and a colon begin what is meant for that crawler
// alone, up to the next name or the end of the header.
func (d *directives) addHeader(values []string) {
	for _, value := range values {
		ours := true
		for word := range strings.SplitSeq(value, ",") {
			name, rest, found := strings.Cut(strings.TrimSpace(word), ":")
			if name = strings.TrimSpace(name); found && isAgentName(name) {
				ours, word = strings.EqualFold(name, d.agent), rest
			}
			if ours {
				d.addWord(word)
			}
		}
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

// isAgentName tells a crawler's name from a directive with a value, and from the time of day in one.
func isAgentName(name string) bool {
	switch strings.ToLower(name) {
	case "", "unavailable_after", "max-snippet", "max-image-preview", "max-video-preview":
		return false
	}
	return strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
