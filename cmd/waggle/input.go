package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
)

// input is a file to read, or standard input.
type input struct {
	io.Reader
	path string
	file *os.File // nil: standard input
	size int64    // of a regular file, in bytes; else 0
}

// openInput opens the file of that name; - is standard input. Reading ends with ctx.
func openInput(ctx context.Context, name string, stdin io.Reader) (*input, error) {
	if name == "-" {
		return &input{Reader: newCtxReader(ctx, stdin), path: name}, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		return &input{Reader: file, path: name, file: file, size: info.Size()}, nil
	}
	return &input{Reader: newCtxReader(ctx, file), path: name, file: file}, nil
}

// name is what people call it.
func (i *input) name() string {
	if i.file == nil {
		return "standard input"
	}
	return i.path
}

func (i *input) close() {
	if i.file != nil {
		_ = i.file.Close() // it was only read
	}
}

// errNothing says that a file was read to its end and has no entry: it is likely another one than was meant.
var errNothing = errors.New("nothing")

func (i *input) errNothing() error { return fmt.Errorf("%w in %s", errNothing, i.name()) }

// eachObject calls take with each JSON object of the file.
func (i *input) eachObject(ctx context.Context, take func(textfile.Entry)) error {
	n, err := textfile.EachObject(i, take)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%s: %w", i.path, err)
	case n == 0:
		return i.errNothing()
	}
	return nil
}

// sameFile reports whether two names are of one file; an empty name is of none.
func sameFile(a, b string) bool {
	aInfo, aErr := os.Stat(a)
	bInfo, bErr := os.Stat(b)
	return a != "" && (a == b || aErr == nil && bErr == nil && os.SameFile(aInfo, bInfo))
}

// ctxReader reads until a context ends, also from a terminal or a pipe that may never give anything: it leaves a read
// under way behind.
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
