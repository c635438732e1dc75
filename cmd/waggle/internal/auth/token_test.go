package auth_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
	"github.com/waggle-crawl/waggle/server/auth"
)

// policyOf is the policy in a file.
func policyOf(t *testing.T, path string) *auth.Policy {
	t.Helper()
	policy, err := auth.Parse([]byte(clitest.ReadFile(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// A token is printed once, and only its hash is kept, with a grant.
func TestToken_new(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "auth.yaml")
	env := map[string]string{"WAGGLE_AUTH": file, "WAGGLE_TIMEOUT": "no duration"}
	got := clitest.Command(t, env, "auth", "token", "new", "eu-1", "--role", "collector", "--collectors", "eu-*,x", "--pools", "news", "--expires", "90d")
	token := strings.TrimSuffix(got.Out, "\n")
	if got.Code != cli.ExitOK || !strings.HasPrefix(token, "wgl_") || len(token) != len("wgl_")+43 || strings.Contains(got.Err, token) || !strings.Contains(got.Err, "token:eu-1") {
		t.Fatalf("exit code %d, printed %q, noted %q", got.Code, got.Out, got.Err)
	}
	clitest.WantMode(t, file, 0o600)
	if text := clitest.ReadFile(t, file); strings.Contains(text, token) || !strings.Contains(text, "collectors: [eu-*, x]\n") {
		t.Errorf("the file is\n%s", text)
	}
	policy := policyOf(t, file)
	if len(policy.Tokens) != 1 || policy.Tokens[0].SHA256 != auth.HashToken(token) || policy.Tokens[0].Expires.IsZero() {
		t.Errorf("the tokens are %+v", policy.Tokens)
	}
	if want := "grant of collector to token:eu-1, collectors eu-* x, pools news"; len(policy.Grants) != 1 || policy.Grants[0].String() != want {
		t.Errorf("the grants are %v, want %s", policy.Grants, want)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "auth", "token", "new", "eu-1", "--role", "viewer"), cli.ExitFailed, "has a token eu-1", "--replace", "revoke eu-1")
	clitest.WantFailure(t, clitest.Command(t, env, "auth", "token", "new", "eu-2", "--replace"), cli.ExitFailed, "has no token eu-2", "token list")

	other := clitest.Command(t, env, "auth", "token", "new", "eu-1", "--replace")
	if after := policyOf(t, file); len(after.Tokens) != 1 || after.Tokens[0].SHA256 != auth.HashToken(strings.TrimSpace(other.Out)) || other.Out == got.Out || len(after.Grants) != 1 ||
		!after.Tokens[0].Expires.Equal(policy.Tokens[0].Expires) {
		t.Errorf("replaced: %+v", after)
	}

	// With an overlap both count, and a revoked name loses both.
	third := clitest.Command(t, env, "auth", "token", "new", "eu-1", "--replace", "--overlap", "1h")
	after := policyOf(t, file)
	if len(after.Tokens) != 2 || after.Tokens[0].SHA256 != auth.HashToken(strings.TrimSpace(other.Out)) || time.Until(after.Tokens[0].Expires) > time.Hour ||
		after.Tokens[1].SHA256 != auth.HashToken(strings.TrimSpace(third.Out)) || !after.Tokens[1].Expires.Equal(policy.Tokens[0].Expires) {
		t.Errorf("replaced with an overlap: %+v", after)
	}
	fourth := clitest.Command(t, env, "auth", "token", "new", "eu-1", "--replace")
	if after := policyOf(t, file); len(after.Tokens) != 1 || after.Tokens[0].SHA256 != auth.HashToken(strings.TrimSpace(fourth.Out)) || !after.Tokens[0].Expires.Equal(policy.Tokens[0].Expires) {
		t.Errorf("replaced after an overlap: %+v", after)
	}
	clitest.MustRun(t, "auth", "token", "revoke", "eu-1", "--file", file)
	if after := policyOf(t, file); len(after.Tokens)+len(after.Grants) > 0 {
		t.Errorf("revoked: %+v", after)
	}
}

// A token with several roles has a grant for each, with the limits that the role can have.
func TestToken_roles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "auth.yaml")
	clitest.MustRun(t, "auth", "token", "new", "spider", "--role", "collector,producer", "--role", "viewer", "--collectors", "s-*", "--sources", "shop", "--file", file)
	var grants []string
	for _, grant := range policyOf(t, file).Grants {
		grants = append(grants, grant.String())
	}
	want := "grant of collector to token:spider, collectors s-*; grant of producer to token:spider, sources shop; grant of viewer to token:spider, sources shop"
	if got := strings.Join(grants, "; "); got != want {
		t.Errorf("the grants are %s, want %s", got, want)
	}
}

