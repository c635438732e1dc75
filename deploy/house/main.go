// Command house holds a repository to the budgets of a table: lines of code and of tests, exported names, methods of the
// store's contract, files opened to follow a call, words of documents. `make house` prints the figures, and `make test` fails
// when one is over its budget.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	file := flag.String("table", "budgets.txt", "the file of the budgets")
	check := flag.Bool("check", false, "fail if a figure is over its budget, and print only that")
	write := flag.Bool("write", false, "write the figures of today to the table, with budgets at most 1 % above them")
	flag.Parse()
	if err := run(os.Stdout, *file, flag.Arg(0), waggle(), *check, *write); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1) //nolint:forbidigo // main ends the process
	}
}

// run measures the module in dir by the rows of a table, and prints, checks or writes it.
func run(out io.Writer, file, dir string, roads []road, check, write bool) error {
	t, err := readTable(file)
	if err != nil {
		return err
	}
	h, err := measure(dir, roads)
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range t.rows {
		r.today, err = h.figure(r.kind, r.of)
		failed = append(failed, err)
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	switch {
	case check:
		return t.check()
	case write:
		t.renew()
		return os.WriteFile(file, []byte(t.String()), 0o644)
	default:
		fmt.Fprint(out, t)
		h.printRoads(out)
		return nil
	}
}

// house is what is counted of a module.
type house struct {
	module *module
	files  []counted
	roads  map[string]walked
}

// measure counts what rows ask for.
func measure(dir string, roads []road) (*house, error) {
	m, err := load(dir)
	if err != nil {
		return nil, err
	}
	h := &house{module: m, roads: make(map[string]walked)}
	if h.files, err = count(m.dir); err != nil {
		return nil, err
	}
	calls := newCalls(m, hidden)
	for _, r := range roads {
		files, err := calls.walk(r)
		if err != nil {
			return nil, fmt.Errorf("the road of %s: %w", r.name, err)
		}
		h.roads[r.name] = walked{r, files}
	}
	return h, nil
}

// figure is the number of a row, by its kind.
func (h *house) figure(kind, of string) (int, error) {
	switch kind {
	case "code", "tests":
		return lines(h.files, kind, of)
	case "names", "methods":
		return h.module.names(kind, of)
	case "files":
		if r, ok := h.roads[of]; ok {
			return len(r.files), nil
		}
		return 0, fmt.Errorf("row %s %s: there is no such call", kind, of)
	case "words":
		return words(h.module.dir, of)
	}
	return 0, fmt.Errorf("row %s %s: there is no such kind", kind, of)
}
