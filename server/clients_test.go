package server_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// TestClients_refused holds that a client that is too old, or names itself wrongly, is refused in every kind of call before
// anything is done, and that all others are served and shown.
func TestClients_refused(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	for client, reason := range map[string]string{
		"waggle-go/0.1.0": "", "waggle-go/v0.1.0-rc.1": "", "waggle-python/0.1.0.dev3": "", "waggle-typescript/0.10": "", "waggle-go/1.0.0+dirty": "",
		"my-crawler/0.0.1": "", "my-crawler/f3a9": "", "": "",
		"waggle-go/0.0.9": "CLIENT_TOO_OLD", "waggle-python/0.0": "CLIENT_TOO_OLD", "waggle-typescript/v0": "CLIENT_TOO_OLD",
		"waggle-go": "INVALID_FIELD", "waggle-go/": "INVALID_FIELD", "waggle-go/devel": "INVALID_FIELD", "/1.0": "INVALID_FIELD", "a/b/1.0": "INVALID_FIELD",
		"Waggle Go/1.0": "INVALID_FIELD", "a/" + strings.Repeat("1", 65): "INVALID_FIELD",
	} {
		ctx := t.Context()
		if client != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "waggle-client", client)
		}
		collector := &pb.CollectorInfo{Id: "c1", Session: "s1"}
		_, unary := b.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{Collector: collector})
		stream, err := b.dispatch.Heartbeat(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&pb.HeartbeatRequest{Collector: collector}); err != nil && reason == "" {
			t.Fatal(err)
		}
		_, streamed := stream.Recv()
		_, operators := b.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: []string{"nothing"}})
		for call, err := range map[string]error{"a unary call": unary, "a stream": streamed, "an operator's call": operators} {
			if reason == "" {
				if err != nil {
					t.Errorf("%q in %s: %v", client, call, err)
				}
				continue
			}
			code := map[string]codes.Code{"CLIENT_TOO_OLD": codes.FailedPrecondition, "INVALID_FIELD": codes.InvalidArgument}[reason]
			f := wantFault(t, err, code, reason)
			if !strings.Contains(f.message, "waggle-client") && !strings.Contains(f.message, client) {
				t.Errorf("%q in %s: message %q", client, call, f.message)
			}
			if m := f.metadata; reason == "CLIENT_TOO_OLD" && (m["client"] != client || m["oldest_version"] != "0.1.0" || !strings.HasSuffix(m["link"], "#22-clients")) {
				t.Errorf("%q in %s: metadata %v", client, call, m)
			}
			if reason == "INVALID_FIELD" && f.metadata["field"] != "waggle-client" {
				t.Errorf("%q in %s: metadata %v", client, call, f.metadata)
			}
		}
		listed, err := b.admin.ListCollectors(t.Context(), &pb.ListCollectorsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range listed.GetCollectors() {
			if reason == "" && c.GetClient() != client || reason != "" && c.GetClient() == client {
				t.Errorf("%q is listed as %q", client, c.GetClient())
			}
		}
		if reason == "" && len(listed.GetCollectors()) != 1 {
			t.Errorf("%q is not listed", client)
		}
	}
	two := metadata.AppendToOutgoingContext(t.Context(), "waggle-client", "waggle-go/1.0.0", "waggle-client", "waggle-go/0.0.1")
	_, err := b.admin.GetStats(two, &pb.GetStatsRequest{})
	wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
}

// TestClients_table holds that proto/README.md has the table of the clients that are served, and the section that refusals link
// to.
func TestClients_table(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../proto/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## 22. Clients\n")
	if want := server.ClientTable(server.OldestClients()); !found || !strings.Contains(section, "\n"+want) {
		t.Errorf("proto/README.md should have in section 22, Clients:\n%s", want)
	}
	got := server.ClientTable([]server.OldestClient{
		server.NewOldestClient("a", "0.2.0", "0.1.5"), server.NewOldestClient("b", "0.10.0", "1.0.0"), server.NewOldestClient("a", "1.0.0", "0.2.0"),
	})
	if want := `| client | dispatcher 0.2.0 and later | dispatcher 0.10.0 and later | dispatcher 1.0.0 and later |
|---|---|---|---|
| ` + "`a`" + ` | 0.1.5 and later | 0.1.5 and later | 0.2.0 and later |
| ` + "`b`" + ` | all | 1.0.0 and later | 1.0.0 and later |
`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
