package web

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

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

// packedBody is a long body of a feed, sitemap or list. It is held packed, so that many at once need little memory.
type packedBody struct {
	zipped bytes.Buffer
	length int64 // unpacked
	digest string
}

// pack packs what r has, in at most limit bytes. Beside an error of r it returns what came before.
func pack(r io.Reader, limit int64) (*packedBody, error) {
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
		if int64(b.zipped.Len()) > limit {
			err = fmt.Errorf("%w: packed, it is over %d bytes", errTooLarge, limit)
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
	return decoder("zstd", bufio.NewReader(bytes.NewReader(b.zipped.Bytes())))
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

// keep takes in the body of a feed, sitemap or list: packed, in at most limit bytes, if it is long.
func (a *fetched) keep(limit int64) func(io.Reader) ([]byte, error) {
	return func(r io.Reader) ([]byte, error) {
		begin, err := io.ReadAll(io.LimitReader(r, maxPlain+1))
		if err != nil || len(begin) <= maxPlain {
			return begin, err
		}
		a.packed, err = pack(io.MultiReader(bytes.NewReader(begin), r), limit)
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
