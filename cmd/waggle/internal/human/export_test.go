package human

import "io"

// ScreenOf makes a live screen of a terminal of the given size.
func ScreenOf(out io.Writer, width, height int) *Screen {
	return &Screen{out: out, Live: true, size: func() (int, int) { return width, height }}
}
