package main

import (
	"context"
	"io"
)

// ctxReader reads until a context ends, also from what may never give anything,
// as a terminal or a pipe: a read under way is left behind then.
type ctxReader struct {
	ctx     context.Context //nolint:containedctx // a reader has no other way to learn of it
	in      io.Reader
	results chan readResult
	asked   bool   // a read is under way
	buffer  []byte // which it fills
	left    []byte // what it gave that nobody has taken
}

type readResult struct {
	n   int
	err error
}

func newCtxReader(ctx context.Context, in io.Reader) *ctxReader {
	return &ctxReader{ctx: ctx, in: in, results: make(chan readResult, 1), buffer: make([]byte, 64<<10)}
}

// Read implements [io.Reader].
func (r *ctxReader) Read(p []byte) (int, error) {
	if len(r.left) > 0 {
		n := copy(p, r.left)
		r.left = r.left[n:]
		return n, nil
	}
	if !r.asked {
		r.asked = true
		go func() {
			n, err := r.in.Read(r.buffer)
			r.results <- readResult{n, err}
		}()
	}
	select {
	case result := <-r.results:
		r.asked = false
		n := copy(p, r.buffer[:result.n])
		r.left = r.buffer[n:result.n]
		if len(r.left) > 0 {
			return n, nil // the error, if any, comes again
		}
		return n, result.err
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
}
