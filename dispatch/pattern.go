package dispatch

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// Patterns are the compiled patterns of a follow rule.
type Patterns struct {
	Include, Exclude []*regexp.Regexp
	// Cost is how many steps one character of a URL can take, at most [bounds.MaxPatternCost].
	Cost int
}

// Compile compiles the patterns of a follow rule. The error is a [FieldError] for the first one that does not compile,
// or that is over a limit on what all patterns of a source take together: memory by [bounds.MaxPatternSize], time by
// [bounds.MaxPatternCost]. A pattern is measured before it is compiled, since nested repetitions make a program of
// megabytes of a few bytes.
func (f *Follow) Compile() (p Patterns, err error) {
	if f == nil {
		return p, nil
	}
	var total patternTotal
	if p.Include, err = total.compile("follow.include", f.Include); err != nil {
		return p, err
	}
	p.Exclude, err = total.compile("follow.exclude", f.Exclude)
	p.Cost = total.cost
	return p, err
}

// patternTotal is what the patterns of a source take together, so far.
type patternTotal struct{ size, cost int }

func (t *patternTotal) compile(field string, patterns []string) ([]*regexp.Regexp, error) {
	out := make([]*regexp.Regexp, 0, len(patterns))
	for i, pattern := range patterns {
		re, err := t.compileOne(pattern)
		if err != nil {
			return nil, Invalid(fmt.Sprintf("%s[%d]", field, i), pattern, err.Error())
		}
		out = append(out, re)
	}
	return out, nil
}

func (t *patternTotal) compileOne(pattern string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("does not compile as an RE2 expression: %w", err)
	}
	if t.size += patternSize(tree); t.size > bounds.MaxPatternSize {
		return nil, fmt.Errorf("brings the patterns of the source to %d instructions; the limit is %d: repeat less, or use fewer patterns",
			t.size, bounds.MaxPatternSize)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, fmt.Errorf("does not compile as an RE2 expression: %w", err)
	}
	if t.cost += patternCost(program); t.cost > bounds.MaxPatternCost {
		return nil, fmt.Errorf("brings the patterns of the source to %d steps for a character of a URL; the limit is %d: "+
			"repeat less, use fewer patterns, or begin them with ^ or a literal", t.cost, bounds.MaxPatternCost)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("does not compile as an RE2 expression: %w", err)
	}
	return re, nil
}

// patternSize is about how many instructions an expression compiles to, at most [bounds.MaxPatternSize] + 1.
func patternSize(re *syntax.Regexp) int {
	size := 1
	if re.Op == syntax.OpLiteral {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		size += patternSize(sub) + 1
	}
	if re.Op == syntax.OpRepeat {
		size *= max(1, re.Min, re.Max)
	}
	return min(size, bounds.MaxPatternSize+1)
}

// patternCost is how many instructions of a program one character of a URL can make a matcher look at, whatever came
// before it: those that are reached from all instructions that it matches, and from the start if a match can begin
// anywhere. Canonical URLs have only printable ASCII characters.
func patternCost(program *syntax.Prog) int {
	anywhere := program.StartCond()&syntax.EmptyBeginText == 0
	switch prefix, complete := program.Prefix(); {
	case complete:
		return 1
	case prefix != "":
		anywhere = false // it is found by a search for its literal
	}
	most := 1
	seen := make([]rune, len(program.Inst)) // by which character an instruction was reached last
	for c := rune('!'); c <= '~'; c++ {
		reach := reached{program: program, seen: seen, by: c}
		if anywhere {
			reach.from(uint32(program.Start)) //nolint:gosec // an index of a small program
		}
		for i := range program.Inst {
			if in := &program.Inst[i]; consumes(in) && in.MatchRune(c) {
				reach.from(in.Out)
			}
		}
		most = max(most, reach.count)
	}
	return most
}

func consumes(in *syntax.Inst) bool {
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	default:
		return false
	}
}

// reached counts the instructions of a program that are reached without a further character.
type reached struct {
	program *syntax.Prog
	seen    []rune
	by      rune
	count   int
}

func (r *reached) from(pc uint32) {
	for open := []uint32{pc}; len(open) > 0; {
		pc, open = open[len(open)-1], open[:len(open)-1]
		if r.seen[pc] == r.by {
			continue
		}
		r.seen[pc] = r.by
		r.count++
		switch in := &r.program.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			open = append(open, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
			open = append(open, in.Out)
		case syntax.InstMatch, syntax.InstFail, syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		}
	}
}
