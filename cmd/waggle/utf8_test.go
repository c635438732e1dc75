package main_test

import (
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// What is not UTF-8 is named: gRPC cannot send it, and does not say what.
func TestClient_notUTF8(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	for _, args := range [][]string{
		{"task", "submit", "--source", "s", "https://a.example/", "https://a.example/\xe9"}, {"source", "create", "s", "--label", "https://a.example/\xe9"},
	} {
		wantFailure(t, command(t, env, args...), waggle.ExitUsage, `waggle: argument "https://a.example/\xe9" is not in UTF-8`)
	}
	got := commandWith(t, env, "https://a.example/\n\nhttps://a.example/\xe9\n", "task", "submit", "--source", "s", "--file", "-")
	wantFailure(t, got, waggle.ExitFailed, "waggle: standard input, line 3: is not in UTF-8\n")
}
