package extract

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/simplifiedchinese"
)

const (
	// maxPrescan is how many bytes of a document are searched for its encoding: browsers heed a declaration at any place.
	maxPrescan = 64 << 10

	// maxMeta is how long an element is, in bytes, that declares it.
	maxMeta = 1000
)

// xmlDeclared is the encoding that an XML declaration has.
var xmlDeclared = regexp.MustCompile(`^\s*<\?xml\s[^>]{0,1000}?encoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']`)

// decoded reads a document in UTF-8. It returns the encoding that the queries of its links are in, too; nil: UTF-8.
func decoded(body []byte, contentType string) (io.Reader, encoding.Encoding) {
	name := encodingOf(body, contentType)
	in, err := htmlindex.Get(name)
	switch {
	case err != nil, name == "replacement": // its ASCII part still has links
		return bytes.NewReader(body), nil
	case name == "utf-8" && utf8.Valid(body): // most of the web: decoding would cost as much as reading the tags
		return bytes.NewReader(body), nil
	}
	reader := decoderOf(in, name).Reader(bytes.NewReader(body))
	if strings.HasPrefix(name, "utf-") {
		in = nil
	}
	return reader, in
}

// charsetParameter is that of a Content-Type, also if it is written in a wrong way.
var charsetParameter = regexp.MustCompile(`(?i)charset\s*=\s*["']?([A-Za-z0-9._:-]+)`)

// headerEncoding is the name of the first encoding that a Content-Type says and that is known; empty: none.
func headerEncoding(contentType string) string {
	for _, said := range charsetParameter.FindAllStringSubmatch(contentType, -1) {
		if _, name := charset.Lookup(said[1]); name != "" {
			return name
		}
	}
	return ""
}

// decoderOf decodes as browsers do: GBK as GB 18030, which has more.
func decoderOf(in encoding.Encoding, name string) *encoding.Decoder {
	if name == "gbk" {
		in = simplifiedchinese.GB18030
	}
	return in.NewDecoder()
}

// encodingOf is the name of a document's encoding: by its byte order mark, by its Content-Type, or as it declares. One that
// declares none is in UTF-8 if it can be.
func encodingOf(body []byte, contentType string) string {
	if _, name, certain := charset.DetermineEncoding(body[:min(len(body), 3)], ""); certain { // by its mark
		return name
	}
	if name := headerEncoding(contentType); name != "" {
		return name
	}
	if name := declared(body[:min(len(body), maxPrescan)]); name != "" {
		return name
	}
	if utf8.Valid(body) {
		return "utf-8"
	}
	_, name, _ := charset.DetermineEncoding(body, "") // a guess
	return name
}

// declared is the encoding that a document declares in a meta element of its head, else in an XML declaration; empty if none.
func declared(begin []byte) string {
	z := html.NewTokenizer(bytes.NewReader(begin))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return declaredXML(begin)
		case html.StartTagToken, html.SelfClosingTagToken:
			tag := z.Raw()
			name, _ := z.TagName()
			switch atom.Lookup(name) {
			case atom.Meta:
				if name := declaredMeta(tag); name != "" {
					return name
				}
			case atom.Body:
				return declaredXML(begin)
			default: // says nothing of it
			}
		default: // text and ends
		}
	}
}

// declaredMeta is the encoding that a meta element declares, as the library reads it: it guesses by the letters that it sees
// if there is none, so that it is shown one of two encodings.
func declaredMeta(tag []byte) string {
	if len(tag) > maxMeta || !bytes.Contains(bytes.ToLower(tag), []byte("charset")) {
		return ""
	}
	_, first, _ := charset.DetermineEncoding(slices.Concat(tag, []byte(" é ")), "")
	_, second, _ := charset.DetermineEncoding(slices.Concat(tag, []byte(" \xe9 ")), "")
	switch {
	case first != second:
		return ""
	case first == "x-user-defined": // by WHATWG
		return "windows-1252"
	}
	return first
}

func declaredXML(begin []byte) string {
	match := xmlDeclared.FindSubmatch(begin)
	if match == nil {
		return ""
	}
	_, name := charset.Lookup(string(match[1]))
	if strings.HasPrefix(name, "utf-16") { // which could not be read so
		name = "utf-8"
	}
	return name
}
