package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/waggle-crawl/waggle/collector"
)

// store keeps items. A page that comes again, from another machine, replaces what came of it before when its fence is
// higher, and is dropped when it is lower: then a collector that was only taken for dead speaks late.
type store interface {
	keep(t *collector.Task, cursor string, items []json.RawMessage) error
}

// line is a page as it is written: a reader takes, of the lines with the same task, cycle and page, the one with the
// highest fence.
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
	text, err := json.Marshal(line{Task: t.ID, Cycle: t.Cycle, Page: cursor, Fence: t.Fence, Items: items})
	if err != nil {
		return fmt.Errorf("write a page: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.out.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write a page: %w", err)
	}
	return nil
}
