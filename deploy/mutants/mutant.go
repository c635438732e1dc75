package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is a fault: a text of a file that is replaced.
type mutant struct {
	name    string // the fault
	file    string
	changed string // the file with the fault
	pkg     string // of the tests that must find it, a directory
	run     string // the tests, as go test -run takes them
}

// read reads the list of mutants, whose head says how it is written. All that is wrong with it is in the error.
func read(dir string) ([]mutant, error) {
	text, err := os.ReadFile(filepath.Join(dir, list))
	if err != nil {
		return nil, err
	}
	var all []mutant
	var wrong []string
	for _, part := range strings.Split(string(text), "\n== ")[1:] {
		m, err := parse(dir, part)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		all = append(all, m)
	}
	if len(wrong) > 0 || len(all) == 0 {
		return nil, fmt.Errorf("%s: %d mutants, of which %d are wrong\n%s", list, len(all), len(wrong), strings.Join(wrong, "\n"))
	}
	return all, nil
}

// parse reads one mutant of the list and puts its fault into its file.
func parse(dir, text string) (mutant, error) {
	var m mutant
	var before, after []string
	for n, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		value := line[min(len(line), 1):]
		switch {
		case n == 0:
			m.name = line
		case n == 1:
			m.file = line
		case n == 2:
			m.pkg, m.run, _ = strings.Cut(line, " ")
		case strings.HasPrefix(line, "-"):
			before = append(before, value)
		case strings.HasPrefix(line, "+"):
			after = append(after, value)
		default:
			return m, fmt.Errorf("%s: line %q begins with neither - nor +", m.name, line)
		}
	}
	if m.run == "" || len(before) == 0 {
		return m, fmt.Errorf("%s: it needs a file, a package with tests, and a text that is replaced", m.name)
	}
	source, err := os.ReadFile(filepath.Join(dir, m.file))
	if err != nil {
		return m, fmt.Errorf("%s: %w", m.name, err)
	}
	old := strings.Join(before, "\n")
	if n := strings.Count(string(source), old); n != 1 {
		return m, fmt.Errorf("%s: the text occurs %d times in %s, not once:\n%s", m.name, n, m.file, old)
	}
	m.changed = strings.Replace(string(source), old, strings.Join(after, "\n"), 1)
	if m.changed == string(source) {
		return m, fmt.Errorf("%s: it changes nothing in %s", m.name, m.file)
	}
	return m, nil
}
