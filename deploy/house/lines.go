package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// counted is a file of Go.
type counted struct {
	path, kind string // code or tests
	lines      int
}

// kit are the directories of what only tests and benchmarks run.
var kit = regexp.MustCompile(`(^|/)[a-z]+test/|^deploy/(e2e|bench|conformance)/`)

// count counts the lines of the files of Go in a directory, except generated ones.
func count(dir string) (files []counted, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		isOurs := path == dir || !strings.HasPrefix(name, ".") && !slices.Contains([]string{"bin", "dist", "out", "node_modules"}, name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && !isOurs:
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(name, ".pb.go") || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		short, err := filepath.Rel(dir, path)
		file := counted{filepath.ToSlash(short), "code", bytes.Count(text, []byte("\n"))}
		if strings.HasSuffix(name, "_test.go") || kit.MatchString(file.path) {
			file.kind = "tests"
		}
		files = append(files, file)
		return err
	})
	return files, err
}

// lines is how many lines of a kind are in a directory ("." is all) or file.
func lines(files []counted, kind, of string) (n int, err error) {
	for _, f := range files {
		if f.kind == kind && (of == "." || strings.HasPrefix(f.path+"/", of+"/")) {
			n += f.lines
		}
	}
	if n == 0 {
		err = fmt.Errorf("row %s %s: there are none", kind, of)
	}
	return n, err
}

// words is how many words a file has, as wc counts them.
func words(dir, file string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
	return len(strings.Fields(string(text))), err
}
