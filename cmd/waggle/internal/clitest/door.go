package clitest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Door is a server that notes how callers prove who they are. It answers GetStats, unless it refuses everybody.
type Door struct {
	pb.UnimplementedAdminServiceServer
	pb.UnimplementedDispatchServiceServer

	Address string // where it listens
	PKI     string // the directory of the authority that it trusts
	refusal error

	mu     sync.Mutex // guards the rest
	tokens []string   // the values of authorization, for each call
	names  []string   // of the certificates
}

// GetStats answers.
func (d *Door) GetStats(context.Context, *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	return &pb.GetStatsResponse{}, nil
}

func (d *Door) note(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	name := ""
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			name = info.State.PeerCertificates[0].DNSNames[0]
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tokens, d.names = append(d.tokens, strings.Join(md.Get("authorization"), ",")), append(d.names, name)
	return d.refusal
}

// Last is how the last caller proved who it is.
func (d *Door) Last(t *testing.T) (token, name string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.tokens) == 0 {
		t.Fatal("nobody has called")
	}
	return d.tokens[len(d.tokens)-1], d.names[len(d.names)-1]
}

// OpenDoor serves TLS on a loopback address.
func OpenDoor(t *testing.T, refusal error) *Door {
	t.Helper()
	d := &Door{refusal: refusal, PKI: AuthorityIn(t)}
	MustRun(t, "cert", "server", d.PKI, "127.0.0.1")
	pair, err := tls.LoadX509KeyPair(filepath.Join(d.PKI, "server.pem"), filepath.Join(d.PKI, "server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(ReadFile(t, d.CA())))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.Address = listener.Addr().String()
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.VerifyClientCertIfGiven,
		})),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := d.note(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.StreamInterceptor(func(_ any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
			return d.note(stream.Context())
		}),
	)
	pb.RegisterAdminServiceServer(server, d)
	pb.RegisterDispatchServiceServer(server, d)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return d
}

// CA is the file of the authority that it trusts.
func (d *Door) CA() string { return filepath.Join(d.PKI, "ca.pem") }

// Env is an environment whose only lack is a credential.
func (d *Door) Env() map[string]string {
	return map[string]string{"WAGGLE_SERVER": d.Address, "WAGGLE_TLS_CA": d.CA()}
}

// AuthorityIn makes an authority in a new directory.
func AuthorityIn(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "pki")
	MustRun(t, "cert", "ca", dir)
	return dir
}

// Party is one side of a TLS connection, with the files it reads.
type Party struct {
	CA, Cert, Key string // paths
}

// PartyIn is the party of a name in a directory.
func PartyIn(dir, name string) Party {
	return Party{filepath.Join(dir, "ca.pem"), filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")}
}
