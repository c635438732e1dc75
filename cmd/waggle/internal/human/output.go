package human

import (
	"cmp"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// Output is where a command writes for people. A terminal has a width, and colors unless they are off; a pipe has neither.
type Output struct {
	io.Writer
	Width int // in columns; 0: nothing is shortened
	Color bool

	height int // in rows; 0: what is written stays
}

// The size of a terminal that does not report its own.
const (
	widthUnknown  = 80
	heightUnknown = 24
)

// NewOutput finds out where out leads. Colors are off if NO_COLOR is set (https://no-color.org) or TERM is dumb.
func NewOutput(out io.Writer, env func(name string) (value string, ok bool)) Output {
	o := Output{Writer: out}
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return o
	}
	width, height, _ := term.GetSize(int(file.Fd())) // it fails with 0
	if width <= 0 {
		columns, _ := env("COLUMNS")
		width, _ = strconv.Atoi(columns) // it fails with 0
	}
	o.Width = cmp.Or(max(width, 0), widthUnknown)
	if kind, _ := env("TERM"); kind != "dumb" {
		noColor, _ := env("NO_COLOR")
		o.Color, o.height = noColor == "", cmp.Or(height, heightUnknown)
	}
	return o
}

// Paint colors a text that is nothing but the word of a state.
func (o Output) Paint(text string) string {
	color := ""
	switch text {
	case "FAILING", "DEAD", "STUCK", "STORE", "DISPATCHER", "NO_COLLECTOR", "HUNG", "HANDLER", "RELEASED", "COLLECTOR", "NEVER":
		color = "31" // red
	case "LATE", "HELD", "BLOCKED", "BACKED_OFF", "GONE":
		color = "33" // yellow
	case "OK":
		color = "32" // green
	}
	if !o.Color || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// Redraws reports whether Redraw takes the place of what was written before.
func (o Output) Redraws() bool { return o.height > 0 }

// Redraw writes text: on a terminal in place of all that it shows, and no more than it has room for.
func (o Output) Redraw(text string) error {
	if o.Redraws() {
		lines := strings.SplitAfter(text, "\n")
		text = strings.Join(lines[:min(len(lines), o.height-1)], "")
		text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
	}
	_, err := io.WriteString(o.Writer, text)
	return err
}
