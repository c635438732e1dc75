package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// tiny writes a small module, with some of its text replaced, and returns its directory.
func tiny(t *testing.T, oldNew ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/tiny.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(strings.NewReplacer(oldNew...).Replace(string(text)))).Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tinyRoads are two calls of the small module.
func tinyRoads() []road {
	return []road{{
		name: "Fetch", chain: []string{"(*server.Server).Chain"}, handler: "UnaryHandler", begin: "(*server.Service).Fetch",
		end: "(*store/kept.Store).Claim", cut: map[string]string{"(*engine.Engine).report": "it is another road"},
	}, {
		name: "Beat", chain: []string{"(*server.Server).Chain"}, handler: "StreamHandler", begin: "(*server.Service).Beat", end: "(*store/kept.Store).Read",
	}}
}

// TestRun_Check makes a module one larger in each way that is counted: the rows that count it are over their budgets, and no other.
func TestRun_Check(t *testing.T) {
	t.Parallel()
	const budgets = `# A comment.
19 19 - code server/service.go
52 52 - code domain
3 3 - tests .
8 8 - names domain
2 2 - methods domain.Store
7 7 - files Fetch
7 7 - files Beat
2 2 - words README.md
`
	file := filepath.Join(t.TempDir(), "budgets.txt")
	if err := os.WriteFile(file, []byte(budgets), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		oldNew []string
		over   []string
	}{
		{"nothing", nil, nil},
		{"a line of code", []string{"// New counts.", "//\n// New counts."}, []string{"code domain: 53, over the budget of 52"}},
		{"a line of a test", []string{"package domain_test", "package domain_test\n"}, []string{"tests .: 4, over the budget of 3"}},
		{"a line of a kit", []string{"package storetest", "package storetest\n"}, []string{"tests .: 4, over the budget of 3"}},
		{"a name", []string{"Limit = 2", "Limit, Most = 2, 3"}, []string{"names domain: 9, over the budget of 8"}},
		{
			"a method",
			[]string{"\tReader\n", "\tReader; More()\n", "Store struct{", "Store struct{ domain.Store;"},
			[]string{"methods domain.Store: 3, over the budget of 2"},
		},
		{
			"a file on a road",
			[]string{"e.claims.one(ctx, n)", "e.claims.one(ctx, more(ctx, n))", "-- engine/report.go --\n", "-- engine/more.go --\npackage engine; import \"context\"; func more(_ context.Context, n int) int { return n }\n-- engine/report.go --\n"},
			[]string{"files Fetch: 8, over the budget of 7"},
		},
		{"a word", []string{"Two words", "These are words"}, []string{"words README.md: 3, over the budget of 2"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			err := run(io.Discard, file, tiny(t, c.oldNew...), tinyRoads(), true, false)
			var got []string
			for line := range strings.Lines(fmt.Sprint(err)) {
				if strings.Contains(line, "over the budget") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			if (err == nil) != (c.over == nil) || !slices.Equal(got, c.over) {
				t.Errorf("%v, want %v", err, c.over)
			}
		})
	}
}

// TestTable_Check takes each row of this repository's table one over its budget.
func TestTable_Check(t *testing.T) {
	t.Parallel()
	b, err := readTable("budgets.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range b.rows {
		r.today = r.budget
	}
	if err := b.check(); err != nil {
		t.Errorf("each figure is its budget: %v", err)
	}
	for _, r := range b.rows {
		r.today++
		want := fmt.Sprintf("%s %s: %d, over the budget of %d\n", r.kind, r.of, r.today, r.budget)
		if err := b.check(); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "\n") != 1 ||
			!strings.Contains(err.Error(), "budgets.txt") || !strings.Contains(err.Error(), "names the capability") {
			t.Errorf("%v, want %s", err, want)
		}
		r.today--
	}
}

// TestRun_Write writes what the next check accepts: budgets of at most 1 % more, and not past a goal that is reached.
func TestRun_Write(t *testing.T) {
	t.Parallel()
	file, dir := filepath.Join(t.TempDir(), "budgets.txt"), tiny(t, "Two words", strings.Repeat("word ", 250))
	for begin, want := range map[string]string{
		"# About.\n 0 0 - words README.md\n":   "# About.\n     252      250        -  words README.md\n",
		"# About.\n 0 0 251 words README.md\n": "# About.\n     251      250      251  words README.md\n",
		"# About.\n 0 0 100 words README.md\n": "# About.\n     252      250      100  words README.md\n",
	} {
		if err := os.WriteFile(file, []byte(begin), 0o600); err != nil {
			t.Fatal(err)
		}
		err := run(io.Discard, file, dir, tinyRoads(), false, true)
		if got, _ := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%v, wrote\n%swant\n%s", err, got, want)
		}
		if err := run(io.Discard, file, dir, tinyRoads(), true, false); err != nil {
			t.Error(err)
		}
	}
}

// TestRun_Refuses rows that count nothing, which could never be over their budgets.
func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	file, dir := filepath.Join(t.TempDir(), "budgets.txt"), tiny(t)
	for text, want := range map[string]string{
		"# About.\n":            "has no row",
		"1 1 code .\n":          "want budget, figure of today, goal",
		"1 one - code .\n":      `"one"`,
		"1 1 - code gone\n":     "row code gone: there are none",
		"1 1 - names gone\n":    "row names gone: there is no such package",
		"1 1 - methods store\n": "row methods store: there is no such",
		"1 1 - files Gone\n":    "row files Gone: there is no such call",
		"1 1 - words gone.md\n": "gone.md",
		"1 1 - stars .\n":       "row stars .: there is no such kind",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(io.Discard, file, dir, tinyRoads(), true, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}

func TestRoads(t *testing.T) {
	t.Parallel()
	m, err := load(tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	calls := newCalls(m, hidden)
	fetch, beat := tinyRoads()[0], tinyRoads()[1]
	uncut := fetch
	uncut.cut = nil
	for _, c := range []struct {
		road road
		want string
	}{
		{fetch, "server/chain.go server/log.go server/service.go engine/engine.go engine/checked.go engine/merge.go store/kept/claim.go"},
		{uncut, "server/chain.go server/log.go server/service.go engine/engine.go engine/report.go store/kept/read.go store/kept/reading.go engine/checked.go engine/merge.go store/kept/claim.go"},
		{beat, "server/chain.go server/stream.go server/wrapped.go server/service.go engine/engine.go store/kept/read.go store/kept/reading.go"},
	} {
		files, err := calls.walk(c.road)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(files, " ") != c.want {
			t.Errorf("%s: road %v", c.road.name, files)
		}
	}
	beat.end = fetch.end
	if files, err := calls.walk(beat); err == nil {
		t.Errorf("Beat gets to %s by %v", beat.end, files)
	}
	fetch.cut = map[string]string{"engine.gone": "it is gone"}
	if _, err := calls.walk(fetch); err == nil {
		t.Error("a cut of a function that there is not is no error")
	}
}
