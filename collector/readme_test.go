package collector_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadme_example holds that each line of Go in README.md is one of Example, in its order: what it shows compiles.
func TestReadme_example(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(readme), "\n```go\n")
	shown, _, ended := strings.Cut(shown, "```\n")
	if !found || !ended {
		t.Fatal("README.md has no Go")
	}
	rest := string(source)
	for line := range strings.Lines(shown) {
		line = strings.TrimSpace(line)
		if line == "" || line == "// ..." {
			continue
		}
		_, after, ok := strings.Cut(rest, line+"\n")
		if !ok {
			t.Fatalf("README.md has %q, which Example has not, or not there", line)
		}
		rest = after
	}
}
