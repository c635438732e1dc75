package extract

import (
	"bytes"
	"io"
	"slices"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// maxPrescan is how many bytes of a document are searched for its encoding.
const maxPrescan = 1024

// decoded reads a document in UTF-8.
func decoded(body []byte, contentType string) io.Reader {
	if isUTF8(body, contentType) && utf8.Valid(body) {
		return bytes.NewReader(body) // most of the web: decoding would cost as much as reading the tags
	}
	reader, err := charset.NewReader(bytes.NewReader(body), contentType)
	if err != nil {
		return bytes.NewReader(body) // unknown encoding: its ASCII part still has links
	}
	return reader
}

// isUTF8 reports whether a document declares UTF-8, or declares no encoding.
func isUTF8(body []byte, contentType string) bool {
	// Without a declaration the library guesses by the letters it sees, so it is shown one of UTF-8.
	const letter = " é "
	begin := body[:min(len(body), maxPrescan-len(letter))]
	for range utf8.UTFMax - 1 { // without a letter that was cut
		if last, size := utf8.DecodeLastRune(begin); last == utf8.RuneError && size == 1 {
			begin = begin[:len(begin)-1]
		}
	}
	_, name, _ := charset.DetermineEncoding(slices.Concat(begin, []byte(letter)), contentType)
	return name == "utf-8"
}
