package root_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// What is not UTF-8 is named: gRPC cannot send it, and does not say what.
func TestClient_notUTF8(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for _, args := range [][]string{
		{"task", "submit", "--source", "s", "https://a.example/", "https://a.example/\xe9"}, {"source", "create", "s", "--label", "https://a.example/\xe9"},
	} {
		clitest.WantFailure(t, clitest.Command(t, env, args...), cli.ExitUsage, `waggle: argument "https://a.example/\xe9" is not in UTF-8`)
	}
	got := clitest.CommandWith(t, env, "https://a.example/\n\nhttps://a.example/\xe9\n", "task", "submit", "--source", "s", "--file", "-")
	clitest.WantFailure(t, got, cli.ExitFailed, "waggle: standard input, line 3: is not in UTF-8\n")
}
