package main_test

import (
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// TestTask_Retry_done says how a DONE task is retried, as its help does.
func TestTask_Retry_done(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	got := command(t, env, "task", "retry", "--source", "a", "--state", "done", "--yes")
	wantFailure(t, got, waggle.ExitUsage, "--state done", "say the task's ID, or --source with --url or --key")
	if help := command(t, env, "task", "retry", "--help"); help.code != waggle.ExitOK {
		t.Errorf("exit code %d", help.code)
	}
}
