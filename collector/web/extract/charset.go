package extract

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// maxPrescan is how much of a document is looked at for what it says of its encoding.
const maxPrescan = 1024

// decoded reads a document in UTF-8.
func decoded(body []byte, contentType string) io.Reader {
	if isUTF8(body[:min(len(body), maxPrescan)], contentType) && utf8.Valid(body) {
		return bytes.NewReader(body) // most of the web; to decode it would take as long as to read its tags
	}
	reader, err := charset.NewReader(bytes.NewReader(body), contentType)
	if err != nil {
		return bytes.NewReader(body) // an encoding nobody knows: the ASCII part of it still has links
	}
	return reader
}

// isUTF8 reports whether a document that begins so is in UTF-8, if it is valid there: it says so, or nothing says otherwise.
func isUTF8(begin []byte, contentType string) bool {
	if !strings.Contains(strings.ToLower(contentType), "charset") && namesOnlyUTF8(begin) {
		return true
	}
	// Where nothing is said the library guesses by the letters that it is shown, so it is shown one of UTF-8.
	const letter = " é "
	begin = begin[:min(len(begin), maxPrescan-len(letter))]
	for range utf8.UTFMax - 1 { // without the begin of another one
		if last, size := utf8.DecodeLastRune(begin); last == utf8.RuneError && size == 1 {
			begin = begin[:len(begin)-1]
		}
	}
	_, name, _ := charset.DetermineEncoding(slices.Concat(begin, []byte(letter)), contentType)
	return name == "utf-8"
}

// namesOnlyUTF8 reports whether the begin of a document names UTF-8 as its charset and no other one, as nearly all do: then
// its elements need not be read to find out what it says.
func namesOnlyUTF8(begin []byte) bool {
	const blank = " \t\r\n\f"
	for rest, names := bytes.ToLower(begin), false; ; names = true {
		_, after, found := bytes.Cut(rest, []byte("charset"))
		if !found {
			return names
		}
		after, found = bytes.CutPrefix(bytes.TrimLeft(after, blank), []byte("="))
		after, named := bytes.CutPrefix(bytes.TrimLeft(after, blank+`"'`), []byte("utf-8"))
		if !found || !named || len(after) == 0 || strings.IndexByte(blank+`"'/>;`, after[0]) < 0 {
			return false
		}
		rest = after
	}
}
