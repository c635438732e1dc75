package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/relay"
	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
)

// stranger opens a stream for passed calls to a member.
func stranger(t *testing.T, m *member) relaypb.RelayService_PassClient {
	t.Helper()
	stream, err := relaypb.NewRelayServiceClient(m.conn).Pass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func hello(t *testing.T, stream relaypb.RelayService_PassClient, version uint32) (*relaypb.PassResponse, error) {
	t.Helper()
	hello := &relaypb.Hello{Version: version, Sender: "a stranger", Nonce: make([]byte, 32)}
	if err := stream.Send(&relaypb.PassRequest{Item: &relaypb.PassRequest_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	return stream.Recv()
}

// Who does not know the secret passes no calls, whatever it sends.
func TestPass_strangers(t *testing.T) {
	t.Parallel()
	m := newGroup(t, 1, server.Config{}).members[0]
	t.Run("without hello", func(t *testing.T) {
		t.Parallel()
		stream := stranger(t, m)
		call := &relaypb.Call{Id: 1, Method: pb.SourceService_ListSources_FullMethodName}
		if err := stream.Send(&relaypb.PassRequest{Item: &relaypb.PassRequest_Call{Call: call}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("got %v", err)
		}
	})
	t.Run("with a wrong proof", func(t *testing.T) {
		t.Parallel()
		stream := stranger(t, m)
		challenge, err := hello(t, stream, relay.Version)
		if err != nil {
			t.Fatal(err)
		}
		// What the owner has proved proves nothing for another side.
		proof := &relaypb.Proof{Proof: challenge.GetChallenge().GetProof()}
		if err := stream.Send(&relaypb.PassRequest{Item: &relaypb.PassRequest_Proof{Proof: proof}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("got %v", err)
		}
	})
	t.Run("of another version", func(t *testing.T) {
		t.Parallel()
		_, err := hello(t, stranger(t, m), relay.Version+1)
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "version 2 of the protocol; this dispatcher has version 1") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("at a dispatcher without a secret", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, server.Config{})
		stream, err := relaypb.NewRelayServiceClient(b.conn).Pass(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hello(t, stream, relay.Version); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("got %v", err)
		}
	})
}

// A dispatcher that has another secret passes nothing, and is not ready.
func TestPass_wrongSecret(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	g.members[1].server.Trust([]byte("of another store"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := g.members[1].sources.ListSources(ctx, &pb.ListSourcesRequest{})
		ended <- err
	}()
	eventually(t, "it is said why", func() bool { return strings.Contains(g.members[1].ready(t), "who answers at") })
	wantFault(t, <-ended, codes.Unavailable, "STORE_UNAVAILABLE")
	g.members[1].server.Trust(secret)
	if _, err := g.members[1].sources.ListSources(t.Context(), &pb.ListSourcesRequest{}); err != nil {
		t.Errorf("with the right one: %v", err)
	}
}

// Who may not call any more is ended within a second, also a fetch that is parked at the owner.
func TestPass_revoked(t *testing.T) {
	t.Parallel()
	token := fmt.Sprintf("tokens: [{name: a, sha256: %s}]\n", auth.HashToken("wgl_a"))
	path := put(t, t.TempDir()+"/auth.yaml", token+"grants: [{identity: 'token:a', role: collector}]\n")
	g := newGroup(t, 2, server.Config{PolicyFile: path})
	ctx := as(t.Context(), "a")
	stream, err := g.members[1].dispatch.Heartbeat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, stream, beatOf())
	ended := g.members[1].park(ctx)
	g.members[0].parked(t, 1)
	put(t, path, token+"grants: [{identity: 'token:a', role: collector, pools: [other]}]\n")
	if got := <-ended; status.Code(got.err) != codes.PermissionDenied {
		t.Errorf("the fetch ended with %v", got)
	}
	g.members[0].parked(t, 0)
	put(t, path, token)
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v", err)
	}
}

// The service of dispatchers is not of the API: reflection does not show it.
func TestPass_notShown(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{Reflection: true})
	for _, name := range b.server.ServiceNames() {
		if strings.Contains(name, "relay") {
			t.Errorf("%s is shown", name)
		}
	}
}

// Over TLS dispatchers know each other by the secret and their connection, whoever has signed their certificates.
func TestPass_tls(t *testing.T) {
	t.Parallel()
	cert, key, pool := keyPair(t)
	g := newGroup(t, 2, server.Config{TLSCertFile: cert, TLSKeyFile: key})
	conn, err := grpc.NewClient(g.members[1].server.Address(), grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(pool, "")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := pb.NewSourceServiceClient(conn).ListSources(t.Context(), &pb.ListSourcesRequest{}); err != nil {
		t.Errorf("passed over TLS: %v", err)
	}
	plain, err := grpc.NewClient(g.members[1].server.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	if _, err := pb.NewSourceServiceClient(plain).ListSources(t.Context(), &pb.ListSourcesRequest{}); err == nil {
		t.Error("a call without TLS was served")
	}
}
