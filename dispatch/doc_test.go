package dispatch_test

import (
	"os"
	"regexp"
	"testing"
)

// The files that comments send a reader to are there.
func TestDoc_files(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"doc.go", "pump.go"} {
		text, err := os.ReadFile(in)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\b[a-z_]+\.(go|md)\b`).FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no files", in)
		}
		for _, name := range names {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("%s: %v", in, err)
			}
		}
	}
}
