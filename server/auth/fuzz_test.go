package auth_test

import (
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	"github.com/waggle-crawl/waggle/server/auth"
)

// FuzzGuard_Admit sends any header: it is let in only with the token, or the JWT as it was signed, and no refusal shows it.
func FuzzGuard_Admit(f *testing.F) {
	one := newSigner(f, "one")
	valid := one.token(f, claimsOf("crawl-1", nil))
	dir := f.TempDir()
	keys, policy := filepath.Join(dir, "keys.json"), filepath.Join(dir, "auth.yaml")
	new(guarded).write(f, keys, keySet(f, one))
	new(guarded).write(f, policy, "tokens: [{name: a, sha256: "+auth.HashToken("wgl_secret")+"}]\n"+
		"jwt: [{issuer: 'https://login.example.org', audience: waggle, keys_file: keys.json}]\ngrants: [{identity: '*', role: collector}]")
	g, err := auth.NewGuard(policy, zap.NewNop())
	if err != nil {
		f.Fatal(err)
	}
	f.Add("Bearer wgl_secret")
	f.Add("bearer " + valid)
	f.Add("Bearer " + valid[:len(valid)-4] + "AAAA")
	f.Add("Basic YTpi")
	f.Add("Bearer eyJhbGciOiJub25lIn0.e30.")
	f.Add("Bearer a.b.c")
	f.Fuzz(func(t *testing.T, header string) {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{"authorization": {header}})
		caller, err := g.Admit(ctx, fetch)
		scheme, token, _ := strings.Cut(header, " ")
		right := strings.EqualFold(scheme, "bearer") && (token == "wgl_secret" || token == valid)
		if right != (err == nil) && !sameSignature(token, valid) {
			t.Fatalf("%q: %v, %v", header, caller, err)
		}
		if err != nil && len(token) > 20 && strings.Contains(err.Error(), token) {
			t.Errorf("the refusal shows the credential: %v", err)
		}
	})
}

// sameSignature reports whether a JWT differs from the valid one only in bits of its last letter that mean nothing.
func sameSignature(token, valid string) bool {
	return len(token) == len(valid) && token[:len(token)-1] == valid[:len(valid)-1]
}

// FuzzParse reads any policy: it is refused, or its grants can be asked for.
func FuzzParse(f *testing.F) {
	f.Add([]byte(wholePolicy), "token:eu-1")
	f.Add([]byte("grants: [{identity: 'a*b*c', role: admin}]"), "abbc")
	f.Add([]byte("tokens: [{name: a}]"), "")
	f.Fuzz(func(t *testing.T, content []byte, identity string) {
		p, err := auth.Parse(content)
		if err != nil {
			return
		}
		for _, method := range auth.Methods() {
			allowed, rule, err := p.Explain(method, identity)
			if err != nil || rule == "" || allowed && len(p.GrantsTo(identity)) == 0 && !strings.HasSuffix(rule, "is for anyone") {
				t.Fatalf("%s by %q: %v, %q, %v", method, identity, allowed, rule, err)
			}
		}
	})
}
