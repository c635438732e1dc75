package main

import (
	"fmt"
	"go/types"
)

// countNames counts the exported names of a package by their kinds. Values of enums, which are constants of a type of the
// package, do not count, nor do fields and the methods of interfaces.
func countNames(pkg *types.Package) map[string]int {
	n := make(map[string]int)
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		named, _ := obj.Type().(*types.Named)
		if !obj.Exported() {
			continue
		}
		switch obj.(type) {
		case *types.Const:
			if named == nil || named.Obj().Pkg() != pkg {
				n["constants"]++
			}
		case *types.Var:
			n["variables"]++
		case *types.Func:
			n["functions"]++
		case *types.TypeName:
			n["types"]++
			for i := 0; named != nil && i < named.NumMethods(); i++ {
				if named.Method(i).Exported() {
					n["methods"]++
				}
			}
		}
	}
	return n
}

// names prints how many names the package at path exports, and how many methods its interface has with all it embeds.
func (s *sheet) names(m *module, path, name string) error {
	var iface *types.Interface
	n, all := make(map[string]int), 0
	for _, p := range m.packages {
		if obj := p.Types.Scope().Lookup(name); obj != nil && m.short(p.PkgPath) == path {
			iface, _ = obj.Type().Underlying().(*types.Interface)
			n = countNames(p.Types)
		}
	}
	if iface == nil {
		return fmt.Errorf("there is no interface %s in a package %s", name, path)
	}
	fmt.Fprintf(s.out, "Names that package %s exports, without values of enums\n", path)
	for _, kind := range []string{"constants", "variables", "types", "functions", "methods"} {
		s.row(kind, n[kind])
		all += n[kind]
	}
	s.budget("all", all, maxNames)
	s.budget("methods of interface "+name, iface.NumMethods(), maxMethods)
	return nil
}
