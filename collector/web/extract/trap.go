package extract

import (
	"slices"
	"strings"
)

// maxPeriod is the longest series of path segments whose repetition is looked for.
const maxPeriod = 8

// isTrap reports whether an absolute URL looks like one of those that a site makes up without end: relative links that nest,
// a calendar in the path, or a query that grows. The depth and the dispatcher's budgets bound all other traps. A limit of 0 or less is none.
func isTrap(absolute string, maxBytes, maxSegments, maxRepeats int) bool {
	if maxBytes > 0 && len(absolute) > maxBytes {
		return true
	}
	_, path, _ := strings.Cut(absolute, "://")
	path, query, _ := strings.Cut(path, "?")
	_, path, _ = strings.Cut(path, "/")
	segments := strings.Split(strings.TrimSuffix(path, "/"), "/")
	names, same := repeatedParameters(query)
	if maxSegments > 0 && len(segments)+names > maxSegments {
		return true
	}
	return maxRepeats > 0 && (same > maxRepeats || repeats(segments, maxRepeats))
}

// repeatedParameters counts the parameters of a query whose name came before, and how often the one is there that comes most
// often with the same value.
func repeatedParameters(query string) (names, same int) {
	if !strings.Contains(query, "&") {
		return 0, 0
	}
	parameters := strings.Split(query, "&")
	slices.Sort(parameters)
	last, times := "", 0
	for i, parameter := range parameters {
		name, _, _ := strings.Cut(parameter, "=")
		if i > 0 && name == last {
			names++
		}
		if i > 0 && parameter == parameters[i-1] {
			times++
		} else {
			times = 1
		}
		last, same = name, max(same, times)
	}
	return names, same
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
