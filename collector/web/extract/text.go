package extract

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/transform"
)

// errParse says that a document is not what it claims to be.
var errParse = errors.New("cannot be parsed")

const (
	// maxDeclaration is how many bytes of XML are searched for its encoding.
	maxDeclaration = 2 << 10

	// maxBegin is how many bytes of a document show what it is.
	maxBegin = 64 << 10
)

var (
	// utf16BE and utf16LE are how XML in UTF-16 begins that has no byte order mark.
	utf16BE = regexp.MustCompile(`^(?:\x00\s)*\x00<\x00`)
	utf16LE = regexp.MustCompile(`^(?:\s\x00)*<\x00[^\x00]\x00`)

	// openDeclaration is an XML declaration without its end, up to the next tag.
	openDeclaration = regexp.MustCompile(`^[^<]*<\?xml\s[^<>]*<`)

	xmlEncoding = regexp.MustCompile(`<\?xml\s[^>]{0,1000}encoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']`)
)

// newText reads a feed, sitemap or list as UTF-8, by its byte order mark, what it declares, or its Content-Type; an encoding
// that nobody knows is read as UTF-8. At least maxBegin bytes can be peeked at.
func newText(body io.Reader, contentType string) *bufio.Reader {
	in := bufio.NewReader(body)
	begin, _ := in.Peek(maxDeclaration) // it comes again with the next read
	label := ""
	switch {
	case bytes.HasPrefix(begin, []byte("\xef\xbb\xbf")):
	case bytes.HasPrefix(begin, []byte("\xfe\xff")), utf16BE.Match(begin):
		label = "utf-16be"
	case bytes.HasPrefix(begin, []byte("\xff\xfe")), utf16LE.Match(begin):
		label = "utf-16le"
	default:
		if declared := xmlEncoding.FindSubmatch(begin); declared != nil {
			label = string(declared[1])
		} else {
			label = headerEncoding(contentType)
		}
		if strings.HasPrefix(strings.ToLower(label), "utf-16") && bytes.IndexByte(begin, 0) < 0 {
			label = ""
		}
	}
	if cut := openDeclaration.Find(begin); cut != nil {
		_, _ = in.Discard(len(cut) - 1) // it was peeked at
	}
	valid := transform.Transformer(validText{})
	if encoding, name := charset.Lookup(label); encoding != nil && name != "utf-8" && name != "replacement" {
		valid = transform.Chain(decoderOf(encoding, name), valid)
	}
	return bufio.NewReaderSize(transform.NewReader(in, valid), maxBegin)
}

// ValidText reads the bytes of a text that are not UTF-8 as Windows-1252, which most of them are, and leaves out the
// characters that no document has: control characters and byte order marks.
func ValidText(text []byte) string {
	valid, _, _ := transform.Bytes(validText{}, text) // it takes everything
	return string(valid)
}

// validText is ValidText of what is read bit by bit.
type validText struct{ transform.NopResetter }

// Transform is that of a transform.Transformer.
func (validText) Transform(dst, src []byte, atEOF bool) (nDst, nSrc int, err error) {
	for nSrc < len(src) {
		r, size := rune(src[nSrc]), 1
		if r >= utf8.RuneSelf {
			if !atEOF && !utf8.FullRune(src[nSrc:]) {
				return nDst, nSrc, transform.ErrShortSrc
			}
			if r, size = utf8.DecodeRune(src[nSrc:]); r == utf8.RuneError && size == 1 {
				r = charmap.Windows1252.DecodeByte(src[nSrc])
			}
		}
		if nDst+utf8.UTFMax > len(dst) {
			return nDst, nSrc, transform.ErrShortDst
		}
		nSrc += size
		switch {
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0xfeff, r == 0xfffe, r == 0xffff:
		case r < utf8.RuneSelf:
			dst[nDst] = byte(r)
			nDst++
		default:
			nDst += utf8.EncodeRune(dst[nDst:], r)
		}
	}
	return nDst, nSrc, nil
}
