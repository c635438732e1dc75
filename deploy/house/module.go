package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// module is the Go module that is measured.
type module struct {
	path, dir string
	packages  []*packages.Package
	files     map[string]string // paths in the module by full paths; without generated files
}

// load reads the module in dir without its tests. Of packages of other modules it reads only the types.
func load(dir string) (*module, error) {
	mode := packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedModule |
		packages.NeedTypes | packages.NeedTypesSizes | packages.NeedTypesInfo | packages.NeedSyntax
	found, err := packages.Load(&packages.Config{Mode: mode, Dir: dir}, "./...")
	if err != nil {
		return nil, err
	}
	if packages.PrintErrors(found) > 0 || len(found) == 0 || found[0].Module == nil {
		return nil, errors.New("there is no module that compiles")
	}
	m := &module{found[0].Module.Path, found[0].Module.Dir, found, make(map[string]string)}
	for _, p := range found {
		for _, f := range p.Syntax {
			path := p.Fset.Position(f.Pos()).Filename
			if short, err := filepath.Rel(m.dir, path); err == nil && !ast.IsGenerated(f) {
				m.files[path] = filepath.ToSlash(short)
			}
		}
	}
	return m, nil
}

// short is the name of a package or function without the path of the module.
func (m *module) short(name string) string { return strings.ReplaceAll(name, m.path+"/", "") }

// names is how many names a package exports, or how many methods an interface (dispatch.Store) has with all it embeds.
func (m *module) names(kind, of string) (int, error) {
	for _, p := range m.packages {
		path := m.short(p.PkgPath)
		if kind == "names" && path == of {
			return countNames(p.Types), nil
		}
		if name, ok := strings.CutPrefix(of, path+"."); ok && kind == "methods" {
			if obj := p.Types.Scope().Lookup(name); obj != nil && types.IsInterface(obj.Type()) {
				return obj.Type().Underlying().(*types.Interface).NumMethods(), nil
			}
		}
	}
	return 0, fmt.Errorf("row %s %s: there is no such package or interface", kind, of)
}

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
