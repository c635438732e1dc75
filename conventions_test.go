package waggle_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// forbidden lists what no file may hold, put together here so that this file passes too. What matches a pattern holds one
// of its parts, which are found much faster.
var forbidden = []struct {
	what, pattern string
	parts         []string
}{
	{"a path of one machine", `(^|[\s"'(=:` + "`])/(wo" + `rk|ro` + `ot|Us` + `ers)/`, []string{"rk/", "ot/", "ers/"}},
	{"a path of one machine", `/tmp/` + `w/`, []string{"/tmp/"}},
	{"the host of a package registry", `proxy\.gol` + `ang\.org|sum\.gol` + `ang\.org|registry\.np` + `mjs\.org|pypi\.o` + `rg`, []string{"proxy.", "sum.", "registry.", "pypi."}},
	{"a conflict marker", `(?m)^(<<<<<<<|>>>>>>>) `, []string{"<<<<<<<", ">>>>>>>"}},
}

// files returns the paths of the repository's text files whose names end in one of the suffixes, or all of them.
func files(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		// What is not of the repository: what npm installed among it; in a worktree .git is a file.
		case d.IsDir() && (path == ".git" || path == "bin" || d.Name() == "dist" || path == "out" || d.Name() == "node_modules" || d.Name() == "target"):
			return filepath.SkipDir
		case path == ".git" || d.IsDir() || !d.Type().IsRegular():
			return nil
		}
		if len(suffixes) == 0 || slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(path, s) }) {
			found = append(found, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("no file ends in %v", suffixes)
	}
	return found
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// parse returns the syntax of a Go file, and whether it is generated.
func parse(t *testing.T, path string) (fset *token.FileSet, file *ast.File, generated bool) {
	t.Helper()
	fset = token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return fset, file, ast.IsGenerated(file)
}

func TestConventions_ForbiddenWords(t *testing.T) {
	t.Parallel()
	patterns := make([]*regexp.Regexp, len(forbidden))
	for i, f := range forbidden {
		patterns[i] = regexp.MustCompile(f.pattern)
	}
	for _, path := range files(t) {
		text := read(t, path)
		if bytes.IndexByte(text, 0) >= 0 {
			continue // not text
		}
		for i, pattern := range patterns {
			if !slices.ContainsFunc(forbidden[i].parts, func(part string) bool { return bytes.Contains(text, []byte(part)) }) {
				continue
			}
			if at := pattern.FindIndex(text); at != nil {
				line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
				t.Errorf("%s:%d holds %s: %q", path, line, forbidden[i].what, text[at[0]:at[1]])
			}
		}
	}
}

func TestConventions_PackageComments(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{} // by directory
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		dir := filepath.Dir(path)
		_, file, _ := parse(t, path)
		documented[dir] = documented[dir] || file.Doc != nil && strings.TrimSpace(file.Doc.Text()) != ""
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

func TestConventions_DocComments(t *testing.T) {
	t.Parallel()
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		fset, file, generated := parse(t, path)
		if generated {
			continue
		}
		for _, name := range undocumented(fset, file) {
			t.Errorf("%s has no doc comment", name)
		}
	}
}

// undocumented lists the exported names of a file that no comment explains, with their places: functions, methods of
// exported types, types, constants, variables, fields and interface methods. One comment may stand for a block of
// constants or variables, and for the fields below it up to an empty line, also the comment of their struct.
func undocumented(fset *token.FileSet, file *ast.File) []string {
	var found []string
	report := func(node ast.Node, name string) {
		found = append(found, fmt.Sprintf("%s: %s", fset.Position(node.Pos()), name))
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && receiverExported(d) && d.Doc == nil {
				report(d, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				undocumentedSpec(fset, d, spec, report)
			}
		}
	}
	return found
}

func undocumentedSpec(fset *token.FileSet, d *ast.GenDecl, spec ast.Spec, report func(ast.Node, string)) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		if d.Doc == nil && s.Doc == nil {
			report(s, s.Name.Name)
		}
		switch body := s.Type.(type) {
		case *ast.StructType:
			undocumentedFields(fset, s.Name.Name, body.Fields, report)
		case *ast.InterfaceType:
			for _, method := range body.Methods.List {
				if len(method.Names) > 0 && method.Doc == nil && method.Comment == nil {
					report(method, s.Name.Name+"."+method.Names[0].Name)
				}
			}
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				report(name, name.Name)
			}
		}
	}
}

