package dispatcher_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/dispatcher"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/notify"
)

// node runs a dispatcher on a store, which posts findings to a URL, until stop is called, which waits for its end.
func node(t *testing.T, url, prefix, notices string) (n *dispatcher.Node, stop func()) {
	t.Helper()
	n, err := dispatcher.NewNode(server.Config{Listen: "127.0.0.1:0", HTTP: server.Off, DrainTimeout: time.Second}, nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Notify(notify.Config{URL: notices, After: time.Second, Gone: time.Second}); err != nil {
		t.Fatal(err)
	}
	var store dispatcher.StoreOptions
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	store.Register(flags)
	if err := flags.Parse([]string{"--store", url, "--prefix", prefix}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	if err := n.Server.Listen(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.RunOwned(ctx, &store); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return n, sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

// told is a message, and who was asked to send it.
type told struct {
	by   string
	Type string
	Data notify.Finding
}

// Of two dispatchers on one Redis the owner posts the begin of a finding; when it has stopped, the other one posts the end, and not the
// begin again.
func TestNode_Notify_takeover(t *testing.T) {
	t.Parallel()
	redis, prefix := shared.Server(t)
	messages := make(chan told, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		m := told{by: req.URL.Path}
		if err := json.NewDecoder(req.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		messages <- m
	}))
	defer receiver.Close()
	idle := func() told {
		t.Helper()
		for {
			select {
			case m := <-messages:
				if m.Data.Kind == "IDLE" {
					return m
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("nothing is told")
			}
		}
	}
	_, stopFirst := node(t, redis.URL(), prefix, receiver.URL+"/first")
	defer stopFirst()
	begin := idle()
	if begin.by != "/first" || begin.Type != "finding.began" {
		t.Fatalf("told: %+v", begin)
	}
	second, stopSecond := node(t, redis.URL(), prefix, receiver.URL+"/second")
	defer stopSecond()
	stopFirst()
	conn, err := grpc.NewClient(second.Server.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	// With a finding of its own nothing is idle.
	hold := &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Pool: "a"}}}
	if _, err := pb.NewHoldServiceClient(conn).SetHolds(t.Context(), hold, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if end := idle(); end.by != "/second" || end.Type != "finding.ended" || end.Data.ID != begin.Data.ID {
		t.Errorf("told: %+v after %+v", end, begin)
	}
}
