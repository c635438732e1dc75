package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The list fits the code: each text that a mutant replaces occurs once.
func TestRead(t *testing.T) {
	t.Parallel()
	all, err := read("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range all {
		if names[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		names[m.name] = true
	}
}

// module writes a small module with a list of mutants, and returns its directory.
func module(t *testing.T, mutants string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module m\n\ngo 1.26\n",
		"sum/sum.go": "package sum\n\nfunc Sum(a, b int) int { return a + b }\n\nfunc Unused(a int) int { return a * 2 }\n",
		"sum/s_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tt.Run(\"small\", func(t *testing.T) {\n\t\tif Sum(1, 2) != 3 {\n\t\t\tt.Fail()\n\t\t}\n\t})\n}\n\n" +
			"func TestBroken(t *testing.T) { t.Fail() }\n",
		list: mutants,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRun(t *testing.T) {
	t.Parallel()
	const killed = "\n== minus\nsum/sum.go\nsum TestSum\n-a + b\n+a - b\n"
	for name, c := range map[string]struct{ mutants, out, err string }{
		"killed":              {killed, "minus|TestSum/small", ""},
		"survived":            {"\n== threefold\nsum/sum.go\nsum TestSum\n-a * 2\n+a * 3\n" + killed, "threefold|SURVIVED TestSum of sum", "1 of 2 mutants were not killed"},
		"does not compile":    {"\n== c\nsum/sum.go\nsum TestSum\n-a + b\n+c\n", "c|undefined: c", "1 of 1 mutants were not killed"},
		"text taken out":      {"\n== none\nsum/sum.go\nsum TestSum\n- + b\n", "none|TestSum/small", ""},
		"no test":             {"\n== x\nsum/sum.go\nsum TestOther\n-a + b\n+a\n", "", "without a mutant: go test -run 'TestOther' ./sum runs no test"},
		"a test fails anyhow": {"\n== x\nsum/sum.go\nsum TestBroken\n-a + b\n+a\n", "", "without a mutant, TestBroken of sum fails"},
		"text twice":          {"\n== x\nsum/sum.go\nsum TestSum\n-return\n+panic\n", "", "occurs 2 times in sum/sum.go"},
		"text gone":           {"\n== x\nsum/sum.go\nsum TestSum\n-a & b\n+a\n", "", "occurs 0 times in sum/sum.go"},
		"nothing replaced":    {"\n== x\nsum/sum.go\nsum TestSum\n", "", "it needs a file"},
		"no mutants":          {"nothing\n", "", "0 mutants"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := run(t.Context(), &out, module(t, c.mutants), "")
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			for _, part := range strings.Split(c.out, "|") {
				if !strings.Contains(out.String(), part) {
					t.Errorf("printed %q, want %q in it", out.String(), part)
				}
			}
		})
	}
}