// undocumentedFields checks the fields of a struct.
func undocumentedFields(fset *token.FileSet, owner string, fields *ast.FieldList, report func(ast.Node, string)) {
	covered := fset.Position(fields.Opening).Line // the last line that a comment above covers
	for _, field := range fields.List {
		begin, end := fset.Position(field.Pos()).Line, fset.Position(field.End()).Line
		if field.Doc != nil || field.Comment != nil || begin == covered+1 {
			covered = end
			continue
		}
		for _, name := range field.Names {
			if name.IsExported() {
				report(name, owner+"."+name.Name)
			}
		}
	}
}

// receiverExported reports whether d is a function or a method of an exported type.
func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return false
		}
	}
}

// TestConventions_Undocumented shows that the rule above can fail.
func TestConventions_Undocumented(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", `package p

func Bare() {}

// Good does.
func Good() {}

func (t *T[K]) Method() {}

func (t hidden) Method() {}

type T[K any] struct {
	Beside int // the type's comment, if it had one

	Alone int

	// A and B are explained.
	A int
	B int
	C int

	Later int
	Said  int // by this

	private int
}

// I is explained.
type I interface {
	// Call is too.
	Call()

	Silent()
}

const Lonely = 1

// The values of something.
const (
	One = 1
	Two = 2
)
`, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, place := range undocumented(fset, file) {
		_, name, _ := strings.Cut(place, ": ")
		got = append(got, name)
	}
	want := []string{"Bare", "Method", "T", "T.Alone", "T.Later", "I.Silent", "Lonely"}
	if !slices.Equal(got, want) {
		t.Errorf("undocumented: %v, want %v", got, want)
	}
}

// TestConventions_Tests holds what tests may not do: sleep outside a synctest bubble, where it is real time that either
// wastes or races, and skip, which reads like success.
func TestConventions_Tests(t *testing.T) {
	t.Parallel()
	bubbles := map[string]bool{} // folders whose tests run in bubbles, by a helper of one file or another; of kits too
	for _, path := range files(t, ".go") {
		_, file, _ := parse(t, path)
		if slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
			bubbles[filepath.Dir(path)] = true
		}
	}
	for _, path := range files(t, ".go") {
		fset, file, generated := parse(t, path)
		if generated {
			continue
		}
		inTest := strings.HasSuffix(path, "_test.go")
		bubble := bubbles[filepath.Dir(path)] && (inTest || strings.HasSuffix(filepath.Dir(path), "test"))
		// In a property test, Skip discards a draw and the run goes on.
		property := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"pgregory.net/rapid"` })
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			on, ok := call.X.(*ast.Ident)
			if !ok {
				return true
			}
			place := fset.Position(n.Pos())
			switch name := on.Name + "." + call.Sel.Name; {
			case name == "time.Sleep" && !bubble:
				t.Errorf("%s: time.Sleep: wait for a condition, or run the test in a synctest bubble", place)
			case inTest && !property && (name == "t.Skip" || name == "t.Skipf" || name == "t.SkipNow") || inTest && name == "testing.Short":
				t.Errorf("%s: %s: a test runs, or it fails and says what is missing", place, name)
			}
			return true
		})
	}
}

// TestConventions_PackageNames keeps packages named for what they hold.
func TestConventions_PackageNames(t *testing.T) {
	t.Parallel()
	for _, path := range files(t, ".go") {
		_, file, _ := parse(t, path)
		switch name := file.Name.Name; name {
		case "util", "utils", "common", "base", "types", "helpers", "misc":
			t.Errorf("%s: package %s is named for nothing: name it for what it holds", path, name)
		}
	}
}
