package web

import (
	"bytes"

	"golang.org/x/net/html/atom"
)

// rawElement names an element whose content is text, whatever it looks like; empty for others. The content of noscript
// and noframes is not: a crawler runs no script and shows no frame, so that part is for it.
func rawElement(element atom.Atom) string {
	switch element {
	case atom.Iframe, atom.Noembed, atom.Plaintext, atom.Script, atom.Style, atom.Textarea, atom.Title, atom.Xmp:
		return element.String()
	default:
		return ""
	}
}

// rawText reads on to the end of what cannot be markup where the reader is, and returns it.
func (r *tagReader) rawText() []byte {
	rest := r.text[r.at:]
	end := 0
	switch r.raw {
	case "":
	case "plaintext":
		end = len(rest)
	case "script":
		end = scriptEnd(rest)
	default:
		end = rawEnd(rest, r.raw)
	}
	r.at += end
	r.raw = ""
	return rest[:end]
}

// rawEnd is where the end tag of an element is.
func rawEnd(text []byte, name string) int {
	for at := 0; ; at += len("</") {
		next := bytes.Index(text[at:], []byte("</"))
		if next < 0 {
			return len(text)
		}
		at += next
		if endsRaw(text[at:], name) {
			return at
		}
	}
}

// endsRaw tells whether text begins with the end tag of an element.
func endsRaw(text []byte, name string) bool {
	return bytes.HasPrefix(text, []byte("</")) && beginsWithName(text[len("</"):], name)
}

// beginsWithName tells whether text begins with a name, in any case, and what may follow one.
func beginsWithName(text []byte, name string) bool {
	if len(text) <= len(name) || !endsName(text[len(name)]) {
		return false
	}
	for i := range len(name) {
		if text[i]|0x20 != name[i] {
			return false
		}
	}
	return true
}

// scriptState is where in a script text is: what looks like a comment hides the end tags of scripts within it.
type scriptState int

const (
	scriptPlain  scriptState = iota
	scriptHidden             // behind <!--
	scriptNested             // behind <script within that
)

// scriptEnd is where the end tag of a script is.
func scriptEnd(text []byte) int {
	state, dashes := scriptPlain, 0
	for at := 0; at < len(text); {
		if state == scriptPlain {
			next := bytes.IndexByte(text[at:], '<')
			if next < 0 {
				return len(text)
			}
			at += next
		}
		rest := text[at:]
		if rest[0] == '<' {
			if state != scriptNested && endsRaw(rest, "script") {
				return at
			}
			if state == scriptPlain && bytes.HasPrefix(rest, []byte("<!--")) {
				state, dashes = scriptHidden, 2
				at += len("<!--")
				continue
			}
			var length int
			state, length = state.inside(rest)
			at, dashes = at+length, 0
			continue
		}
		at++
		switch {
		case rest[0] == '-':
			dashes++
		case rest[0] == '>' && dashes >= 2:
			state, dashes = scriptPlain, 0
		default:
			dashes = 0
		}
	}
	return len(text)
}

// inside is the state behind a '<' that neither ends a script nor begins a comment, and how much of rest tells so.
func (s scriptState) inside(rest []byte) (next scriptState, length int) {
	switch {
	case s == scriptHidden && len(rest) > 1 && isLetter(rest[1]):
		if beginsWithName(rest[1:], "script") {
			return scriptNested, len("<script>")
		}
	case s == scriptHidden && (len(rest) == 1 || rest[1] != '/'):
		return scriptPlain, 1
	case s == scriptNested && endsRaw(rest, "script"):
		return scriptHidden, len("</script>")
	}
	return s, 1
}
