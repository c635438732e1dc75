package server_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/server"
)

// frames counts what goes one way of an HTTP/2 connection, by frame type.
type frames struct {
	head  []byte // of the frame that comes, as far as it has come
	skip  int    // bytes until the next frame
	types [256]atomic.Int64
}

// frameHeader is the length of a frame's header (RFC 9113, section 4.1).
const frameHeader = 9

func (f *frames) saw(p []byte) {
	for len(p) > 0 {
		if n := min(f.skip, len(p)); n > 0 {
			f.skip, p = f.skip-n, p[n:]
			continue
		}
		n := min(frameHeader-len(f.head), len(p))
		f.head, p = append(f.head, p[:n]...), p[n:]
		if len(f.head) < frameHeader {
			return
		}
		f.types[f.head[3]].Add(1)
		f.skip = int(binary.BigEndian.Uint32(f.head) >> 8)
		f.head = f.head[:0]
	}
}

// tapped is a client's connection, of which frames are counted.
type tapped struct {
	net.Conn

	sent, received frames
}

func tap(conn net.Conn) *tapped {
	return &tapped{Conn: conn, sent: frames{skip: len(http2.ClientPreface)}}
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.saw(p[:n])
	return n, err
}

func (c *tapped) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.saw(p[:n])
	return n, err
}

// Neither a collector nor the dispatcher pings for what it receives, as grpc-go does to
// estimate how much the other may send ahead.
func TestServer_pingsForNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	const tasks = 50
	for i := range tasks {
		b.submit(t, "news", fmt.Sprintf("https://host-%d.example/", i))
	}
	conns := make(chan *tapped, 10)
	c, err := collector.New(collector.Config{
		Targets: []string{"passthrough:///bufconn"}, ID: "c1", Slots: 1,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
			conn, err := b.dial(ctx, target)
			if err != nil {
				return nil, err
			}
			tapped := tap(conn)
			conns <- tapped
			return tapped, nil
		}), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour})}, // none of those pings, however slow this is
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var done int
	err = c.Run(ctx, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		if done++; done == tasks {
			stop()
		}
		return collector.Succeeded{}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	close(conns)
	var messages, pings int64
	for conn := range conns {
		for _, way := range []*frames{&conn.sent, &conn.received} {
			messages += way.types[http2.FrameData].Load()
			pings += way.types[http2.FramePing].Load()
		}
	}
	if messages < 2*tasks || pings > 0 {
		t.Errorf("%d pings among %d messages, want none among %d or more", pings, messages, 2*tasks)
	}
}
