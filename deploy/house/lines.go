package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// counted are git's patterns of code that is neither test, test kit nor generated.
var counted = strings.Fields(`*.go *.lua :!*_test.go :!*.pb.go :!*storetest/* :!*redistest/* :!*collectortest/*
	:!*loadtest/* :!*dispatchtest/* :!*clitest/* :!deploy/e2e/* :!deploy/mutants/*`)

// lines prints how many lines of code git knows, by top-level directory.
func (s *sheet) lines(ctx context.Context, m *module) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"grep", "--count", "-e", "", "--"}, counted...)...)
	cmd.Dir = m.dir
	found, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git grep: %w", err)
	}
	lines, all := make(map[string]int), 0
	for line := range strings.Lines(string(found)) {
		file, count, _ := strings.Cut(strings.TrimSpace(line), ":")
		top, _, _ := strings.Cut(file, "/")
		n, err := strconv.Atoi(count)
		if err != nil {
			return fmt.Errorf("git grep: %w", err)
		}
		lines[top], all = lines[top]+n, all+n
	}
	fmt.Fprintf(s.out, "\nLines of Go and Lua that are neither test, test kit nor generated\n")
	for _, top := range slices.Sorted(maps.Keys(lines)) {
		s.row(top, lines[top])
	}
	s.budget("all", all, maxLines)
	return nil
}
