package task

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
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

// entryReader gives the next task. io.EOF: there is none; any other error: the rest cannot be read.
type entryReader func() (submitEntry, error)

// itemPattern completes an item by what is said of all of them.
type itemPattern func(*pb.SubmitItem) *pb.SubmitItem

// argumentReader gives the tasks that arguments name: their URLs, or the one of --key.
func argumentReader(urls []string, pattern itemPattern) entryReader {
	if len(urls) == 0 {
		urls = []string{""}
	}
	return func() (submitEntry, error) {
		if len(urls) == 0 {
			return submitEntry{}, io.EOF
		}
		item := pattern(&pb.SubmitItem{Url: urls[0]})
		urls = urls[1:]
		return submitEntry{item: item}, nil
	}
}

// name is what people know the task by.
func (e *submitEntry) name() string { return cmp.Or(e.item.GetUrl(), e.item.GetKey()) }

// fileReader gives the tasks of a file; empty lines and those that begin with # are left out.
func fileReader(in *cli.Input, pattern itemPattern) (entryReader, error) {
	text, err := textfile.Decode(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.Name(), err)
	}
	lines := textfile.NewLines(text)
	return func() (submitEntry, error) {
		for {
			line, err := lines.Next()
			switch {
			case errors.Is(err, io.EOF):
				return submitEntry{}, io.EOF
			case err != nil:
				return submitEntry{}, fmt.Errorf("%s: %w: %w", in.Name(), cli.ErrBroken, err)
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
	}, nil
}

// parseItem reads a line: a URL, or a SubmitItem in JSON.
func parseItem(text string, pattern itemPattern) (*pb.SubmitItem, error) {
	if len(text) > maxLine {
		return nil, fmt.Errorf("is %d bytes long; the limit is %d", len(text), maxLine)
	}
	item := &pb.SubmitItem{Url: text}
	if strings.HasPrefix(text, "{") {
		item = &pb.SubmitItem{}
		if err := textfile.Unmarshal([]byte(text), item); err != nil {
			// Of a line the parser always says that it is the first.
			return nil, fmt.Errorf("is no SubmitItem: %s", strings.Replace(err.Error(), "(line 1:", "(column ", 1))
		}
	}
	if item = pattern(item); item.GetSourceId() == "" {
		return nil, errors.New("names no source_id, and --source is missing")
	}
	return item, nil
}
