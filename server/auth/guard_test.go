package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
)

const (
	fetch = pb.DispatchService_FetchTask_FullMethodName
	beat  = pb.DispatchService_Heartbeat_FullMethodName
	stats = pb.AdminService_GetStats_FullMethodName
	watch = "/grpc.health.v1.Health/Watch"
)

// guarded is a guard that follows its policy until the test ends.
type guarded struct {
	*auth.Guard
	path string
}

func newGuard(t *testing.T, policy string) *guarded {
	t.Helper()
	g := &guarded{path: filepath.Join(t.TempDir(), "auth.yaml")}
	g.write(t, g.path, policy)
	var err error
	if g.Guard, err = auth.NewGuard(g.path, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		g.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return g
}

// write replaces a file as a whole.
func (g *guarded) write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// bearer is the context of a call with a token.
func bearer(ctx context.Context, tokens ...string) context.Context {
	sent := metadata.MD{}
	for _, token := range tokens {
		sent.Append("authorization", "Bearer "+token)
	}
	return metadata.NewIncomingContext(ctx, sent)
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit, tick := time.After(10*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// ends waits until a context ends.
func ends(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
}

// refusedBy checks that an error is a refusal by a rule.
func refusedBy(t *testing.T, err error, rule string) {
	t.Helper()
	if refused, ok := errors.AsType[*auth.Refused](err); !ok || !strings.Contains(refused.Rule, rule) {
		t.Errorf("refused by %v, want %q", err, rule)
	}
}

func TestGuard_Admit(t *testing.T) {
	t.Parallel()
	good, old := "wgl_good", "wgl_old"
	g := newGuard(t, fmt.Sprintf(`
tokens: [{name: good, sha256: %s}, {name: old, sha256: %s, expires: 2020-01-01T00:00:00Z}]
grants: [{identity: token:*, role: collector}]`, auth.HashToken(good), auth.HashToken(old)))
	caller, err := g.Admit(bearer(t.Context(), good), fetch)
	if err != nil || caller.Identity != "token:good" {
		t.Fatalf("%+v, %v", caller, err)
	}
	for _, c := range []struct {
		ctx          context.Context //nolint:containedctx // of a call
		method, rule string
	}{
		{t.Context(), fetch, "the call has no credential"},
		{bearer(t.Context(), "wgl_other"), fetch, "the token is unknown, or was revoked"},
		{bearer(t.Context(), "a.b.c"), fetch, "the token is unknown, or was revoked"},
		{bearer(t.Context(), old), fetch, "the credential of token:old expired at 2020-01-01T00:00:00Z"},
		{bearer(t.Context(), good, good), fetch, `2 values of "authorization"`},
		{bearer(t.Context(), ""), fetch, `not "Bearer TOKEN"`},
		{bearer(t.Context(), strings.Repeat("x", 17<<10)), fetch, "the token has 17408 bytes; the limit is 16384"},
		{bearer(t.Context(), good), stats, "token:good has the role collector; GetStats is for the role producer, operator, viewer or admin"},
		{bearer(t.Context(), good), "/waggle.v1.AdminService/Format", "no rule lets Format be called"},
	} {
		_, err := g.Admit(c.ctx, c.method)
		refusedBy(t, err, c.rule)
		if strings.Contains(fmt.Sprint(err), "wgl_") {
			t.Errorf("the error shows a token: %v", err)
		}
	}
	if caller, err := g.Admit(t.Context(), watch); caller != nil || err != nil {
		t.Errorf("a probe: %v, %v", caller, err)
	}
	var none *auth.Guard
	if caller, err := none.Admit(t.Context(), fetch); caller != nil || err != nil {
		t.Errorf("without a guard: %v, %v", caller, err)
	}
}

// TestGuard_revoked ends what lasts within a second of a change of the policy, and refuses new calls.
func TestGuard_revoked(t *testing.T) {
	t.Parallel()
	policy := fmt.Sprintf("tokens: [{name: a, sha256: %s}, {name: b, sha256: %s}]\ngrants: [{identity: token:*, role: collector}]",
		auth.HashToken("wgl_a"), auth.HashToken("wgl_b"))
	for what, c := range map[string]struct{ policy, rule string }{
		"the token is gone": {strings.Replace(policy, "{name: a, sha256: "+auth.HashToken("wgl_a")+"}, ", "", 1), "unknown, or was revoked"},
		"the role is gone":  {strings.Replace(policy, "token:*", "token:b", 1), "no grant is to token:a"},
		"the token expires": {strings.Replace(policy, "}, ", ", expires: "+time.Now().Add(-time.Second).Format(time.RFC3339)+"}, ", 1), "expired at"},
		"it is another's":   {strings.Replace(policy, "name: a", "name: c", 1), "the credential is now that of token:c"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, policy)
			contexts := make(map[string]context.Context)
			for _, token := range []string{"wgl_a", "wgl_b"} {
				caller, err := g.Admit(bearer(t.Context(), token), beat)
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := caller.Watch(t.Context())
				t.Cleanup(end)
				contexts[token] = ctx
			}
			began := time.Now()
			g.write(t, g.path, c.policy)
			ends(t, contexts["wgl_a"].Done())
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %v", took)
			}
			refusedBy(t, context.Cause(contexts["wgl_a"]), c.rule)
			if err := contexts["wgl_b"].Err(); err != nil {
				t.Errorf("the other one's ended, too: %v", context.Cause(contexts["wgl_b"]))
			}
		})
	}
}

