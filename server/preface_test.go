package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// A connection that never ends its handshake is closed.
func TestServer_handshakeTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		conn, err := b.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		if _, err := conn.Write([]byte(http2.ClientPreface)[:9]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("the connection ended with %v, want an orderly end", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the connection was closed after %v, want 10s", took)
		}
	})
}

// newFramer begins HTTP/2 on a connection.
func newFramer(t *testing.T, conn net.Conn) *http2.Framer {
	t.Helper()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return framer
}

// callHeaders writes the headers of a call; the encoder takes more.
func callHeaders(t *testing.T, block *bytes.Buffer, method string) *hpack.Encoder {
	t.Helper()
	encoder := hpack.NewEncoder(block)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: "test"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	} {
		if err := encoder.WriteField(field); err != nil {
			t.Fatal(err)
		}
	}
	return encoder
}

// sendHeaders begins a call with metadata of so many bytes, on a connection of its own that
// heeds no limit of the server, and answers how the server ended it: by a reset, or by headers.
func sendHeaders(t *testing.T, b *bed, size int) (reset bool, announced uint32) {
	t.Helper()
	conn, err := b.dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	framer := newFramer(t, conn)
	var block bytes.Buffer
	encoder := callHeaders(t, &block, pb.AdminService_GetStats_FullMethodName)
	for i := 0; size > 0; i++ {
		n := min(size, 1<<10)
		if err := encoder.WriteField(hpack.HeaderField{Name: fmt.Sprintf("x-%d", i), Value: strings.Repeat("v", n)}); err != nil {
			t.Fatal(err)
		}
		size -= n
	}
	const most = 16 << 10 // of a frame
	first := block.Next(min(block.Len(), most))
	err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first, EndHeaders: block.Len() == 0})
	for err == nil && block.Len() > 0 {
		part := block.Next(min(block.Len(), most))
		err = framer.WriteContinuation(1, block.Len() == 0, part)
	}
	if err == nil {
		err = framer.WriteData(1, true, make([]byte, 5)) // an empty message
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("the connection ended: %v", errors.Join(err, framer.ErrorDetail()))
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if limit, ok := f.Value(http2.SettingMaxHeaderListSize); ok {
				announced = limit
			}
		case *http2.RSTStreamFrame:
			return true, announced
		case *http2.HeadersFrame:
			return false, announced
		}
	}
}

// Headers of more than 64 KiB are refused.
func TestServer_headerBytes(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for size, want := range map[int]bool{32 << 10: false, 70 << 10: true} {
		if reset, announced := sendHeaders(t, b, size); reset != want || announced != 64<<10 {
			t.Errorf("a call with %d bytes of headers is reset: %v, with a limit of %d announced; want %v, %d", size, reset, announced, want, 64<<10)
		}
	}
}
