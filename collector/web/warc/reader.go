package warc

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// errRecord marks what is no record.
var errRecord = errors.New("no WARC record")

// scanner reads the records of a file one after the other, and knows where each one is.
type scanner struct {
	counted *countingReader
	buffer  *bufio.Reader
	unzip   *gzip.Reader
}

// scanned is a record that was read.
type scanned struct {
	header     textproto.MIMEHeader
	block      []byte // of metadata; of other records it is only checked
	begin, end int64
}

// countingReader counts what is read through it.
type countingReader struct {
	io.Reader
	n int64
}

// Read counts.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func newScanner(r io.Reader) *scanner {
	counted := &countingReader{Reader: r}
	return &scanner{counted: counted, buffer: bufio.NewReaderSize(counted, 256<<10), unzip: new(gzip.Reader)}
}

func (s *scanner) offset() int64 { return s.counted.n - int64(s.buffer.Buffered()) }

// next reads a record to its end, checksum included. It returns io.EOF behind the last one, and other errors where a
// record is not whole.
func (s *scanner) next() (*scanned, error) {
	begin := s.offset()
	if err := s.unzip.Reset(s.buffer); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%w at %d: %w", errRecord, begin, err)
	}
	s.unzip.Multistream(false)
	text := bufio.NewReader(s.unzip)
	header, length, err := readHeader(text)
	if err != nil {
		return nil, fmt.Errorf("%w at %d: %w", errRecord, begin, err)
	}
	var block bytes.Buffer
	keep := io.Discard
	if header.Get("WARC-Type") == typeMetadata {
		keep = &block
	}
	if _, err := io.CopyN(keep, text, length); err != nil {
		return nil, fmt.Errorf("%w at %d: block: %w", errRecord, begin, err)
	}
	if end, err := io.ReadAll(io.LimitReader(text, 5)); err != nil || string(end) != "\r\n\r\n" {
		return nil, errors.Join(fmt.Errorf("%w at %d: it ends in %q", errRecord, begin, end), err)
	}
	return &scanned{header: header, block: block.Bytes(), begin: begin, end: s.offset()}, nil
}

// readHeader reads a record's header and the length of its block.
func readHeader(r *bufio.Reader) (textproto.MIMEHeader, int64, error) {
	text := textproto.NewReader(r)
	first, err := text.ReadLine()
	if err != nil {
		return nil, 0, err
	}
	if first != version {
		return nil, 0, fmt.Errorf("first line %q, want %q", first, version)
	}
	header, err := text.ReadMIMEHeader()
	if err != nil {
		return nil, 0, err
	}
	length, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
	if err != nil || length < 0 {
		return nil, 0, fmt.Errorf("Content-Length %q", header.Get("Content-Length"))
	}
	return header, length, nil
}

// readPayload opens the payload of the response record that r begins with, and tells the content codings that its
// head names.
func readPayload(r io.Reader) (payload io.Reader, codings http.Header, err error) {
	unzip, err := gzip.NewReader(r)
	if err != nil {
		return nil, nil, err
	}
	unzip.Multistream(false)
	text := bufio.NewReader(unzip)
	_, length, err := readHeader(text)
	if err != nil {
		return nil, nil, err
	}
	block := bufio.NewReader(io.LimitReader(text, length))
	codings = make(http.Header)
	for first := true; ; first = false {
		line, err := block.ReadString('\n')
		if err != nil {
			return nil, nil, fmt.Errorf("%w: head of the answer: %w", errRecord, err)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" && !first {
			return block, codings, nil
		}
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "Content-Encoding") {
			codings.Add("Content-Encoding", strings.TrimSpace(value))
		}
	}
}
