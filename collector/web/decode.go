package web

import (
	"bufio"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

const (
	// acceptEncoding is what decoded undoes, archivedEncoding what readers of archives do.
	acceptEncoding   = "gzip, br, zstd"
	archivedEncoding = "gzip, br"

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
	errBodyLost      = errors.New("read body")
)

// bodyLimits bound a body: its bytes, over the wire and after each coding is undone, and the ratio of both.
type bodyLimits struct {
	bytes int64
	ratio int64

	truncate bool // cut what is over a limit instead of failing

	keep func(*meter) ([]byte, error) // reads the decoded body; nil: io.ReadAll
}

// readBody reads and decompresses a body. Beside errBodyLost it returns what arrived.
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
		return body, fmt.Errorf("%w: %w", errBodyLost, err)
	}
	return nil, fmt.Errorf("%w: %w", errContentCoding, err)
}

// DecodeBody undoes the content coding that header tells of the body that r has, as the body of an Exchange. A coding that is
// none, such as utf-8, is left out. It fails for a registered one other than gzip, deflate, br and zstd, and when there is
// more than limit, in bytes, before or after.
func DecodeBody(header http.Header, r io.Reader, limit int64) ([]byte, error) {
	return readDecoded(&meter{r: r, limits: bodyLimits{bytes: limit, ratio: limit}}, codings(header))
}

// contentCodings are the registered ones, by IANA. Servers write others, such as utf-8 or none, where they mean none.
var contentCodings = []string{
	"gzip", "x-gzip", "br", "zstd", "deflate", "compress", "x-compress", "aes128gcm", "dcb", "dcz", "exi", "pack200-gzip",
}

// codings are those of a Content-Encoding header, in the order in which they were applied.
func codings(header http.Header) []string {
	var list []string
	for coding := range strings.SplitSeq(strings.Join(header.Values("Content-Encoding"), ","), ",") {
		if coding = strings.ToLower(strings.TrimSpace(coding)); slices.Contains(contentCodings, coding) {
			list = append(list, coding)
		}
	}
	return list
}

// readDecoded undoes the codings of what wire has, the last one first, within the limits of wire. Beside an error it returns
// what it read until then.
func readDecoded(wire *meter, list []string) ([]byte, error) {
	if len(list) == 0 {
		if wire.limits.keep != nil {
			return wire.limits.keep(wire)
		}
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
	return readDecoded(&meter{r: &untilGarbage{r: plain}, limits: wire.limits, packed: wire}, list[:last])
}

// untilGarbage reads what a decoder decodes, and ends at what follows it.
type untilGarbage struct {
	r    io.Reader
	some bool // something was decoded
}

// Read reads, until there is garbage.
func (u *untilGarbage) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	u.some = u.some || n > 0
	if u.some && err != nil && (errors.Is(err, zstd.ErrMagicMismatch) || err.Error() == "brotli: excessive input") {
		err = io.EOF
	}
	return n, err
}

// decoder undoes one coding.
func decoder(coding string, packed *bufio.Reader) (io.ReadCloser, error) {
	switch coding {
	case "gzip", "x-gzip":
		return newGunzip(packed)
	case "deflate":
		// The standard wants zlib's head before it, which some leave out.
		if head, err := packed.Peek(2); err == nil && head[0]&15 == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
			_, _ = packed.Discard(len(head))
		}
		return flate.NewReader(packed), nil
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
	return nil, fmt.Errorf("%w %q: want %s", errContentCoding, coding, acceptEncoding)
}

// gunzip undoes gzip, of one member or several. A member is whole when what it packs is: its checksum may be wrong or missing, and
// what follows the last one is left out.
type gunzip struct {
	io.ReadCloser // what a member packs
	packed        *bufio.Reader
	head          *gzip.Reader // reads the heads of members, and nothing else
}

const (
	gzipMagic   = "\x1f\x8b\x08"
	gzipTrailer = 8 // bytes
)

func newGunzip(packed *bufio.Reader) (*gunzip, error) {
	head, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	return &gunzip{ReadCloser: flate.NewReader(packed), packed: packed, head: head}, nil
}

// Read reads of a member, and goes on to the next.
func (g *gunzip) Read(p []byte) (int, error) {
	for {
		n, err := g.ReadCloser.Read(p)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		_, _ = g.packed.Discard(gzipTrailer) // if this fails, so does what follows
		if magic, err := g.packed.Peek(len(gzipMagic)); string(magic) != gzipMagic {
			return n, cmp.Or(err, io.EOF)
		}
		if err := g.head.Reset(g.packed); err != nil {
			return n, err
		}
		if err := g.ReadCloser.(flate.Resetter).Reset(g.packed, nil); err != nil || n > 0 {
			return n, err
		}
	}
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
