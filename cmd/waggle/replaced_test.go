package main_test

import (
	"strings"
	"testing"
)

// TestHold_replaced says what stood before, where a block, pause or drain takes the place
// of another one.
func TestHold_replaced(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "a")
	for what, args := range map[string][]string{
		"the block of queue x.example": {"queue", "block", "x.example"}, "the pause of queue y.example": {"queue", "pause", "y.example"},
		"the pause of pool browser": {"pool", "pause", "browser"}, "the pause of source a": {"source", "pause", "a"},
		"the drain of c1": {"collector", "drain", "c1"}, "the drain of region=eu": {"collector", "drain", "--label", "region=eu"},
	} {
		if got := command(t, env, append(args, "--by", "ada", "--reason", "they asked")...); strings.Contains(got.err, "replaced") {
			t.Errorf("%s for the first time: %s", what, got.err)
		}
		if args[0] == "source" || args[0] == "collector" {
			got := command(t, env, append(args, "--by", "bob", "--dry-run")...)
			if want := "waggle: this would replace " + what + " that stands: by ada, "; !strings.Contains(got.err, want) {
				t.Errorf("stderr lacks %q:\n%s", want, got.err)
			}
		}
		got := command(t, env, append(args, "--by", "bob", "--until", "1h")...)
		want := "waggle: this replaced " + what + " that stood: by ada, "
		if got.code != 0 || !strings.Contains(got.err, want) || !strings.Contains(got.err, ": they asked, without an end\n") {
			t.Errorf("exit %d, stderr lacks %q:\n%s", got.code, want, got.err)
		}
	}
}
