package human

import (
	"io"
	"time"
)

// ScreenOf makes a live screen of a terminal of the given size.
func ScreenOf(out io.Writer, width, height int) *Screen {
	return &Screen{out: out, Live: true, size: func() (int, int) { return width, height }}
}

// ProgressOf makes a progress on a live screen.
func ProgressOf(out io.Writer, amount func(n int64) string) *Progress {
	return &Progress{Screen: ScreenOf(out, 80, 24), amount: amount, began: time.Now()}
}
