package sourcefile

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
)

// budget is a reader that gives no more than about MaxRecord bytes between two resets, so that a parser cannot be made to
// keep a whole file in memory.
type budget struct {
	in   io.Reader
	left int
}

func newBudget(in io.Reader) *budget { return &budget{in: in, left: textfile.MaxRecord} }

// Read implements [io.Reader].
func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, textfile.ErrTooLong
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// reset begins the next entry.
func (b *budget) reset() { b.left = textfile.MaxRecord }

// peek is how a text begins.
func peek(text *bufio.Reader) ([]byte, error) {
	head, err := text.Peek(textfile.LookAhead)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("read: %w", err)
	}
	return head, nil
}
