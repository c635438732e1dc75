package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/waggle-crawl/waggle/collector"
)

// line is a page of a list. A page may be written twice, by a collector that was only taken for dead too. Its reader keeps,
// for each task, cycle and page, the line with the highest fence.
type line struct {
	Task  string            `json:"task"`
	Cycle int64             `json:"cycle"`
	Page  string            `json:"page"`
	Fence int64             `json:"fence"`
	Items []json.RawMessage `json:"items"`
}

// lines writes pages as JSON lines.
type lines struct {
	mu  sync.Mutex // makes a line one write
	out io.Writer
}

func (l *lines) keep(t *collector.Task, cursor string, items []json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	page := line{Task: t.ID, Cycle: t.Cycle, Page: cursor, Fence: t.Fence, Items: items}
	if err := json.NewEncoder(l.out).Encode(page); err != nil {
		return fmt.Errorf("write a page: %w", err)
	}
	return nil
}
