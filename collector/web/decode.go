package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

const (
	// acceptEncoding is what decoded undoes.
	acceptEncoding = "gzip, br, zstd"

	// maxCodings bounds how often a body is packed in one another.
	maxCodings = 2

	// maxPresized is the most room, in bytes, that is made for a body before it comes.
	maxPresized = 1 << 20

	// ratioFloor is how much a body may become, however small it came.
	ratioFloor = 1 << 20

	// zstdMaxWindow is what RFC 9659 lets a body ask of its reader.
	zstdMaxWindow = 8 << 20
)

var (
	errTooLarge      = errors.New("body too large")
	errContentCoding = errors.New("content coding")
)

// bodyLimits bound a body: its bytes, over the wire and after each coding is undone, and how many times more than it came
// with it may become.
type bodyLimits struct {
	bytes int64
	ratio int64

	truncate bool // cut what is over a limit instead of failing
}

// readBody reads and decompresses a body.
func readBody(response *http.Response, limits bodyLimits) ([]byte, error) {
	if response.StatusCode == http.StatusNotModified || response.StatusCode == http.StatusNoContent {
		return []byte{}, nil
	}
	if response.ContentLength > limits.bytes && !limits.truncate {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", errTooLarge, response.ContentLength, limits.bytes)
	}
	wire := &limitedReader{r: response.Body, left: limits.bytes, limit: limits.bytes}
	var body []byte
	var err error
	if list := codings(response.Header); len(list) == 0 {
		body, err = readSized(wire, response.ContentLength)
	} else {
		body, err = readDecoded(wire, list, limits)
	}
	switch {
	case err == nil:
		return body, nil
	case errors.Is(err, errTooLarge) && limits.truncate:
		return body, nil
	case errors.Is(err, errTooLarge) || errors.Is(err, errContentCoding):
		return nil, err
	case wire.err != nil || errors.Is(err, io.ErrUnexpectedEOF): // broken off, or ended before what it packs did
		return nil, fmt.Errorf("read body: %w", err)
	}
	return nil, fmt.Errorf("%w: %w", errContentCoding, err)
}

// DecodeBody undoes the content coding that header tells of the body that r has, as the body of an Exchange. It fails when
// the coding is not one that the Handler asks for, and when there is more than limit, in bytes, before or after.
func DecodeBody(header http.Header, r io.Reader, limit int64) ([]byte, error) {
	wire := &limitedReader{r: r, left: limit, limit: limit}
	return readDecoded(wire, codings(header), bodyLimits{bytes: limit, ratio: limit})
}

// readSized reads everything from r, which is said to have length bytes; negative: it is not known. Room for them is made
// at once, but for no more than is worth taking a server's word.
func readSized(r io.Reader, length int64) ([]byte, error) {
	room := min(max(length, 0), maxPresized) + bytes.MinRead
	body := bytes.NewBuffer(make([]byte, 0, room))
	_, err := body.ReadFrom(r)
	return body.Bytes(), err
}

// codings are those of a Content-Encoding header, in the order in which they were applied.
func codings(header http.Header) []string {
	var list []string
	for coding := range strings.SplitSeq(strings.Join(header.Values("Content-Encoding"), ","), ",") {
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding != "" && coding != "identity" {
			list = append(list, coding)
		}
	}
	return list
}

// readDecoded undoes the codings of what wire has, the last one first. Beside an error it returns what it read until
// then.
func readDecoded(wire io.Reader, list []string, limits bodyLimits) ([]byte, error) {
	if len(list) == 0 {
		return io.ReadAll(wire)
	}
	if len(list) > maxCodings {
		return nil, fmt.Errorf("%w: %d of them, limit %d", errContentCoding, len(list), maxCodings)
	}
	packed := bufio.NewReader(wire)
	if _, err := packed.Peek(1); errors.Is(err, io.EOF) {
		return []byte{}, nil // no body has nothing to undo
	}
	last := len(list) - 1
	plain, closeDecoder, err := decoder(list[last], &countingReader{r: packed}, limits)
	if err != nil {
		return nil, err
	}
	defer closeDecoder()
	return readDecoded(plain, list[:last], limits)
}

// decoder undoes one coding, within the limits.
func decoder(coding string, packed *countingReader, limits bodyLimits) (io.Reader, func(), error) {
	var plain io.Reader
	closeDecoder := func() {}
	switch coding {
	case "gzip", "x-gzip":
		unzip, err := gzip.NewReader(packed)
		if err != nil {
			return nil, nil, err
		}
		plain = unzip
	case "br":
		plain = brotli.NewReader(packed)
	case "zstd":
		// One at a time, it needs no goroutines.
		unzstd, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdMaxWindow))
		if err != nil {
			return nil, nil, err
		}
		plain, closeDecoder = unzstd, unzstd.Close
	default:
		return nil, nil, fmt.Errorf("%w %q: asked for %s", errContentCoding, coding, acceptEncoding)
	}
	grown := &ratioReader{r: plain, packed: packed, ratio: limits.ratio}
	return &limitedReader{r: grown, left: limits.bytes, limit: limits.bytes}, closeDecoder, nil
}

// limitedReader fails, where io.LimitedReader ends, when there is more to read than the limit.
type limitedReader struct {
	r           io.Reader
	left, limit int64
	err         error // what ended it, if not io.EOF
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		n--
		err = fmt.Errorf("%w: limit %d bytes", errTooLarge, l.limit)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}

// countingReader counts what was read. What a decoder buffers counts as read.
type countingReader struct {
	r *bufio.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// ReadByte spares decoders a buffer of their own.
func (c *countingReader) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// ratioReader fails when what it reads is too many times what it was packed into.
type ratioReader struct {
	r      io.Reader
	packed *countingReader
	ratio  int64
	n      int64
}

func (r *ratioReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.n += int64(n); r.n > ratioFloor && r.n/r.ratio > r.packed.n {
		return 0, fmt.Errorf("%w: over %d times its %d compressed bytes", errTooLarge, r.ratio, r.packed.n)
	}
	return n, err
}
