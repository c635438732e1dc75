package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// budgets is a file of budgets: comments, then rows of four columns: budget, figure of today, goal ("-": none), and what is counted.
type budgets struct {
	file, comment string
	rows          []*row
}

// row is one budget. A goal of 0 is none.
type row struct {
	kind, of            string
	budget, today, goal int
}

func readTable(file string) (*budgets, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t := &budgets{file: file}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			t.comment += line
			continue
		}
		cells := strings.Fields(line)
		if len(cells) != 5 {
			return nil, fmt.Errorf("%s: %q: want budget, figure of today, goal or -, kind and what of", file, line)
		}
		r := &row{kind: cells[3], of: cells[4]}
		for i, number := range []*int{&r.budget, &r.today, &r.goal} {
			if cells[i] == "-" && number == &r.goal {
				continue
			}
			if *number, err = strconv.Atoi(cells[i]); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", file, line, err)
			}
		}
		t.rows = append(t.rows, r)
	}
	if len(t.rows) == 0 {
		return nil, fmt.Errorf("%s has no row", file)
	}
	return t, nil
}

// String is the text of the file.
func (t *budgets) String() string {
	text := t.comment
	for _, r := range t.rows {
		goal := "-"
		if r.goal > 0 {
			goal = strconv.Itoa(r.goal)
		}
		text += fmt.Sprintf("%8d %8d %8s  %s %s\n", r.budget, r.today, goal, r.kind, r.of)
	}
	return text
}

// check fails if a figure is over its budget.
func (t *budgets) check() error {
	var over []error
	for _, r := range t.rows {
		if r.today > r.budget {
			over = append(over, fmt.Errorf("%s %s: %d, over the budget of %d", r.kind, r.of, r.today, r.budget))
		}
	}
	if len(over) == 0 {
		return nil
	}
	return fmt.Errorf("%w\ntake out as much, or raise the budget in %s: in a commit that names the capability it pays for",
		errors.Join(over...), t.file)
}

// renew makes each budget at most 1 % more than the figure of today, and not more than a goal that is reached.
func (t *budgets) renew() {
	for _, r := range t.rows {
		r.budget = r.today + r.today/100
		if r.today <= r.goal {
			r.budget = min(r.budget, r.goal)
		}
	}
}
