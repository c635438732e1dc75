package main

import (
	"cmp"
	"go/types"
	"regexp"
	"slices"

	"golang.org/x/tools/go/callgraph/cha"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

// calls is the call graph of a module, by the values that can get to a call (VTA). A function counts as called where it is
// made or named as a value, and not where a variable of a function, such as a parameter, is called. So do the methods of a
// context or stream where that is wrapped.
type calls struct {
	m       *module
	prog    *ssa.Program
	callees map[*ssa.Function][]*ssa.Function // about as they come in the text
	named   map[string]*ssa.Function
}

// newCalls leaves out kits and hidden packages, so that interfaces stand for other implementations.
func newCalls(m *module, hidden *regexp.Regexp) *calls {
	isHidden := func(p *packages.Package) bool {
		path := m.short(p.PkgPath)
		return kit.MatchString(path+"/") || hidden.MatchString(path)
	}
	prog, _ := ssautil.Packages(slices.DeleteFunc(slices.Clone(m.packages), isHidden), ssa.InstantiateGenerics)
	prog.Build()
	c := &calls{m, prog, make(map[*ssa.Function][]*ssa.Function), make(map[string]*ssa.Function)}
	functions := ssautil.AllFunctions(prog)
	graph := vta.CallGraph(functions, vta.CallGraph(functions, cha.CallGraph(prog)))
	for f := range functions {
		if c.file(f) == "" {
			continue
		}
		c.named[c.name(f)] = f
		called := make(map[ssa.Instruction][]*ssa.Function)
		for _, edge := range graph.CreateNode(f).Out {
			if edge.Site != nil && !isVariable(edge.Site.Common()) {
				called[edge.Site] = append(called[edge.Site], edge.Callee.Func)
			}
		}
		for _, block := range f.Blocks {
			for _, instr := range block.Instrs {
				slices.SortFunc(called[instr], func(x, y *ssa.Function) int { return cmp.Compare(x.String(), y.String()) })
				c.callees[f] = append(append(c.callees[f], called[instr]...), c.mentioned(instr)...)
			}
		}
		c.callees[f] = slices.DeleteFunc(c.callees[f], func(f *ssa.Function) bool { return f == nil || c.file(f) == "" })
	}
	return c
}

// isVariable reports whether a call is of a function in a parameter or another variable of a function.
func isVariable(call *ssa.CallCommon) bool {
	v := call.Value
	if load, ok := v.(*ssa.UnOp); ok {
		v = load.X
	}
	switch v.(type) {
	case *ssa.Parameter, *ssa.Alloc, *ssa.FreeVar:
		return !call.IsInvoke()
	}
	return false
}

// mentioned are the functions that an instruction calls by their names, makes, or takes as values.
func (c *calls) mentioned(instr ssa.Instruction) (found []*ssa.Function) {
	for _, operand := range instr.Operands(nil) {
		if f, ok := (*operand).(*ssa.Function); ok {
			found = append(found, f)
		}
	}
	if v, ok := instr.(*ssa.MakeInterface); ok && isContext(v.Type()) {
		for method := range v.Type().Underlying().(*types.Interface).Methods() {
			found = append(found, c.prog.LookupMethod(v.X.Type(), method.Pkg(), method.Name()))
		}
	}
	return found
}

// file is where a function of the module is written; empty for all others.
func (c *calls) file(f *ssa.Function) string {
	return c.m.files[c.prog.Fset.Position(f.Pos()).Filename]
}

// name is a function's with its package or receiver; that of a generic one is the same whatever its types are.
func (c *calls) name(f *ssa.Function) string {
	if f.Origin() != nil {
		f = f.Origin()
	}
	return c.m.short(f.String())
}
