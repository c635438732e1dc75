package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// Input is a file to read, or standard input.
type Input struct {
	io.Reader
	Path string // -: standard input

	file *os.File // nil: standard input
	pipe *io.PipeReader
	size int64        // in bytes; 0: it is no regular file
	read atomic.Int64 // of them
}

// OpenInput opens the file of that name; - is standard input. A read of a terminal or a pipe may never return: ctx ends the
// reading of what comes, and leaves that read behind.
func OpenInput(ctx context.Context, name string, stdin io.Reader) (*Input, error) {
	reader, writer := io.Pipe()
	if used, ok := stdin.(usedInput); ok && name == "-" {
		return nil, used.err()
	}
	in := &Input{Reader: reader, Path: name, pipe: reader}
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		in.file, from = file, file
	}
	if known, ok := from.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if info, err := known.Stat(); err == nil && info.Mode().IsRegular() {
			in.size = info.Size()
		}
	}
	context.AfterFunc(ctx, func() { writer.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(io.MultiWriter(writer, in), from)
		writer.CloseWithError(err)
	}()
	return in, nil
}

// usedInput is standard input of which something was read to the end.
type usedInput string

// UsedInput stands for standard input that was read for something, as "--token-file -". It cannot be read for anything else.
func UsedInput(by string) io.Reader { return usedInput(by) }

// Read implements [io.Reader].
func (u usedInput) Read([]byte) (int, error) { return 0, u.err() }

func (u usedInput) err() error {
	return Usagef("standard input cannot be read twice: %s has read it", string(u))
}

// Write counts what was read.
func (i *Input) Write(p []byte) (int, error) {
	i.read.Add(int64(len(p)))
	return len(p), nil
}

// Done is how many bytes were read, and how many there are; 0: nobody knows.
func (i *Input) Done() (read, size int64) { return i.read.Load(), i.size }

// Name is what people call it.
func (i *Input) Name() string {
	if i.file == nil {
		return "standard input"
	}
	return i.Path
}

// Close frees what OpenInput opened. It was only read, so no error matters.
func (i *Input) Close() {
	_ = i.pipe.Close()
	if i.file != nil {
		_ = i.file.Close()
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
