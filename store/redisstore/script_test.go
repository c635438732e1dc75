package redisstore_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/store/redisstore"
)

// maxLocals is how many local variables a function of a script may have: Lua 5.1
// refuses more than 200, and a script that fails to load takes all others with it.
const maxLocals = 192

// localLine is a line at the left margin that declares locals: what is indented is
// in a block, whose variables end with it.
var localLine = regexp.MustCompile(`(?m)^local (function \w+|[\w, ]+)`)

// locals counts those of a function by its text.
func locals(text string) (n int) {
	for _, match := range localLine.FindAllStringSubmatch(text, -1) {
		n += 1 + strings.Count(match[1], ",")
	}
	return n
}

// TestScripts_Locals keeps the scripts below Lua's limit on local variables. A part
// of the prelude that comes near it puts what only it needs into a do-block.
func TestScripts_Locals(t *testing.T) {
	t.Parallel()
	libraries, err := redisstore.Libraries()
	if err != nil {
		t.Fatal(err)
	}
	if len(libraries) < 20 {
		t.Fatalf("there are %d scripts only", len(libraries))
	}
	most := 0
	for name, library := range libraries {
		defined, called, ok := strings.Cut(library, "local function run(")
		if !ok {
			t.Fatalf("%s has no function run", name)
		}
		for _, part := range []struct {
			what string
			n    int
		}{{"what it defines", locals(defined) + 1}, {"what it does at each call", locals(called)}} {
			most = max(most, part.n)
			if part.n > maxLocals {
				t.Errorf("%s: %s has %d local variables, want at most %d", name, part.what, part.n, maxLocals)
			}
		}
	}
	t.Logf("the most are %d", most)
	if most < 50 {
		t.Errorf("the most local variables are %d: they are not counted right", most)
	}
}
