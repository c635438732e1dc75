package web

import "strings"

// maxPeriod is the longest series of path segments whose repetition is looked for.
const maxPeriod = 8

// trapGuard knows the looks of URLs that a site makes up without end: relative links that nest, calendars in the path.
// What it cannot know from a URL, the depth and the dispatcher's budgets bound.
type trapGuard struct {
	maxURLBytes int
	maxSegments int // 0: any number
	maxRepeats  int // 0: any number
}

// allows tells whether an absolute URL looks like a page's.
func (g trapGuard) allows(absolute string) bool {
	if g.maxURLBytes > 0 && len(absolute) > g.maxURLBytes {
		return false
	}
	_, path, _ := strings.Cut(absolute, "://")
	path, _, _ = strings.Cut(path, "?")
	_, path, _ = strings.Cut(path, "/")
	path = "/" + path
	if slashes := strings.Count(path, "/"); slashes <= g.maxRepeats && slashes < g.maxSegments {
		return true // too short for either
	}
	segments := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if g.maxSegments > 0 && len(segments) > g.maxSegments {
		return false
	}
	return g.maxRepeats <= 0 || !repeats(segments, g.maxRepeats)
}

// repeats tells whether some segments stand in a row more than limit times: a/b/a/b/a/b has three times a/b.
func repeats(segments []string, limit int) bool {
	for period := 1; period <= maxPeriod && period*(limit+1) <= len(segments); period++ {
		same := 0 // how many segments in a row equal the one a period before
		for i := period; i < len(segments); i++ {
			if segments[i] != segments[i-period] {
				same = 0
				continue
			}
			if same++; same >= period*limit {
				return true
			}
		}
	}
	return false
}
