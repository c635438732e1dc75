package main_test

import (
	"regexp"
	"testing"
)

// TestTask_Get_canceled shows who took a task out, and why.
func TestTask_Get_canceled(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "a")
	command(t, env, "task", "submit", "--source", "a", "https://a.example/1")
	task := []string{"--source", "a", "--url", "https://a.example/1"}
	command(t, env, append([]string{"task", "cancel", "--by", "ada", "--reason", "a trap"}, task...)...)
	shown := command(t, env, append([]string{"task", "get"}, task...)...).out + command(t, env, append([]string{"explain", "task"}, task...)...).out
	for _, pattern := range []string{
		`(?m)^Canceled  by ada, .*: a trap$`, `(?m)^ +- +- +\S.* +- +CANCELED +ada: a trap$`, `SETTLED.*by ada.*it is CANCELED: a trap`,
	} {
		if !regexp.MustCompile(pattern).MatchString(shown) {
			t.Errorf("lacks %s:\n%s", pattern, shown)
		}
	}
}
