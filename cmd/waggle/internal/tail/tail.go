// Package tail keeps the end of what a process writes, to tell of it when the process fails.
package tail

import (
	"bytes"
	"sync"
)

// maxBytes is how much is kept.
const maxBytes = 8 << 10

// Writer keeps the end of what is written to it.
type Writer struct {
	mu   sync.Mutex // guards text
	text []byte
}

// Write keeps p.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = bytes.Clone(w.text[max(0, len(w.text)-maxBytes):])
	return len(p), nil
}

// String is what was kept.
func (w *Writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}
