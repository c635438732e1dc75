package main_test

import (
	"strings"
	"testing"
	"time"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// A moment by the local clock is told as the instant that it is.
func TestTimeFlag_local(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	tomorrow := time.Now().Add(48 * time.Hour).Truncate(time.Minute)
	text := tomorrow.Format("2006-01-02 15:04")
	told := "waggle: " + text + " is in 2d (" + tomorrow.UTC().Format("2006-01-02 15:04:05Z") + ")\n"
	for _, args := range [][]string{
		{"queue", "pause", "a.example", "--until", text}, {"pool", "pause", "browser", "--until", text}, {"collector", "drain", "c", "--until", text},
	} {
		if got := command(t, env, args...); got.code != waggle.ExitOK || !strings.Contains(got.err, told) {
			t.Errorf("%v: %d, %s; want %s", args, got.code, got.err, told)
		}
	}
	if got := command(t, env, "pool", "pause", "browser", "--until", "2d"); strings.Contains(got.err, " is in ") {
		t.Errorf("a duration is told: %s", got.err)
	}
}