// TestGuard_unusable keeps the last policy while the file cannot be used.
func TestGuard_unusable(t *testing.T) {
	t.Parallel()
	policy := fmt.Sprintf("tokens: [{name: a, sha256: %s}]\ngrants: [{identity: token:*, role: collector}]", auth.HashToken("wgl_a"))
	g := newGuard(t, policy)
	g.write(t, g.path, "grants: [{identity: token:a, role: boss}]")
	if err := os.Remove(g.path); err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(policy, auth.HashToken("wgl_a"), auth.HashToken("wgl_new"), 1)
	if _, err := g.Admit(bearer(t.Context(), "wgl_a"), fetch); err != nil {
		t.Error(err)
	}
	g.write(t, g.path, other)
	eventually(t, "the new token counts", func() bool {
		_, err := g.Admit(bearer(t.Context(), "wgl_new"), fetch)
		return err == nil
	})
	if _, err := auth.NewGuard(filepath.Join(t.TempDir(), "none"), zap.NewNop()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a guard without a file: %v", err)
	}
}

// TestCaller_expires ends what lasts when the token expires.
func TestCaller_expires(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(2 * time.Second).Truncate(time.Second)
	g := newGuard(t, fmt.Sprintf("tokens: [{name: a, sha256: %s, expires: %s}]\ngrants: [{identity: token:*, role: collector}]",
		auth.HashToken("wgl_a"), end.UTC().Format(time.RFC3339)))
	caller, err := g.Admit(bearer(t.Context(), "wgl_a"), beat)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := caller.Watch(t.Context())
	defer stop()
	ends(t, ctx.Done())
	refusedBy(t, context.Cause(ctx), "the credential of token:a has expired")
	if late := time.Since(end); late < 0 || late > time.Second {
		t.Errorf("it ended %v after its time", late)
	}
	refusedBy(t, caller.Check(), "expired at")
}

// signer signs tokens by a key that it has made.
type signer struct {
	key *ecdsa.PrivateKey
	id  string
}

func newSigner(t testing.TB, id string) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{key, id}
}

func (s *signer) token(t testing.TB, claims any) string {
	t.Helper()
	with, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: s.id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(with).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// keySet is what an issuer publishes of its keys.
func keySet(t testing.TB, signers ...*signer) string {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, s := range signers {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Algorithm: string(jose.ES256)})
	}
	content, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

type claims = map[string]any

