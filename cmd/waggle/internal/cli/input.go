package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Input is a file to read, or standard input.
type Input struct {
	io.Reader
	Path string
	File *os.File // nil: standard input
	Size int64    // of a regular file, in bytes; else 0

	closers []io.Closer
}

// OpenInput opens the file of that name; - is standard input. Reading ends with ctx.
func OpenInput(ctx context.Context, name string, stdin io.Reader) (*Input, error) {
	in := &Input{Reader: stdin, Path: name}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		in.Reader, in.File, in.closers = file, file, []io.Closer{file}
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			in.Size = info.Size()
			return in, nil
		}
	}
	// A read of a terminal or a pipe may never return: ctx ends the reading of what comes, and leaves that read behind.
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() { writer.CloseWithError(ctx.Err()) })
	go func(from io.Reader) {
		_, err := io.Copy(writer, from)
		writer.CloseWithError(err)
	}(in.Reader)
	in.Reader, in.closers = reader, append(in.closers, reader)
	return in, nil
}

// Name is what people call it.
func (i *Input) Name() string {
	if i.File == nil {
		return "standard input"
	}
	return i.Path
}

// Close frees what OpenInput opened.
func (i *Input) Close() {
	for _, c := range i.closers {
		_ = c.Close() // it was only read
	}
}

// ErrBroken is the error of a file that is not in its format from some place on.
var ErrBroken = errors.New("the rest cannot be read")

// ErrNothing is the error of a file without an entry: it is likely the wrong file.
var ErrNothing = errors.New("nothing")

// ErrNothing is that of this file.
func (i *Input) ErrNothing() error { return fmt.Errorf("%w in %s", ErrNothing, i.Name()) }

// SameFile reports whether two names are of one file; an empty name is of none.
func SameFile(a, b string) bool {
	aInfo, aErr := os.Stat(a)
	bInfo, bErr := os.Stat(b)
	return a != "" && (a == b || aErr == nil && bErr == nil && os.SameFile(aInfo, bInfo))
}
