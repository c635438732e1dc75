package web

import (
	"bufio"
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

	// maxCodings bounds how many codings a body may have.
	maxCodings = 2

	// ratioFloor is the size that every body may reach, whatever its ratio.
	ratioFloor = 1 << 20

	// zstdMaxWindow is the limit of RFC 9659.
	zstdMaxWindow = 8 << 20
)

var (
	errTooLarge      = errors.New("body too large")
	errContentCoding = errors.New("content coding")
)

// bodyLimits bound a body: its bytes, over the wire and after each coding is undone, and the ratio of both.
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
	wire := &meter{r: response.Body, limits: limits}
	body, err := readDecoded(wire, codings(response.Header))
	switch {
	case err == nil, errors.Is(err, errTooLarge) && limits.truncate:
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
	return readDecoded(&meter{r: r, limits: bodyLimits{bytes: limit, ratio: limit}}, codings(header))
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

// readDecoded undoes the codings of what wire has, the last one first, within the limits of wire. Beside an error it returns
// what it read until then.
func readDecoded(wire *meter, list []string) ([]byte, error) {
	if len(list) == 0 {
		return io.ReadAll(wire)
	}
	if len(list) > maxCodings {
		return nil, fmt.Errorf("%w: %d of them, limit %d", errContentCoding, len(list), maxCodings)
	}
	packed := bufio.NewReader(wire)
	if _, err := packed.Peek(1); errors.Is(err, io.EOF) {
		return []byte{}, nil // an empty body needs no decoding
	}
	last := len(list) - 1
	plain, err := decoder(list[last], packed)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	return readDecoded(&meter{r: plain, limits: wire.limits, packed: wire}, list[:last])
}

// decoder undoes one coding.
func decoder(coding string, packed io.Reader) (io.ReadCloser, error) {
	switch coding {
	case "gzip", "x-gzip":
		return gzip.NewReader(packed)
	case "br":
		return io.NopCloser(brotli.NewReader(packed)), nil
	case "zstd":
		// With a concurrency of 1 it needs no goroutines.
		unzstd, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdMaxWindow))
		if err != nil {
			return nil, err
		}
		return unzstd.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("%w %q: asked for %s", errContentCoding, coding, acceptEncoding)
}

// meter counts what is read through it, and fails when that is over a limit. What a decoder buffers counts as read.
type meter struct {
	r      io.Reader
	limits bodyLimits
	packed *meter // what r decodes; nil: r decodes nothing
	n      int64
	err    error // what ended it, if not io.EOF
}

func (m *meter) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	n, err := m.r.Read(p[:min(int64(len(p)), m.limits.bytes-m.n+1)])
	m.n += int64(n)
	switch {
	case m.n > m.limits.bytes:
		n, err = n-1, fmt.Errorf("%w: limit %d bytes", errTooLarge, m.limits.bytes)
	case m.packed != nil && m.n > ratioFloor && m.n/m.limits.ratio > m.packed.n:
		n, err = 0, fmt.Errorf("%w: over %d times its %d compressed bytes", errTooLarge, m.limits.ratio, m.packed.n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		m.err = err
	}
	return n, err
}