func claimsOf(subject string, with claims) claims {
	c := claims{"iss": "https://login.example.org", "aud": []string{"waggle", "other"}, "sub": subject, "exp": time.Now().Add(time.Minute).Unix()}
	for name, value := range with {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

func TestGuard_jwt(t *testing.T) {
	t.Parallel()
	one, two := newSigner(t, "one"), newSigner(t, "two")
	keys := filepath.Join(t.TempDir(), "keys.json")
	new(guarded).write(t, keys, keySet(t, one))
	g := newGuard(t, "jwt: [{issuer: 'https://login.example.org', audience: waggle, keys_file: "+keys+"}]\ngrants: [{identity: 'jwt:crawl-*', role: collector}]")
	valid := one.token(t, claimsOf("crawl-1", nil))
	for range 2 { // the second one is cached
		if caller, err := g.Admit(bearer(t.Context(), valid), fetch); err != nil || caller.Identity != "jwt:crawl-1" {
			t.Fatalf("%+v, %v", caller, err)
		}
	}
	hmac, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(strings.Repeat("k", 32))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	symmetric, err := jwt.Signed(hmac).Claims(claimsOf("crawl-1", nil)).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	const none = "eyJhbGciOiJub25lIn0.e30." // {"alg":"none"}
	for token, rule := range map[string]string{
		two.token(t, claimsOf("crawl-1", nil)):                                                "no key of https://login.example.org has signed the JWT",
		one.token(t, claimsOf("crawl-1", claims{"exp": time.Now().Add(-time.Minute).Unix()})): "token is expired (exp)",
		one.token(t, claimsOf("crawl-1", claims{"exp": nil})):                                 `no "exp"`,
		one.token(t, claimsOf("crawl-1", claims{"nbf": time.Now().Add(time.Minute).Unix()})):  "not valid yet (nbf)",
		one.token(t, claimsOf("crawl-1", claims{"aud": "another"})):                           "invalid audience claim (aud)",
		one.token(t, claimsOf("crawl-1", claims{"iss": "https://evil.example"})):              `issuer "https://evil.example" of the JWT is not in the policy`,
		one.token(t, claimsOf("", nil)):                                                       `the "sub" of the JWT has 0 bytes`,
		one.token(t, claimsOf("alice", nil)):                                                  "no grant is to jwt:alice",
		valid[:len(valid)-6] + "AAAAAA":                                                       "no key of https://login.example.org has signed the JWT",
		symmetric:                                                                             "no JWT that is signed by a public key",
		none:                                                                                  "no JWT that is signed by a public key",
	} {
		_, err := g.Admit(bearer(t.Context(), token), fetch)
		refusedBy(t, err, rule)
		if strings.Contains(fmt.Sprint(err), token[:20]) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
	// The other key comes, then the first one goes: what it has signed is refused, though it was cached.
	g.write(t, keys, keySet(t, one, two))
	next := two.token(t, claimsOf("crawl-2", nil))
	eventually(t, "the new key counts", func() bool {
		_, err := g.Admit(bearer(t.Context(), next), fetch)
		return err == nil
	})
	caller, err := g.Admit(bearer(t.Context(), valid), beat)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := caller.Watch(t.Context())
	defer end()
	g.write(t, keys, keySet(t, two))
	ends(t, ctx.Done())
	refusedBy(t, context.Cause(ctx), "no key of")
}

// TestGuard_jwtDiscovered takes the keys from where the issuer says that they are, and again when a token has another.
func TestGuard_jwtDiscovered(t *testing.T) {
	t.Parallel()
	one, two := newSigner(t, "one"), newSigner(t, "two")
	var published atomic.Value
	published.Store(keySet(t, one))
	mux := http.NewServeMux()
	issuer := httptest.NewServer(mux)
	defer issuer.Close()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q}`, issuer.URL, issuer.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, published.Load()) })
	g := newGuard(t, "jwt: [{name: sso, issuer: '"+issuer.URL+"', audience: waggle}]\ngrants: [{identity: 'sso:*', role: collector}]")
	for _, s := range []*signer{one, two} {
		token := s.token(t, claimsOf("crawl-1", claims{"iss": issuer.URL}))
		eventually(t, "a token signed by "+s.id+" is valid", func() bool {
			caller, err := g.Admit(bearer(t.Context(), token), fetch)
			return err == nil && caller.Identity == "sso:crawl-1"
		})
		published.Store(keySet(t, two))
	}
}

// BenchmarkGuard_Admit is what a guard adds to a call, by what proves the caller.
func BenchmarkGuard_Admit(b *testing.B) {
	dir, one := b.TempDir(), newSigner(b, "one")
	new(guarded).write(b, filepath.Join(dir, "keys.json"), keySet(b, one))
	policy := filepath.Join(dir, "auth.yaml")
	new(guarded).write(b, policy, "tokens: [{name: a, sha256: "+auth.HashToken("wgl_a")+"}]\n"+
		"jwt: [{issuer: 'https://login.example.org', audience: waggle, keys_file: keys.json}]\ngrants: [{identity: '*', role: collector}]")
	g, err := auth.NewGuard(policy, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	jwt := one.token(b, claimsOf("crawl-1", nil))
	certified := peer.NewContext(b.Context(), &peer.Peer{AuthInfo: auth.NewCertified(&x509.Certificate{DNSNames: []string{"a.example"}, NotAfter: time.Now().Add(time.Hour)})})
	for _, c := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // of a call
	}{{"token", bearer(b.Context(), "wgl_a")}, {"jwt", bearer(b.Context(), jwt)}, {"certificate", certified}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Admit(c.ctx, fetch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestGuard_narrowed ends what lasts if its collector or pool is taken out of the grant, and moves its end with that of the token.
func TestGuard_narrowed(t *testing.T) {
	t.Parallel()
	const format = "tokens: [{name: a, sha256: %s%s}]\ngrants: [{identity: token:a, role: collector, collectors: [%s], pools: [%s]}]"
	policy := func(end, collectors, pools string) string {
		return fmt.Sprintf(format, auth.HashToken("wgl_a"), end, collectors, pools)
	}
	soon := ", expires: " + time.Now().Add(2*time.Second).UTC().Format(time.RFC3339)
	for what, c := range map[string]struct{ policy, rule string }{
		"collector": {policy("", "us-*", "news"), `collector_id "eu-1" is not of us-*`},
		"pool":      {policy("", "eu-*", "blogs"), `pool "news" is not of blogs`},
		"end":       {policy(soon, "eu-*", "news"), "the credential of token:a"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, policy("", "eu-*", "news"))
			caller, err := g.Admit(bearer(t.Context(), "wgl_a"), fetch)
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := caller.Watch(t.Context())
			defer end()
			if err := caller.Within(ctx, &pb.FetchTaskRequest{CollectorId: "eu-1", Pools: []string{"news"}}, kept{}); err != nil {
				t.Fatal(err)
			}
			g.write(t, g.path, c.policy)
			ends(t, ctx.Done())
			refusedBy(t, context.Cause(ctx), c.rule)
		})
	}
}

// TestGuard_halfWritten never goes by a file that is being written, nor by an empty one.
func TestGuard_halfWritten(t *testing.T) {
	t.Parallel()
	policy := fmt.Sprintf("tokens: [{name: a, sha256: %s}]\ngrants:\n- identity: token:a\n  role: operator\n", auth.HashToken("wgl_a"))
	const narrow = "  sources: [news.]\n"
	g := newGuard(t, policy+narrow)
	caller, err := g.Admit(bearer(t.Context(), "wgl_a"), pb.TaskService_CancelTasks_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // in place, as an editor or a shell does
		for _, content := range []string{"", policy, policy + narrow} {
			if err := os.WriteFile(g.path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if err := caller.Check(); err != nil {
					t.Fatal(err)
				}
				if err := caller.Within(t.Context(), &pb.CancelTasksRequest{Filter: &pb.Filter{All: true}}, kept{}); err == nil {
					t.Fatal("a half-written policy counts")
				}
				<-time.After(5 * time.Millisecond)
			}
		}
	}
	if err := os.WriteFile(g.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Second)
	if err := caller.Check(); err != nil {
		t.Fatal(err)
	}
	refusedBy(t, caller.Within(t.Context(), &pb.CancelTasksRequest{}, kept{}), "must name a source")
}
