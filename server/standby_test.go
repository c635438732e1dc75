package server_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/server"
)

// feeding are two dispatchers of which the second one opens a stream to the first, which serves it by feed.
func feeding(t *testing.T, feed func(context.Context, server.FeedStream) error) (standby *server.Server, owner server.Owner) {
	t.Helper()
	g := newGroup(t, 2, server.Config{Feed: feed})
	return g.members[1].server, server.Owner{Name: "d1", Address: g.members[0].server.Address(), Epoch: 1}
}

// Each message arrives, in order, also when many come at once; and then the end.
func TestStandBy_messages(t *testing.T) {
	t.Parallel()
	const messages = 20_000
	standby, owner := feeding(t, func(_ context.Context, stream server.FeedStream) error {
		hello, err := stream.Receive()
		if err != nil || string(hello) != "hello" {
			t.Errorf("the owner receives %q, %v", hello, err)
		}
		for n := range messages {
			if err := stream.Send(binary.LittleEndian.AppendUint64(nil, uint64(n))); err != nil {
				return err
			}
		}
		return errors.New("the feed is over")
	})
	stream, err := standby.StandBy(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	for n := range messages {
		message, err := stream.Receive()
		if err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
		if got := binary.LittleEndian.Uint64(message); got != uint64(n) {
			t.Fatalf("message %d is %d", n, got)
		}
	}
	for range 2 {
		if message, err := stream.Receive(); err == nil {
			t.Errorf("after the end there is %q", message)
		}
	}
}

// The stream ends on both sides with the standby's context.
func TestStandBy_canceled(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan struct{}), make(chan error, 1)
	standby, owner := feeding(t, func(ctx context.Context, stream server.FeedStream) error {
		close(begun)
		_, err := stream.Receive()
		ended <- err
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := standby.StandBy(ctx, owner)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	cancel()
	if _, err := stream.Receive(); err == nil {
		t.Error("the standby receives after its end")
	}
	if err := <-ended; err == nil {
		t.Error("the owner receives after the end of the standby")
	}
}

// The end of the owner's server ends the stream.
func TestStandBy_drained(t *testing.T) {
	t.Parallel()
	feed := func(ctx context.Context, _ server.FeedStream) error { <-ctx.Done(); return ctx.Err() }
	g := newGroup(t, 2, server.Config{Feed: feed})
	stream, err := g.members[1].server.StandBy(t.Context(), server.Owner{Address: g.members[0].server.Address(), Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	g.members[0].stop()
	if _, err := stream.Receive(); err == nil {
		t.Error("the standby receives after the end of the owner")
	}
}

// Who does not own the store, or does not know its secret, feeds nobody.
func TestStandBy_refused(t *testing.T) {
	t.Parallel()
	standby, owner := feeding(t, nil)
	stream, err := standby.StandBy(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	if message, err := stream.Receive(); err == nil {
		t.Errorf("a dispatcher without a feed sends %q", message)
	}
	standby.Trust([]byte("another secret"))
	if _, err := standby.StandBy(t.Context(), owner); err == nil {
		t.Error("a stream is open to an owner of another store")
	}
}

// TestStandBy_notReached: a dispatcher that the owner does not reach at its address does not become the standby.
func TestStandBy_notReached(t *testing.T) {
	t.Parallel()
	fed := make(chan struct{}, 1)
	g := newGroup(t, 2, server.Config{Feed: func(context.Context, server.FeedStream) error { fed <- struct{}{}; return nil }})
	standby, owner := g.members[1].server, server.Owner{Name: "d1", Address: g.members[0].server.Address(), Epoch: 1}
	standby.AdvertiseForTest("127.0.0.1:1")
	stream, err := standby.StandBy(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Receive(); err == nil || !strings.Contains(err.Error(), "does not reach") {
		t.Errorf("a standby that is not reached gets %v", err)
	}
	if len(fed) > 0 {
		t.Error("it is fed")
	}
}

func TestServer_Refuses(t *testing.T) {
	t.Parallel()
	standby, owner := feeding(t, nil)
	if standby.Refuses(t.Context(), owner) {
		t.Error("the port of a dispatcher that runs refuses a connection")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := server.Owner{Address: listener.Addr().String()}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for what, address := range map[string]string{"a closed port": closed.Address, "a socket that is gone": "unix:" + filepath.Join(t.TempDir(), "s")} {
		if !standby.Refuses(t.Context(), server.Owner{Address: address}) {
			t.Errorf("%s does not refuse", what)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if standby.Refuses(ctx, closed) {
		t.Error("a port that was not asked refuses")
	}
}
