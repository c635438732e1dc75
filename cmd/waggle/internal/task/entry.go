package task

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxLine bounds a line of --file: a payload of 256 KiB in base64 and what is around it.
const maxLine = 1 << 20

// entry is one task to submit, or what is wrong with the line that should be one, and what became of it.
type entry struct {
	line   int // of --file, from 1; 0: an argument named it
	item   *pb.SubmitItem
	err    error
	result *pb.SubmitResult
}

// name is what people know the task by.
func (e *entry) name() string { return cmp.Or(e.item.GetUrl(), e.item.GetKey()) }

// taken reports whether the task is in.
func (e *entry) taken() bool {
	switch e.result.GetCode() {
	case pb.SubmitCode_SUBMIT_CODE_CREATED, pb.SubmitCode_SUBMIT_CODE_EXISTS, pb.SubmitCode_SUBMIT_CODE_REVISIT:
		return true
	default:
		return false
	}
}

// entries gives tasks one by one. An error is the last: the rest cannot be read.
type entries = iter.Seq2[*entry, error]

// itemPattern completes an item by what holds for all of them.
type itemPattern func(*pb.SubmitItem) *pb.SubmitItem

// ofArguments gives the tasks that arguments name: their URLs, or the one of --key.
func ofArguments(urls []string, pattern itemPattern) entries {
	if len(urls) == 0 {
		urls = []string{""}
	}
	return func(yield func(*entry, error) bool) {
		for _, url := range urls {
			if !yield(&entry{item: pattern(&pb.SubmitItem{Url: url})}, nil) {
				return
			}
		}
	}
}

// ofFile gives the tasks of a file; empty lines and those that begin with # are left out.
func ofFile(in *cli.Input, pattern itemPattern) (entries, error) {
	text, err := textfile.Decode(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.Name(), err)
	}
	lines := textfile.NewLines(text)
	return func(yield func(*entry, error) bool) {
		for {
			line, err := lines.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(nil, fmt.Errorf("%s: %w: %w", in.Name(), cli.ErrBroken, err))
				}
				return
			}
			e := &entry{line: line.Line, err: line.Err}
			if text := strings.TrimSpace(string(line.Text)); e.err == nil {
				if text == "" || strings.HasPrefix(text, "#") {
					continue
				}
				e.item, e.err = parseItem(text, pattern)
			}
			if !yield(e, nil) {
				return
			}
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
			// Of a line the parser always reports that it is the first.
			return nil, fmt.Errorf("is no SubmitItem: %s", strings.Replace(err.Error(), "(line 1:", "(column ", 1))
		}
	}
	if item = pattern(item); item.GetSourceId() == "" {
		return nil, errors.New("names no source_id, and --source is missing")
	}
	return item, nil
}
