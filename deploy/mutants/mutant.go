package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		found, err := parse(dir, part)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		all = append(all, found...)
	}
	if len(wrong) > 0 || len(all) == 0 {
		return nil, fmt.Errorf("%s: %d mutants, of which %d are wrong\n%s", list, len(all), len(wrong), strings.Join(wrong, "\n"))
	}
	return all, nil
}

// parse reads a part of the list: one mutant, or one for each line that is left out.
func parse(dir, text string) ([]mutant, error) {
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
			return nil, fmt.Errorf("%s: line %q begins with neither - nor +", m.name, line)
		}
	}
	if m.run == "" || len(before) == 0 {
		return nil, fmt.Errorf("%s: it needs a file, a package with tests, and a text that is replaced", m.name)
	}
	if strings.HasSuffix(m.file, "/") {
		return m.each(dir, strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	source, err := os.ReadFile(filepath.Join(dir, m.file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	old := strings.Join(before, "\n")
	if n := strings.Count(string(source), old); n != 1 {
		return nil, fmt.Errorf("%s: the text occurs %d times in %s, not once:\n%s", m.name, n, m.file, old)
	}
	m.changed = strings.Replace(string(source), old, strings.Join(after, "\n"), 1)
	if m.changed == string(source) {
		return nil, fmt.Errorf("%s: it changes nothing in %s", m.name, m.file)
	}
	return []mutant{m}, nil
}

// each makes a mutant of each line of the Go files of a directory that a regular expression matches.
func (m *mutant) each(dir, expression, instead string) ([]mutant, error) {
	lines, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, m.file, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	var all []mutant
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		text := strings.Split(string(source), "\n")
		for n, line := range text {
			if !lines.MatchString(line) {
				continue
			}
			without := slices.Clone(text)
			without[n] = lines.ReplaceAllString(line, instead)
			all = append(all, mutant{
				name: fmt.Sprintf("%s: %s:%d %s", m.name, filepath.Base(file), n+1, strings.TrimSpace(line)), file: m.file + filepath.Base(file),
				changed: strings.Join(without, "\n"), pkg: m.pkg, run: m.run,
			})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no line of %s matches %s", m.name, m.file, expression)
	}
	return all, nil
}
