package peers

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const (
	frameHeader   = 9 // bytes (RFC 9113, section 4.1)
	messageHeader = 5 // bytes of a gRPC message: a flag and its length
)

// frames follows one direction of an HTTP/2 connection.
type frames struct {
	header [frameHeader]byte
	seen   int // bytes of the header
	left   int // bytes of the frame's payload that are to come
}

// next cuts the first part of p: bytes of a header, or of a payload. begins: the header of a frame is complete now.
func (f *frames) next(p []byte) (payload, rest []byte, begins bool) {
	if f.left > 0 {
		n := min(f.left, len(p))
		f.left -= n
		return p[:n], p[n:], false
	}
	n := copy(f.header[f.seen:], p)
	if f.seen += n; f.seen < frameHeader {
		return nil, p[n:], false
	}
	f.seen, f.left = 0, int(binary.BigEndian.Uint32(f.header[:])>>8)
	return nil, p[n:], true
}

func (f *frames) is(kind http2.FrameType) bool { return http2.FrameType(f.header[3]) == kind }
func (f *frames) has(flag http2.Flags) bool    { return http2.Flags(f.header[4]).Has(flag) }
func (f *frames) stream() uint32               { return binary.BigEndian.Uint32(f.header[5:]) & (1<<31 - 1) }

// halfCloses reports whether nothing comes on the stream after the frame.
func (f *frames) halfCloses() bool {
	return (f.is(http2.FrameData) || f.is(http2.FrameHeaders)) && f.has(http2.FlagDataEndStream) // the same bit in both
}

// received follows what the peer sends, at most to the end of a frame of headers, and returns how much that is.
func (c *Conn) received(p []byte) int {
	size := len(p)
	if n := min(len(http2.ClientPreface)-c.preface, len(p)); n > 0 {
		c.preface, p = c.preface+n, p[n:]
	}
	for len(p) > 0 {
		var payload []byte
		var begins bool
		payload, p, begins = c.in.next(p)
		if begins && c.in.is(http2.FrameHeaders) {
			c.entering = c.in.stream()
			c.open(c.entering)
		}
		if c.in.is(http2.FrameData) && len(payload) > 0 {
			padded := c.in.has(http2.FlagDataPadded)
			c.change(c.in.stream(), func(s *stream) { s.add(payload, padded) })
		}
		if c.in.is(http2.FrameRSTStream) {
			for _, b := range payload {
				c.code = c.code<<8 | uint32(b)
			}
		}
		if !begins && len(payload) == 0 || c.in.left > 0 {
			continue // the frame is not complete
		}
		switch {
		case c.in.is(http2.FrameHeaders) || c.in.is(http2.FrameContinuation):
			return size - len(p)
		case c.in.is(http2.FrameRSTStream):
			c.end(c.in.stream(), true)
			if http2.ErrCode(c.code) == http2.ErrCodeCancel {
				c.canceled(c.in.stream())
			}
		}
	}
	return size
}

// sent follows what the server sends.
func (c *Conn) sent(p []byte) {
	for len(p) > 0 {
		var begins bool
		_, p, begins = c.out.next(p)
		switch {
		case !begins:
		case c.out.is(http2.FrameRSTStream) || c.out.halfCloses():
			c.end(c.out.stream(), c.out.is(http2.FrameRSTStream))
		case c.out.is(http2.FrameData):
			c.sentOf(c.out.stream(), c.out.left)
		}
	}
}

// stream is what came on an open stream, in bytes.
type stream struct {
	header [messageHeader]byte // of the message that comes
	part   int                 // of a message that is not complete, with its header
	whole  int                 // of complete messages without an answer
	padded bool                // messages are not followed any more: no client of gRPC pads
	lost   func()              // of [OnLost]; nil: there is none
}

func (s *stream) add(payload []byte, padded bool) {
	if s.padded = s.padded || padded; s.padded {
		s.part += len(payload)
		return
	}
	for len(payload) > 0 {
		n := min(s.missing(), len(payload))
		if s.part < messageHeader {
			copy(s.header[s.part:], payload[:n])
		}
		s.part, payload = s.part+n, payload[n:]
		if s.part >= messageHeader && s.missing() == 0 {
			s.part, s.whole = 0, s.whole+s.part
		}
	}
}

// missing is how many bytes of the message are to come, those of the header first.
func (s *stream) missing() int {
	if s.part < messageHeader {
		return messageHeader - s.part
	}
	return messageHeader + int(binary.BigEndian.Uint32(s.header[1:])) - s.part
}
