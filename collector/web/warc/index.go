package warc

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/collector/web"
)

// indexSuffix is what an index is called behind its archive's name.
const indexSuffix = ".index.jsonl"

// Entry is a line of an index: a page, and where the record of its answer is.
type Entry struct {
	// Page as the Sink got it; File is the name of the archive, which ends in ".open" beside that while it is written.
	web.Page

	// Type of the record: "response", or "revisit" when its payload is with another one.
	Type string `json:"type"`

	// RecordID, Date and PayloadDigest are the record's; the last is empty when the payload is not known.
	RecordID      string `json:"record_id"`
	Date          string `json:"date"`
	PayloadDigest string `json:"payload_digest,omitempty"`

	// Offset and Length say which bytes of the file are the record, compressed.
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`

	whole bool // a response whose payload others may refer to
}

// line is the entry as the index has it.
func (e *Entry) line() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text) // it ends the line
	encoder.SetEscapeHTML(false)      // so that a record id can be searched for as it is
	if err := encoder.Encode(e); err != nil {
		return nil, fmt.Errorf("encode index entry: %w", err)
	}
	return text.Bytes(), nil
}

// ReadIndex goes through the indexes of a directory: the files by name, the entries of a file as they were written. A
// last line that a dying process has cut is left out: the next sink of its collector id writes it anew. After an error
// it goes on with the next file.
func ReadIndex(dir string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		files, err := os.ReadDir(dir)
		if err != nil {
			yield(Entry{}, fmt.Errorf("read index: %w", err))
			return
		}
		for _, file := range files {
			if strings.HasSuffix(file.Name(), indexSuffix) && !readIndexFile(filepath.Join(dir, file.Name()), yield) {
				return
			}
		}
	}
}

// readIndexFile reports whether the reader wants more.
func readIndexFile(path string, yield func(Entry, error) bool) bool {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true // its collector made nothing of it
	}
	if err != nil {
		return yield(Entry{}, fmt.Errorf("read index: %w", err))
	}
	defer file.Close() //nolint:errcheck // nothing was written
	lines := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return true
		}
		var entry Entry
		if err == nil {
			err = json.Unmarshal(bytes.TrimSpace(line), &entry)
		}
		if err != nil {
			return yield(Entry{}, fmt.Errorf("read index %s, line %d: %w", path, number, err))
		}
		if !yield(entry, nil) {
			return false
		}
	}
}

// Winners resolves which groups of a directory count: one for each task and cycle, the one with the highest fence, and
// of equal ones the last. They are sorted by file and offset. All entries that count are in memory at once.
func Winners(dir string) ([]Entry, error) {
	type key struct {
		task  string
		cycle int64
	}
	best := make(map[key]Entry)
	for entry, err := range ReadIndex(dir) {
		if err != nil {
			return nil, err
		}
		k := key{entry.TaskID, entry.Cycle}
		if before, ok := best[k]; !ok || entry.Fence >= before.Fence {
			best[k] = entry
		}
	}
	return slices.SortedFunc(maps.Values(best), func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset))
	}), nil
}
