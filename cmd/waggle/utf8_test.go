package main_test

import (
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// What is not UTF-8 is named, whatever it came by: gRPC cannot send it, and does not say what.
func TestClient_notUTF8(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	for want, args := range map[string][]string{
		`waggle: reason is "caf\xe9", which is not in UTF-8`:             {"queue", "block", "a.example", "--reason", "caf\xe9"},
		`waggle: by is "\xff", which is not in UTF-8`:                    {"pool", "pause", "p", "--by", "\xff"},
		`waggle: items[1].url is "https://a.example/\xe9", which is not`: {"task", "submit", "--source", "s", "https://a.example/", "https://a.example/\xe9"},
		`waggle: labels["\xe9"] is "\xe9", which is not in UTF-8`:        {"collector", "drain", "--label", "\xe9=a"},
		`waggle: spec.labels["a"] is "b\xe9", which is not in UTF-8`:     {"source", "create", "s", "--label", "a=b\xe9"},
	} {
		wantFailure(t, command(t, env, args...), waggle.ExitUsage, want)
	}
	got := commandWith(t, env, "https://a.example/\n\nhttps://a.example/\xe9\n", "task", "submit", "--source", "s", "--file", "-")
	wantFailure(t, got, waggle.ExitFailed, "waggle: standard input, line 3: is not in UTF-8\n")
}
