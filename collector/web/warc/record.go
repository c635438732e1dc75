package warc

import (
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// version is the line that a record begins with.
const version = "WARC/1.1"

// Types of records.
const (
	typeInfo     = "warcinfo"
	typeRequest  = "request"
	typeResponse = "response"
	typeRevisit  = "revisit"
	typeMetadata = "metadata"
)

// Profiles of revisits.
const (
	profileIdentical   = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
	profileNotModified = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
)

// Content types of blocks.
const (
	contentFields   = "application/warc-fields"
	contentRequest  = "application/http; msgtype=request"
	contentResponse = "application/http; msgtype=response"
)

// timeLayout is how dates are written: WARC/1.1 lets them have fractions.
const timeLayout = "2006-01-02T15:04:05.000Z"

// field is a named value, in a record's header or in a block of application/warc-fields.
type field struct{ name, value string }

// record is one to be written.
type record struct {
	kind, id      string
	date          time.Time
	contentType   string
	payloadDigest string  // empty: none is written
	fields        []field // beside those that every record has; empty values are left out
	block         [][]byte
}

func newRecordID() string { return "<urn:uuid:" + uuid.NewString() + ">" }

// writeTo appends the record to dst as a gzip member of its own, by way of zip.
func (r *record) writeTo(dst *bytes.Buffer, zip *gzip.Writer) error {
	length := 0
	for _, part := range r.block {
		length += len(part)
	}
	var head bytes.Buffer
	head.WriteString(version + "\r\n")
	begin := []field{{"WARC-Type", r.kind}, {"WARC-Record-ID", r.id}, {"WARC-Date", r.date.UTC().Format(timeLayout)}}
	writeFields(&head, append(begin, r.fields...))
	writeFields(&head, []field{
		{"WARC-Payload-Digest", r.payloadDigest},
		{"WARC-Block-Digest", digestOf(r.block...)},
		{"Content-Type", r.contentType},
		{"Content-Length", fmt.Sprint(length)},
	})
	head.WriteString("\r\n")

	zip.Reset(dst)
	parts := append([][]byte{head.Bytes()}, r.block...)
	for _, part := range append(parts, []byte("\r\n\r\n")) {
		if _, err := zip.Write(part); err != nil {
			return fmt.Errorf("compress %s record: %w", r.kind, err)
		}
	}
	return zip.Close()
}

// writeFields writes a line for each value that is not empty.
func writeFields(dst *bytes.Buffer, fields []field) {
	for _, f := range fields {
		if f.value != "" {
			fmt.Fprintf(dst, "%s: %s\r\n", f.name, oneLine(f.value))
		}
	}
}

// oneLine keeps what a value holds from ending its line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// digestOf is the SHA-1 that archives use, of all parts in a row. What a page is taken for is decided by SHA-256, too.
func digestOf(parts ...[]byte) string {
	sum := sha1.New()
	for _, part := range parts {
		sum.Write(part)
	}
	return "sha1:" + base32.StdEncoding.EncodeToString(sum.Sum(nil))
}
