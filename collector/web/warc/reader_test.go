package warc_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"encoding/base32"
	"errors"
	"io"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// readRecord is a record as the tests' own reader sees it. It shares no code with the package.
type readRecord struct {
	header        textproto.MIMEHeader
	block         []byte
	offset, after int64
}

func (r *readRecord) kind() string { return r.header.Get("WARC-Type") }

// payload is what follows the head in the block.
func (r *readRecord) payload() []byte {
	_, payload, _ := bytes.Cut(r.block, []byte("\r\n\r\n"))
	return payload
}

// fields reads a block of application/warc-fields.
func (r *readRecord) fields() map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(string(r.block)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), ": ")
		fields[name] = value
	}
	return fields
}

// readFile reads all records of a file, and checks what can be checked of each one by itself.
func readFile(t *testing.T, path string) []*readRecord {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	source := bytes.NewReader(data) // a ByteReader: gzip reads no further than its member
	var records []*readRecord
	for source.Len() > 0 {
		offset := int64(len(data) - source.Len())
		member, err := gzip.NewReader(source)
		if err != nil {
			t.Fatalf("%s at %d: %v", path, offset, err)
		}
		member.Multistream(false)
		text, err := io.ReadAll(member)
		if err != nil {
			t.Fatalf("%s at %d: %v", path, offset, err)
		}
		record := parseRecord(t, text)
		record.offset, record.after = offset, int64(len(data)-source.Len())
		records = append(records, record)
	}
	if len(records) == 0 || records[0].kind() != "warcinfo" {
		t.Fatalf("%s begins with no warcinfo", path)
	}
	if name := records[0].header.Get("WARC-Filename"); name != strings.TrimSuffix(filepath.Base(path), ".open") {
		t.Errorf("%s calls itself %s", path, name)
	}
	return records
}

func parseRecord(t *testing.T, text []byte) *readRecord {
	t.Helper()
	head, rest, ok := bytes.Cut(text, []byte("\r\n\r\n"))
	if !ok || !bytes.HasPrefix(head, []byte("WARC/1.1\r\n")) {
		t.Fatalf("record begins %q", head)
	}
	_, lines, _ := bytes.Cut(append(head, "\r\n\r\n"...), []byte("\r\n"))
	header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(lines))).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("header %q: %v", lines, err)
	}
	block, isWhole := bytes.CutSuffix(rest, []byte("\r\n\r\n"))
	record := &readRecord{header: header, block: block}
	if length, err := strconv.Atoi(header.Get("Content-Length")); err != nil || length != len(block) || !isWhole {
		t.Fatalf("%s record: Content-Length %q, block of %d bytes", record.kind(), header.Get("Content-Length"), len(block))
	}
	if got := header.Get("WARC-Block-Digest"); got != base32SHA1(block) {
		t.Errorf("%s record: WARC-Block-Digest %s, want %s", record.kind(), got, base32SHA1(block))
	}
	if got := header.Get("WARC-Payload-Digest"); record.kind() == "response" && got != base32SHA1(record.payload()) {
		t.Errorf("response record: WARC-Payload-Digest %s, want %s", got, base32SHA1(record.payload()))
	}
	return record
}

func base32SHA1(data []byte) string {
	sum := sha1.Sum(data)
	return "sha1:" + base32.StdEncoding.EncodeToString(sum[:])
}

// ls lists the files of a directory that end in suffix, by name.
func ls(t *testing.T, dir, suffix string) []string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, file := range files {
		if strings.HasSuffix(file.Name(), suffix) {
			paths = append(paths, filepath.Join(dir, file.Name()))
		}
	}
	slices.Sort(paths)
	return paths
}

// readAll reads the records of all finished archives in a directory.
func readAll(t *testing.T, dir string) []*readRecord {
	t.Helper()
	var records []*readRecord
	for _, path := range ls(t, dir, ".warc.gz") {
		records = append(records, readFile(t, path)...)
	}
	return records
}

// only picks the records of one type.
func only(records []*readRecord, kind string) []*readRecord {
	return slices.DeleteFunc(slices.Clone(records), func(r *readRecord) bool { return r.kind() != kind })
}
