// Command mutants shows that the tests find faults: it puts each fault of mutants.txt into the code, runs the tests that
// must fail then, and prints which one did. It exits with 1 if they all pass. The files of the tree stay as they are, since
// the fault is in an overlay of the build. `make mutants` runs it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "the module's directory")
	only := flag.String("run", "", "only mutants whose names match this regular expression")
	flag.Parse()
	err := run(context.Background(), os.Stdout, *dir, *only) //nolint:forbidigo // main begins the context
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1) //nolint:forbidigo // main ends the process
	}
}

// list is the file of the mutants, in the module's directory.
const list = "deploy/mutants/mutants.txt"

// run tries the mutants of the module in dir whose names match, and prints what killed each. The error says what is wrong
// with them, or how many were not killed.
func run(ctx context.Context, out io.Writer, dir, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	all, err := read(dir)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !pattern.MatchString(m.name) })
	if err := passes(ctx, dir, all); err != nil {
		return err
	}
	left, begin := 0, time.Now()
	for _, m := range all {
		began := time.Now()
		killer, err := m.try(ctx, dir)
		if err != nil {
			killer = fmt.Sprintf("NOT TRIED: %v", err)
		} else if killer == "" {
			killer = fmt.Sprintf("SURVIVED %s of %s", m.run, m.pkg)
			err = errors.New(killer)
		}
		if err != nil {
			left++
		}
		fmt.Fprintf(out, "%-74s %4.0fs  %s\n", m.name, time.Since(began).Seconds(), killer)
	}
	fmt.Fprintf(out, "%d mutants in %v\n", len(all), time.Since(begin).Round(time.Second))
	if left > 0 {
		return fmt.Errorf("%d of %d mutants were not killed: a test is missing for each that survived", left, len(all))
	}
	return nil
}

// passes runs the tests without a mutant: a failing test proves nothing.
func passes(ctx context.Context, dir string, all []mutant) error {
	patterns := map[string][]string{} // by package
	for _, m := range all {
		patterns[m.pkg] = append(patterns[m.pkg], m.run)
	}
	for pkg, runs := range patterns {
		failed, err := test(ctx, dir, pkg, strings.Join(runs, "|"))
		if err != nil {
			return fmt.Errorf("without a mutant: %w", err)
		}
		if failed != "" {
			return fmt.Errorf("without a mutant, %s of %s fails", failed, pkg)
		}
	}
	return nil
}

// try runs the tests of a mutant, and returns the first one that failed; empty if none did.
func (m *mutant) try(ctx context.Context, dir string) (killer string, err error) {
	temp, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	original, err := filepath.Abs(filepath.Join(dir, m.file))
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(temp, filepath.Base(m.file)), filepath.Join(temp, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(changed, []byte(m.changed), 0o600), os.WriteFile(overlay, replace, 0o600))
	if err != nil {
		return "", err
	}
	return test(ctx, dir, m.pkg, m.run, "-overlay", overlay)
}

// test runs tests of a package, and returns the first one that failed; empty if none did. It is an error if they do not
// compile, or there are none.
func test(ctx context.Context, dir, pkg, pattern string, flags ...string) (failed string, err error) {
	args := append([]string{"test", "-json", "-vet=off", "-count=1", "-failfast", "-timeout=1m", "-run", pattern}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, ended := cmd.Output()
	var output strings.Builder
	ran := false
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var event struct{ Action, Test, Output string }
		if err := dec.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", fmt.Errorf("go test ./%s: %w\n%s%s", pkg, err, out, stderr.String())
		}
		output.WriteString(event.Output)
		ran = ran || event.Test != ""
		if event.Action == "fail" && event.Test != "" {
			return event.Test, nil
		}
	}
	if ended != nil || !ran {
		return "", fmt.Errorf("go test -run '%s' ./%s runs no test to its end: %w\n%.1000s%s", pattern, pkg, ended, output.String(), stderr.String())
	}
	return "", nil
}
