package web

import (
	"encoding/json"
	"net/http"

	"golang.org/x/text/encoding/charmap"
)

const (
	// maxMemo is the longest memo, in bytes.
	maxMemo = 4 << 10

	// maxNotModified is how many crawls in a row may say that nothing has changed: some servers say so for ever.
	maxNotModified = 20
)

// memo is what one crawl of a page leaves for the next one.
type memo struct {
	// URL that answered; the validators hold for it and for no other.
	URL          string `json:"url,omitempty"`
	ETag         octets `json:"etag,omitempty"`
	LastModified octets `json:"last_modified,omitempty"`

	// NotModified counts the crawls in a row for which the server said that nothing has changed.
	NotModified int `json:"not_modified,omitempty"`

	// Entries are those of a feed, as extract.Result has them.
	Entries []byte `json:"entries,omitempty"`

	// Digest and Bytes of the body, its ContentType, whether it had links, and whether it asked not to be indexed.
	Digest      string `json:"digest"`
	Bytes       int64  `json:"bytes,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	HasLinks    bool   `json:"has_links,omitempty"`
	NoIndex     bool   `json:"no_index,omitempty"`
}

// octets is a header's value, whose bytes over 127 need not be UTF-8: JSON has each byte as the character of its number.
type octets string

// MarshalText writes the characters.
func (o octets) MarshalText() ([]byte, error) { return charmap.ISO8859_1.NewDecoder().Bytes([]byte(o)) }

// UnmarshalText reads them.
func (o *octets) UnmarshalText(text []byte) error {
	value, err := charmap.ISO8859_1.NewEncoder().Bytes(text)
	*o = octets(value)
	return err
}

// readMemo reads what an earlier crawl left. What cannot be read is as good as nothing.
func readMemo(text []byte) memo {
	var m memo
	if len(text) == 0 || json.Unmarshal(text, &m) != nil {
		return memo{}
	}
	return m
}

// encode writes the memo within its limit: without validators if need be, then only the digest counts.
func (m memo) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil || len(text) <= maxMemo {
		return text, err
	}
	return json.Marshal(memo{Digest: m.Digest, Bytes: m.Bytes, HasLinks: m.HasLinks, NoIndex: m.NoIndex})
}

// conditions are the headers that ask for the page only if it has changed; none when that was said too often.
func (m memo) conditions() http.Header {
	header := make(http.Header)
	if m.NotModified >= maxNotModified {
		return header
	}
	if m.ETag != "" {
		header.Set("If-None-Match", string(m.ETag))
	}
	if m.LastModified != "" {
		header.Set("If-Modified-Since", string(m.LastModified))
	}
	return header
}
