package extract

import "strings"

// maxPeriod is the longest series of path segments whose repetition is looked for.
const maxPeriod = 8

// isTrap reports whether an absolute URL looks like one of those that a site makes up without end: relative links that nest, or
// a calendar in the path. The depth and the dispatcher's budgets bound all other traps. A limit of 0 or less is none.
func isTrap(absolute string, maxBytes, maxSegments, maxRepeats int) bool {
	if maxBytes > 0 && len(absolute) > maxBytes {
		return true
	}
	_, path, _ := strings.Cut(absolute, "://")
	path, _, _ = strings.Cut(path, "?")
	_, path, _ = strings.Cut(path, "/")
	segments := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if maxSegments > 0 && len(segments) > maxSegments {
		return true
	}
	return maxRepeats > 0 && repeats(segments, maxRepeats)
}

// repeats reports whether some segments stand in a row more than limit times: a/b/a/b/a/b has three times a/b.
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
