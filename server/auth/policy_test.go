package auth_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/server/auth"
)

// wholePolicy has every field.
const wholePolicy = `
tokens:
  - name: eu-1
    sha256: 9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08
    expires: 2027-06-01T00:00:00Z
jwt:
  - issuer: https://login.example.org
    audience: waggle
  - name: k8s
    issuer: https://kubernetes.default.svc
    audience: waggle
    keys_url: https://127.0.0.1/openid/v1/jwks
grants:
  - identity: token:eu-*
    role: collector
    collectors: [eu-*]
    pools: [news]
  - identity: jwt:alice
    role: operator
    sources: [news., blogs.]
  - identity: k8s:system:*:crawler
    role: admin
`

func TestParse(t *testing.T) {
	t.Parallel()
	p, err := auth.Parse([]byte(wholePolicy))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Tokens[0]; got.Name != "eu-1" || got.SHA256 != auth.HashToken("test") || !got.Expires.Equal(time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("token: %+v", got)
	}
	if p.JWT[0].Name != "jwt" || p.JWT[1].Name != "k8s" {
		t.Errorf("issuers: %+v", p.JWT)
	}
	for identity, roles := range map[string]string{
		"token:eu-1": "collector", "token:eu-": "collector", "token:eu": "", "jwt:alice": "operator", "jwt:alice2": "",
		"k8s:system:serviceaccount:crawl:crawler": "admin", "k8s:system:crawler": "", "": "", "k8s:system::crawler": "admin",
	} {
		var got []string
		for _, g := range p.GrantsTo(identity) {
			got = append(got, string(g.Role))
		}
		if strings.Join(got, " ") != roles {
			t.Errorf("%q has the roles %q, want %q", identity, got, roles)
		}
	}
	if empty, err := auth.Parse(nil); err != nil || len(empty.Grants) > 0 {
		t.Errorf("an empty policy: %+v, %v", empty, err)
	}
}

func TestParse_invalid(t *testing.T) {
	t.Parallel()
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for content, want := range map[string]string{
		"tokens: [{name: a, sha256: xyz}]":                                           `tokens[0].sha256 of "a" must be 64 hexadecimal digits`,
		"tokens: [{name: A, sha256: " + hash + "}]":                                  `tokens[0].name is "A"; it must be 1 to 64 of`,
		"tokens: [{name: a, sha256: " + hash + "}, {name: b, sha256: " + hash + "}]": `tokens[1].sha256 of "b" is that of another token, too`,
		"tokens: [{name: a, sha256: " + hash + ", expires: soon}]":                   "soon",
		"grants: [{identity: a, role: boss}]":                                        `grants[0].role is "boss"; it must be one of [collector producer operator viewer admin]`,
		"grants: [{identity: 'tokn:a', role: admin}]":                                `grants[0].identity is "tokn:a"; it must begin with token:, spiffe://`,
		"grants: [{role: admin}]":                                                    "grants[0].identity is empty",
		"grants: [{identity: a, role: viewer, pools: [p]}]":                          "grants[0].collectors and pools are for the role collector, not for viewer",
		"grants: [{identity: a, role: admin, sources: [p]}]":                         "not for the role admin",
		"grants: [{identity: 'token:a', role: operator, sources: ['']}]":             "must hold no empty text",
		"grants: [{identity: a, role: operator, source: [p]}]":                       "field source not found",
		"grant: []":                          "line 1: field grant not found",
		"jwt: [{issuer: https://a.example}]": "jwt[0].audience is empty",
		"jwt: [{audience: a}]":               "jwt[0].issuer is empty",
		"jwt: [{issuer: a, audience: a}]":    `jwt[0].issuer is "a", which has no discovery document`,
		"jwt: [{issuer: a, audience: a, keys_url: 'http://a.example/keys'}]":    `jwt[0].keys_url is "http://a.example/keys"; it must be a URL with https`,
		"jwt: [{issuer: a, audience: a, keys_url: 'https://a/', keys_file: b}]": "keys_file and keys_url are both set",
		"jwt: [{name: token, issuer: a, audience: a, keys_file: b}]":            `jwt[0].name "token" is taken`,
		"\x00": "control characters",
	} {
		if _, err := auth.Parse([]byte(content)); !errors.Is(err, auth.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}

func TestPolicy_Explain(t *testing.T) {
	t.Parallel()
	p, err := auth.Parse([]byte(wholePolicy))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, identity string
		allowed          bool
		text             string
	}{
		{"FetchTask", "token:eu-1", true, "allowed by the grant of collector to token:eu-*, collectors eu-*, pools news"},
		{"waggle.v1.DispatchService/FetchTask", "token:us-1", false, "no grant is to token:us-1; FetchTask is for the role collector or admin"},
		{"/waggle.v1.TaskService/CancelTasks", "token:eu-1", false, "token:eu-1 has the role collector; CancelTasks is for the role operator or admin"},
		{"SetQueueRule", "jwt:alice", false, "SetQueueRule needs a grant for all sources; there is a grant of operator to jwt:alice, sources news. blogs."},
		{"Check", "anything", true, "Check is for anyone"},
		{"SubmitTasks", "k8s:system:a:crawler", true, "allowed by the grant of admin to k8s:system:*:crawler"},
	} {
		allowed, text, err := p.Explain(c.method, c.identity)
		if err != nil || allowed != c.allowed || text != c.text {
			t.Errorf("%s by %s: %v, %q, %v, want %v, %q", c.method, c.identity, allowed, text, err, c.allowed, c.text)
		}
	}
	if _, _, err := p.Explain("Nothing", "jwt:alice"); err == nil {
		t.Error("a method that does not exist is explained")
	}
}

func TestNewToken(t *testing.T) {
	t.Parallel()
	a, hash := auth.NewToken()
	b, _ := auth.NewToken()
	if a == b || len(a) != 47 || !strings.HasPrefix(a, "wgl_") || hash != auth.HashToken(a) || strings.Contains(hash, a) {
		t.Errorf("tokens %d bytes, hash %q", len(a), hash)
	}
}
