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

// TestTask_Get_canceledBeforeItsSource deletes the source of a task that was canceled.
func TestTask_Get_canceledBeforeItsSource(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "a")
	out := command(t, env, "task", "submit", "--source", "a", "https://a.example/1").out
	id := regexp.MustCompile(`\d+-[a-z2-7]{26}`).FindString(out)
	command(t, env, "task", "cancel", "--by", "ada", "--reason", "legal asked", id)
	command(t, env, "task", "get", id) // what takes the millisecond in which it was canceled to its end
	command(t, env, "source", "delete", "--yes", "--by", "bob", "a")
	shown := command(t, env, "task", "get", id).out + command(t, env, "explain", "task", id).out
	for _, pattern := range []string{
		`(?m)^Canceled  by ada, .*: legal asked$`, `SOURCE_DELETED.*by bob`,
		`SETTLED.*by ada.*it is CANCELED: legal asked\n +opened by: nothing; its source is deleted`,
	} {
		if !regexp.MustCompile(pattern).MatchString(shown) {
			t.Errorf("lacks %s:\n%s", pattern, shown)
		}
	}
}
