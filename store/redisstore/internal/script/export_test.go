package script

import "slices"

// Code is the text of all scripts as it is loaded.
func Code(l *Library) string { return l.code }

// FileNames are the files that are put together, sorted.
func FileNames() []string { return slices.Sorted(slices.Values(files)) }
