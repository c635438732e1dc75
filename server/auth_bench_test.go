package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/auth"
)

// BenchmarkAuth is what a unary call costs, with the client's share, by what proves the caller: nothing, a token, a JWT that
// was seen before; and with TLS on a connection that is kept, nothing or a client certificate.
func BenchmarkAuth(b *testing.B) {
	dir, key, ca := b.TempDir(), newKey(b), newAuthority(b)
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: string(jose.ES256)}}})
	if err != nil {
		b.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	signed, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: "bench", Audience: jwt.Audience{"waggle"}, Subject: "crawler", Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).Serialize()
	if err != nil {
		b.Fatal(err)
	}
	token, hash := auth.NewToken()
	policy := fmt.Sprintf("tokens: [{name: a, sha256: %s}]\njwt: [{issuer: bench, audience: waggle, keys_file: %s}]\n"+
		"grants: [{identity: 'token:*', role: collector}, {identity: 'jwt:*', role: collector}, {identity: 'spiffe://*', role: collector}, {identity: 'dns:*', role: collector}]",
		hash, put(b, filepath.Join(dir, "keys.json"), string(keys)))
	open := onNetwork(b, server.Config{HTTP: server.Off})
	guarded := onNetwork(b, server.Config{HTTP: server.Off, PolicyFile: put(b, filepath.Join(dir, "auth.yaml"), policy)})
	tlsOnly, _ := withTLS(b, ca, policy)
	plain := func(n *network) *grpc.ClientConn { return n.connectBy(b, n.Address(), insecure.NewCredentials()) }
	bearer := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(b.Context(), "authorization", "Bearer "+token)
	}
	for _, c := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // of the calls
		conn *grpc.ClientConn
	}{
		{"none", b.Context(), plain(open)},
		{"token", bearer(token), plain(guarded)},
		{"jwt", bearer(signed), plain(guarded)},
		{"tls and token", bearer(token), tlsOnly.connect(b, ca, tls.Certificate{})},
		{"mtls", b.Context(), tlsOnly.connect(b, ca, ca.issue(b, time.Hour, "spiffe://example.org/crawler"))},
	} {
		id := "c-" + c.name[:2]
		b.Run(c.name, func(b *testing.B) {
			calls := pb.NewDispatchServiceClient(c.conn)
			request := &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: id, Session: "s"}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := calls.RenewLease(c.ctx, request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
