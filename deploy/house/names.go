package main

import (
	"fmt"
	"go/types"
)

// countNames counts the exported names of a package. Values of enums (constants of a type of the package), fields and the
// methods of interfaces do not count.
func countNames(pkg *types.Package) (n int) {
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		named, _ := obj.Type().(*types.Named)
		_, isConst := obj.(*types.Const)
		if !obj.Exported() || isConst && named != nil && named.Obj().Pkg() == pkg {
			continue
		}
		n++
		if _, isType := obj.(*types.TypeName); !isType || named == nil {
			continue
		}
		for method := range named.Methods() {
			if method.Exported() {
				n++
			}
		}
	}
	return n
}

// names prints how many names the package at path exports, and how many methods its interface has with all it embeds.
func (s *sheet) names(m *module, path, name string) error {
	for _, p := range m.packages {
		obj := p.Types.Scope().Lookup(name)
		if obj == nil || m.short(p.PkgPath) != path {
			continue
		}
		if iface, ok := obj.Type().Underlying().(*types.Interface); ok {
			s.budget("names that package "+path+" exports", countNames(p.Types), maxNames)
			s.budget("methods of interface "+name, iface.NumMethods(), maxMethods)
			return nil
		}
	}
	return fmt.Errorf("there is no interface %s in a package %s", name, path)
}
