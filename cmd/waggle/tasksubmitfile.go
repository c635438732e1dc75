package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxLine bounds a line of --file: a payload of 256 KiB in base64 and what is around it.
const maxLine = 1 << 20

// submitEntry is one task to submit, or what is wrong with the line that should be one.
type submitEntry struct {
	line int // of --file, from 1; 0: an argument named it
	item *pb.SubmitItem
	err  error
}

// result is what becomes of an entry that cannot be sent.
func (e *submitEntry) result() *pb.SubmitResult {
	return &pb.SubmitResult{
		Code: pb.SubmitCode_SUBMIT_CODE_INVALID, ErrorReason: pb.ErrorReason_ERROR_REASON_INVALID_FIELD, Message: e.err.Error(),
	}
}

// name is what people know the task by.
func (e *submitEntry) name() string { return or(e.item.GetUrl(), e.item.GetKey()) }

// openItems gives the tasks of the file with that name, - for standard input.
func openItems(ctx context.Context, name string, stdin io.Reader, pattern itemPattern) (next entryReader, closeFile func(), err error) {
	in, closeFile := stdin, func() {}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, nil, fmt.Errorf("--file: %w", err)
		}
		in, closeFile = file, func() { file.Close() } //nolint:errcheck // it was only read
	}
	lines, err := sourcefile.OpenLines(newCtxReader(ctx, in))
	if err != nil {
		closeFile()
		return nil, nil, fmt.Errorf("%s: %w", inputName(name), err)
	}
	return func() (submitEntry, error) { return nextItem(lines, inputName(name), pattern) }, closeFile, nil
}

// nextItem reads an item; empty lines and those that begin with # are left out.
func nextItem(lines *sourcefile.Lines, name string, pattern itemPattern) (submitEntry, error) {
	for {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return submitEntry{}, io.EOF
		case err != nil:
			return submitEntry{}, fmt.Errorf("%s: %w: %w", name, errBroken, err)
		}
		entry := submitEntry{line: line.Line, err: line.Err}
		text := strings.TrimSpace(string(line.Text))
		switch {
		case entry.err != nil:
		case text == "" || strings.HasPrefix(text, "#"):
			continue
		default:
			entry.item, entry.err = parseItem(text, pattern)
		}
		return entry, nil
	}
}

// parseItem reads a line: a URL, or a SubmitItem in JSON.
func parseItem(text string, pattern itemPattern) (*pb.SubmitItem, error) {
	if len(text) > maxLine {
		return nil, fmt.Errorf("is %d bytes long; the limit is %d", len(text), maxLine)
	}
	item := &pb.SubmitItem{Url: text}
	if strings.HasPrefix(text, "{") {
		item = &pb.SubmitItem{}
		if err := unmarshalJSON([]byte(text), item); err != nil {
			// Of a line the parser always says that it is the first.
			return nil, fmt.Errorf("is no SubmitItem: %s", strings.Replace(err.Error(), "(line 1:", "(column ", 1))
		}
	}
	if item = pattern(item); item.GetSourceId() == "" {
		return nil, errors.New("names no source_id, and --source is missing")
	}
	return item, nil
}