// A token goes to a file that only its owner can read, and no file is overwritten without --replace.
func TestToken_out(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "auth.yaml"), filepath.Join(dir, "ada.token")
	got := clitest.Command(t, nil, "auth", "token", "new", "ada", "--role", "operator", "--file", file, "--out", out)
	token := strings.TrimSpace(clitest.ReadFile(t, out))
	if got.Code != cli.ExitOK || got.Out != "" || strings.Contains(got.Err, token) || policyOf(t, file).Tokens[0].SHA256 != auth.HashToken(token) {
		t.Errorf("exit code %d, printed %q, noted %q", got.Code, got.Out, got.Err)
	}
	clitest.WantMode(t, out, 0o600)
	before := clitest.ReadFile(t, file)
	clitest.WantFailure(t, clitest.Command(t, nil, "auth", "token", "new", "bob", "--role", "operator", "--file", file, "--out", out), cli.ExitUsage, "--out: "+out+" exists")
	if clitest.ReadFile(t, file) != before {
		t.Error("a token without a file to be in is in the policy")
	}
	clitest.MustRun(t, "auth", "token", "new", "ada", "--replace", "--file", file, "--out", out)
	if next := strings.TrimSpace(clitest.ReadFile(t, out)); next == token || policyOf(t, file).Tokens[0].SHA256 != auth.HashToken(next) {
		t.Error("the file has not the new token")
	}
}

const commented = `# who may do what
tokens:
  # operations
  - name: ada # since 2024
    sha256: 0000000000000000000000000000000000000000000000000000000000000000
  # leaves in May
  - name: bob
    sha256: 0000000000000000000000000000000000000000000000000000000000000001
    expires: 2020-05-31T00:00:00Z
# what they may
grants:
  - {identity: "token:*", role: viewer} # everybody
  # she is on duty
  - identity: token:ada
    role: operator
  - identity: token:bob
    role: producer
    sources: [news.]
# end
`

// An edit leaves the comments and the order of the file, its mode, and what a link points to.
func TestToken_comments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real.yaml"), filepath.Join(dir, "auth.yaml")
	if err := os.WriteFile(file, []byte(commented), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.yaml", link); err != nil {
		t.Fatal(err)
	}
	clitest.MustRun(t, "auth", "token", "new", "eu-1", "--role", "collector", "--file", link)
	policy := policyOf(t, file)
	if len(policy.Tokens) != 3 || len(policy.Grants) != 4 {
		t.Errorf("the policy is %+v", policy)
	}
	if got := clitest.MustRun(t, "auth", "token", "revoke", "eu-1", "--file", link); got.Out != "token eu-1 revoked, and 1 grant\n" {
		t.Errorf("printed %s", got.Out)
	}
	if text := clitest.ReadFile(t, file); text != commented {
		t.Errorf("after new and revoke the file is\n%s", text)
	}
	clitest.WantMode(t, file, 0o640)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	clitest.MustRun(t, "auth", "token", "revoke", "bob", "--file", link)
	if text := clitest.ReadFile(t, file); strings.Contains(text, "bob") || strings.Contains(text, "leaves in May") || !strings.Contains(text, "# since 2024") || !strings.Contains(text, "# everybody") {
		t.Errorf("without bob the file is\n%s", text)
	}
	clitest.WantFailure(t, clitest.Command(t, nil, "auth", "token", "revoke", "bob", "--file", link), cli.ExitFailed, "has no token bob")
	clitest.MustRun(t, "auth", "token", "revoke", "ada", "--file", link)
	if policy := policyOf(t, file); len(policy.Tokens) != 0 || len(policy.Grants) != 1 {
		t.Errorf("without anybody the policy is %+v", policy)
	}
}

