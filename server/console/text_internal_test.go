package console

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

var (
	shownText = regexp.MustCompile(`\bt "([^"]*)"`)
	tabText   = regexp.MustCompile(`"text" "([^"]*)"`)
	verb      = regexp.MustCompile(`%(?:\[(\d+)\])?([a-z%])`)
)

// shownTexts are those that the pages show, of templates and of Go; written has all that Go has, some of which may be shown.
func shownTexts(t *testing.T) (all, written map[string]bool) {
	t.Helper()
	all, written = make(map[string]bool), make(map[string]bool)
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d templates, %v", len(names), err)
	}
	for _, name := range names {
		data, err := templateFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []*regexp.Regexp{shownText, tabText} {
			for _, found := range of.FindAllStringSubmatch(string(data), -1) {
				all[found[1]] = true
			}
		}
	}
	packages, err := parser.ParseDir(token.NewFileSet(), ".", func(info fs.FileInfo) bool { return !strings.HasSuffix(info.Name(), "_test.go") }, 0) //nolint:staticcheck // no build tags here
	if err != nil {
		t.Fatal(err)
	}
	literal := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			all[text] = true
		}
	}
	ast.Inspect(packages["console"], func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.CallExpr:
			name := ""
			switch fun := n.Fun.(type) {
			case *ast.SelectorExpr:
				name = fun.Sel.Name
			case *ast.Ident:
				name = fun.Name
			}
			if name == "say" && len(n.Args) > 0 {
				literal(n.Args[0])
			}
			if name == "again" { // of a sign-in
				literal(n.Args[1])
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && slices.Contains([]string{"title", "Label", "Hint", "note"}, key.Name) {
				literal(n.Value)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				text, err := strconv.Unquote(n.Value)
				if err != nil {
					t.Fatal(err)
				}
				written[text] = true
			}
		}
		return true
	})
	for _, of := range actions(true) {
		all[of.title] = true
	}
	delete(all, "") // of a hint that is empty
	for _, title := range findingTitles {
		all[title] = true
	}
	for prefix, names := range map[string]map[int32]string{
		"SOURCE_HEALTH_": pb.SourceHealth_name, "TASK_STATE_": pb.TaskState_name, "FAILURE_REASON_": pb.FailureReason_name,
		"ATTEMPT_RESULT_": pb.AttemptResult_name, "GATE_KIND_": pb.GateKind_name, "COLLECTOR_STATE_": pb.CollectorState_name,
		"HOLD_EFFECT_": pb.HoldEffect_name, "TASK_CHANGE_CODE_": pb.TaskChangeCode_name, "FILTER_REASON_": pb.FilterReason_name,
	} {
		for _, name := range names {
			all[strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", " "))] = true
		}
	}
	return all, written
}

// verbsOf are the verbs of a text, in the order of its values.
func verbsOf(text string) []string {
	var verbs []string
	for _, found := range verb.FindAllStringSubmatch(text, -1) {
		if found[2] == "%" {
			continue
		}
		at := len(verbs)
		if found[1] != "" {
			at, _ = strconv.Atoi(found[1]) // digits
			at--
		}
		for len(verbs) <= at {
			verbs = append(verbs, "")
		}
		verbs[at] = found[2]
	}
	return verbs
}

// Each text that the pages show is in Chinese too, with the same values; zh.json has no others.
func TestTexts_chinese(t *testing.T) {
	t.Parallel()
	var zh map[string]string
	if err := json.Unmarshal(chineseTexts, &zh); err != nil {
		t.Fatal(err)
	}
	shown, written := shownTexts(t)
	if len(shown) < 200 {
		t.Fatalf("%d texts were found, of more", len(shown))
	}
	for _, text := range slices.Sorted(maps.Keys(shown)) {
		switch there, ok := zh[text]; {
		case !ok:
			t.Errorf("zh.json has no %q", text)
		case there == "" || !slices.Equal(verbsOf(text), verbsOf(there)):
			t.Errorf("%q has the verbs %q, in Chinese %q: %q", text, verbsOf(text), verbsOf(there), there)
		case strings.HasPrefix(text, " ") || strings.HasSuffix(text, " "):
			t.Errorf("%q has spaces around it", text)
		}
	}
	for text := range zh {
		if !shown[text] && !written[text] {
			t.Errorf("zh.json has %q, which no page shows", text)
		}
	}
}

// Each kind of finding has a title of its own.
func TestFindingTitles(t *testing.T) {
	t.Parallel()
	for number, name := range pb.FindingKind_name {
		if number != 0 && findingTitles[pb.FindingKind(number)] == "" {
			t.Errorf("%s has no title", name)
		}
	}
}

// Only a page of the console can be gone to after sign-in, and only addresses of the web are links.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"source?id=a": "source?id=a", "?page=2": "?page=2", "": ".", "//evil.example": ".", "https://evil.example": ".", "/\\evil.example": ".",
		"javascript:alert(1)": ".", "a\r\nSet-Cookie: b": ".", `\\evil.example`: ".", "/": ".",
	} {
		if got := pageTo(to); got != want {
			t.Errorf("after sign-in, %q leads to %q, want %q", to, got, want)
		}
	}
	for text, want := range map[string]bool{
		"https://a.example/": true, "http://a.example": true, "javascript:alert(1)": false, "JavaScript://a.example/%0aalert(1)": false, "data:text/html,x": false,
		"//a.example": false, "": false, "https:a": false,
	} {
		if webURL(text) != want {
			t.Errorf("%q: an address of the web is %v", text, !want)
		}
	}
}
