package task_test

import (
	"regexp"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// TestTask_Get_canceled shows who took a task out, and why.
func TestTask_Get_canceled(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	clitest.Command(t, env, "task", "submit", "--source", "a", "https://a.example/1")
	task := []string{"--source", "a", "--url", "https://a.example/1"}
	clitest.Command(t, env, append([]string{"task", "cancel", "--by", "ada", "--reason", "a trap"}, task...)...)
	shown := clitest.Command(t, env, append([]string{"task", "get"}, task...)...).Out + clitest.Command(t, env, append([]string{"explain", "task"}, task...)...).Out
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
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	out := clitest.Command(t, env, "task", "submit", "--source", "a", "https://a.example/1").Out
	id := regexp.MustCompile(`\d+-[a-z2-7]{26}`).FindString(out)
	clitest.Command(t, env, "task", "cancel", "--by", "ada", "--reason", "legal asked", id)
	clitest.Command(t, env, "task", "get", id) // what takes the millisecond in which it was canceled to its end
	clitest.Command(t, env, "source", "delete", "--yes", "--by", "bob", "a")
	shown := clitest.Command(t, env, "task", "get", id).Out + clitest.Command(t, env, "explain", "task", id).Out
	for _, pattern := range []string{
		`(?m)^Canceled  by ada, .*: legal asked$`, `SOURCE_DELETED.*by bob`,
		`SETTLED.*by ada.*it is CANCELED: legal asked\n +opened by: nothing; its source is deleted`,
	} {
		if !regexp.MustCompile(pattern).MatchString(shown) {
			t.Errorf("lacks %s:\n%s", pattern, shown)
		}
	}
}
