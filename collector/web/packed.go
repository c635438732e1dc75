package web

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

const (
	// maxSitemapBytes is what sitemaps.org lets a sitemap have, unpacked; maxFeedBytes is what long podcasts have.
	maxSitemapBytes = 50 << 20
	maxFeedBytes    = 30 << 20

	// maxPlain is the longest body of a feed, sitemap or list that is held as it is.
	maxPlain = 1 << 20
)

// takeTurn waits until no other long body is read. Their links and whole bodies together would take too much memory.
func (v *visit) takeTurn(ctx context.Context) error {
	if v.hasTurn {
		return nil
	}
	select {
	case v.large <- struct{}{}:
		v.hasTurn = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endTurn lets the next long body be read.
func (v *visit) endTurn() {
	if v.hasTurn {
		v.hasTurn = false
		<-v.large
	}
}

// maxBytes bounds the task's body, in bytes, over the wire and unpacked.
func (v *visit) maxBytes() int64 {
	switch v.task.Kind {
	case extract.KindSitemap, extract.KindList:
		return max(v.cfg.MaxBytes, maxSitemapBytes)
	case extract.KindFeed:
		return max(v.cfg.MaxBytes, maxFeedBytes)
	}
	return v.cfg.MaxBytes
}

// manyPacked is the size, packed, up to which many bodies are held at once: a third of what the task's body may have, to which
// such text can be packed.
func (v *visit) manyPacked() int64 { return max(v.cfg.MaxBytes, v.maxBytes()/3) }

// packedBody is a long body of a feed, sitemap or list. It is held packed, so that many at once need little memory.
type packedBody struct {
	zipped pieces
	length int64 // unpacked
	digest string
}

// pieces are bytes that grow without being copied.
type pieces struct {
	all  net.Buffers
	size int64
}

// Write appends.
func (b *pieces) Write(p []byte) (int, error) {
	const piece = 256 << 10
	for rest := p; len(rest) > 0; {
		last := len(b.all) - 1
		if last < 0 || len(b.all[last]) == piece {
			b.all, last = append(b.all, make([]byte, 0, piece)), last+1
		}
		n := min(len(rest), piece-len(b.all[last]))
		b.all[last] = append(b.all[last], rest[:n]...)
		rest = rest[n:]
	}
	b.size += int64(len(p))
	return len(p), nil
}

// pack packs what r has. Beyond limit bytes, packed, it goes on if beyond returns no error. Beside an error of r it returns what came
// before.
func pack(r io.Reader, limit int64, beyond func() error) (*packedBody, error) {
	b := &packedBody{}
	zip, err := zstd.NewWriter(&b.zipped, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(256<<10))
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	to := io.MultiWriter(zip, sum)
	for buffer := make([]byte, 64<<10); err == nil; {
		var n int
		n, err = r.Read(buffer)
		b.length += int64(n)
		if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
			return nil, writeErr
		}
		if limit > 0 && b.zipped.size > limit {
			limit = 0
			err = cmp.Or(beyond(), err)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	b.digest = hex.EncodeToString(sum.Sum(nil))
	return b, cmp.Or(err, zip.Close())
}

// open reads the body.
func (b *packedBody) open() (io.Reader, error) {
	zipped := slices.Clone(b.zipped.all) // reading takes them away
	return decoder("zstd", bufio.NewReader(&zipped))
}

// bytes is the body, as a sink takes it.
func (b *packedBody) bytes() ([]byte, error) {
	plain, err := b.open()
	if err != nil {
		return nil, err
	}
	body := make([]byte, b.length)
	_, err = io.ReadFull(plain, body)
	return body, err
}

// keep takes in the body of a feed, sitemap or list: packed, if it is long.
func (a *fetched) keep(req *fetchRequest, wire io.ReadCloser) func(*meter) ([]byte, error) {
	return func(r *meter) ([]byte, error) {
		begin, err := io.ReadAll(io.LimitReader(r, maxPlain+1))
		if err != nil || len(begin) <= maxPlain {
			return begin, err
		}
		if recorded, ok := wire.(*recordedBody); ok && r.packed == nil {
			recorded.leaveOut()
		}
		a.packed, err = pack(io.MultiReader(bytes.NewReader(begin), r), req.manyPacked, req.beyond)
		return nil, err
	}
}

// lost is the end of a body whose connection was lost.
type lost struct{ error }

func (l lost) Read([]byte) (int, error) { return 0, l.error }

// length is that of the body.
func (a *fetched) length() int64 {
	if a.packed != nil {
		return a.packed.length
	}
	return int64(len(a.body))
}
