package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
)

// Input is a file to read, or standard input.
type Input struct {
	io.Reader
	Path string
	File *os.File // nil: standard input
	Size int64    // of a regular file, in bytes; else 0
}

// OpenInput opens the file of that name; - is standard input. Reading ends with ctx.
func OpenInput(ctx context.Context, name string, stdin io.Reader) (*Input, error) {
	if name == "-" {
		return &Input{Reader: newCtxReader(ctx, stdin), Path: name}, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		return &Input{Reader: file, Path: name, File: file, Size: info.Size()}, nil
	}
	return &Input{Reader: newCtxReader(ctx, file), Path: name, File: file}, nil
}

// Name is what people call it.
func (i *Input) Name() string {
	if i.File == nil {
		return "standard input"
	}
	return i.Path
}

func (i *Input) Close() {
	if i.File != nil {
		_ = i.File.Close() // it was only read
	}
}

// ErrBroken says that the rest of a file is not of its format.
var ErrBroken = errors.New("the rest cannot be read")

// ErrNothing says that a file was read to its end and has no entry: it is likely another one than was meant.
var ErrNothing = errors.New("nothing")

func (i *Input) ErrNothing() error { return fmt.Errorf("%w in %s", ErrNothing, i.Name()) }

// EachObject calls take with each JSON object of the file.
func (i *Input) EachObject(ctx context.Context, take func(textfile.Entry)) error {
	n, err := textfile.EachObject(i, take)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%s: %w", i.Path, err)
	case n == 0:
		return i.ErrNothing()
	}
	return nil
}

// SameFile reports whether two names are of one file; an empty name is of none.
func SameFile(a, b string) bool {
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
