package web

import (
	"encoding/json"
	"net/http"
)

// maxMemo is the longest memo, in bytes.
const maxMemo = 4 << 10

// memo is what one crawl of a page leaves for the next one.
type memo struct {
	// URL that answered; the validators hold for it and for no other.
	URL          string `json:"url,omitempty"`
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`

	// Digest and Bytes of the body, its ContentType, whether it had links, and whether it asked not to be indexed.
	Digest      string `json:"digest"`
	Bytes       int64  `json:"bytes,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	HasLinks    bool   `json:"has_links,omitempty"`
	NoIndex     bool   `json:"no_index,omitempty"`
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

// conditions are the headers that ask for the page only if it has changed.
func (m memo) conditions() http.Header {
	header := make(http.Header)
	if m.ETag != "" {
		header.Set("If-None-Match", m.ETag)
	}
	if m.LastModified != "" {
		header.Set("If-Modified-Since", m.LastModified)
	}
	return header
}