// A file of comments alone, and lists that are empty, are filled.
func TestToken_emptyFile(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "# nobody yet", "# nobody yet\n---\n", "tokens: []\ngrants:\n", "grants: [] # none\n", "jwt: []\n"} {
		file := clitest.WriteFile(t, "auth.yaml", content)
		clitest.MustRun(t, "auth", "token", "new", "ada", "--role", "admin", "--file", file)
		clitest.MustRun(t, "auth", "token", "new", "bob", "--role", "viewer", "--file", file)
		policy, text := policyOf(t, file), clitest.ReadFile(t, file)
		if len(policy.Tokens) != 2 || len(policy.Grants) != 2 || strings.Contains(text, "{") || strings.Contains(content, "# no") && !strings.Contains(text, "# no") {
			t.Errorf("of %q became\n%s", content, text)
		}
	}
	file := clitest.WriteFile(t, "auth.yaml", "tokens:\n- name: a\n  sha256: 12\n")
	clitest.WantFailure(t, clitest.Command(t, nil, "auth", "token", "new", "b", "--role", "admin", "--file", file), cli.ExitFailed, file, "64 hexadecimal digits")
}

// Edits at once wait for each other: none is lost.
func TestToken_atOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "auth.yaml")
	const edits = 20
	var all sync.WaitGroup
	for i := range edits {
		all.Go(func() {
			got := clitest.Command(t, nil, "auth", "token", "new", fmt.Sprintf("t%d", i), "--role", "viewer", "--file", file)
			if got.Code != cli.ExitOK {
				t.Errorf("exit code %d, %s", got.Code, got.Err)
			}
		})
	}
	all.Wait()
	if policy := policyOf(t, file); len(policy.Tokens) != edits || len(policy.Grants) != edits {
		t.Errorf("%d tokens, %d grants", len(policy.Tokens), len(policy.Grants))
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Tokens are listed with what all grants give them, those of a pattern too.
func TestToken_list(t *testing.T) {
	t.Parallel()
	file := clitest.WriteFile(t, "auth.yaml", commented)
	got := clitest.Command(t, nil, "auth", "token", "list", "--file", file)
	lines := strings.Split(clitest.Settle(got.Out), "\n")
	if len(lines) != 4 || lines[1] != "ada  viewer, operator  -  never" || !strings.HasPrefix(lines[2], "bob  viewer, producer  sources news.  EXPIRED ") {
		t.Errorf("listed\n%s%s", got.Out, got.Err)
	}
	var reply struct {
		Tokens []struct {
			Name, Identity, Expires string
			Expired                 bool
			Grants                  []struct {
				Role    string
				Sources []string
			}
		}
	}
	got = clitest.Command(t, nil, "auth", "token", "list", "--file", file, "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &reply); err != nil || len(reply.Tokens) != 2 {
		t.Fatalf("%v: %s", err, got.Out)
	}
	if bob := reply.Tokens[1]; bob.Identity != "token:bob" || !bob.Expired || bob.Expires != "2020-05-31T00:00:00Z" || len(bob.Grants) != 2 || bob.Grants[1].Sources[0] != "news." {
		t.Errorf("bob is %+v", bob)
	}
	if got := clitest.Command(t, nil, "auth", "token", "list", "--file", filepath.Join(t.TempDir(), "auth.yaml")); got.Code != cli.ExitOK || !strings.HasPrefix(got.Out, "no tokens in ") {
		t.Errorf("without a file: %d, %s%s", got.Code, got.Out, got.Err)
	}
}
