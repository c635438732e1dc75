// Command house prints how much of a repository its reader has to know: the names that its domain exports, the arrows
// between the files of each package, the files opened to follow a call, and the lines of code. `make house` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Budgets of the house. Those of the roads are in roads.go.
const (
	maxNames   = 180    // exported by package dispatch
	maxMethods = 42     // of dispatch.Store, with all that it embeds
	maxBack    = 10     // percent of a package's arrows that run back: fewer than this
	maxLines   = 56_900 // of Go and Lua
)

func main() {
	check := flag.Bool("check", false, "exit with 1 if a budget is exceeded")
	flag.Parse()
	over, err := run(context.Background(), os.Stdout, flag.Arg(0)) //nolint:forbidigo // main begins the context
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(2) //nolint:forbidigo // main ends the process
	}
	if *check && over > 0 {
		os.Exit(1) //nolint:forbidigo // main ends the process
	}
}

// run prints the figures of the module in dir, and returns how many exceed their budgets.
func run(ctx context.Context, out io.Writer, dir string) (over int, err error) {
	m, err := load(dir)
	if err != nil {
		return 0, err
	}
	s := &sheet{out: out}
	if err := s.names(m, "dispatch", "Store"); err != nil {
		return 0, err
	}
	s.arrows(m)
	s.roads(m, waggle())
	return s.over, s.lines(ctx, m)
}

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

// sheet is what the figures are printed on, for 80 columns.
type sheet struct {
	out  io.Writer
	over int // figures that exceed their budgets
}

func (s *sheet) row(label string, figure int) { fmt.Fprintf(s.out, "  %-48s %7d\n", label, figure) }

func (s *sheet) budget(label string, figure, most int) {
	verdict := ""
	if figure > most {
		s.over++
		verdict = "  OVER"
	}
	fmt.Fprintf(s.out, "  %-48s %7d  of %6d%s\n", label, figure, most, verdict)
}
