package warc

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// location is a response record that has the payload of a body.
type location struct {
	digest         string // SHA-256 of the body, in hexadecimal
	bytes          int64  // its length
	file           string
	offset, length int64
	recordID, date string
	payloadDigest  string
	uri            string
}

// locationFields is how many fields a line has.
const locationFields = 9

// locationOf is where an entry's payload is.
func locationOf(e *Entry) location {
	return location{
		digest: e.Digest, bytes: e.Bytes, file: e.File, offset: e.Offset, length: e.Length,
		recordID: e.RecordID, date: e.Date, payloadDigest: e.PayloadDigest, uri: e.FinalURL,
	}
}

func (l *location) line() string {
	return strings.Join([]string{
		l.digest, strconv.FormatInt(l.bytes, 10), l.file, strconv.FormatInt(l.offset, 10), strconv.FormatInt(l.length, 10),
		l.recordID, l.date, l.payloadDigest, oneLine(l.uri),
	}, "\t") + "\n"
}

// parseLocation reads a line; ok is false for one that a crash has cut.
func parseLocation(line string) (l location, ok bool) {
	parts := strings.Split(line, "\t")
	if len(parts) != locationFields {
		return l, false
	}
	l = location{
		digest: parts[0], file: parts[2], recordID: parts[5], date: parts[6], payloadDigest: parts[7], uri: parts[8],
	}
	var errs [3]error
	l.bytes, errs[0] = strconv.ParseInt(parts[1], 10, 64)
	l.offset, errs[1] = strconv.ParseInt(parts[3], 10, 64)
	l.length, errs[2] = strconv.ParseInt(parts[4], 10, 64)
	return l, errors.Join(errs[:]...) == nil && filepath.IsLocal(l.file)
}

// digests finds bodies by their digests. It is files of lines, each of which is appended in one write, so that any
// number of processes may share it.
type digests struct{ dir string }

// path is the file for a digest.
func (d *digests) path(digest string) (string, error) {
	if decoded, err := hex.DecodeString(digest); err != nil || len(decoded) != sha256.Size {
		return "", fmt.Errorf("digest %q: want %d hexadecimal digits: %w", digest, 2*sha256.Size, fs.ErrNotExist)
	}
	return filepath.Join(d.dir, strings.ToLower(digest[:3])), nil
}

// find returns the places of a body: more than one where its payload differs, as by content coding.
func (d *digests) find(digest string) ([]location, error) {
	path, err := d.path(digest)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up digest: %w", err)
	}
	var found []location
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), []byte(digest)) {
			continue
		}
		if l, ok := parseLocation(lines.Text()); ok {
			found = append(found, l)
		}
	}
	return found, lines.Err()
}

// add notes where a body is. It begins with an empty line, so that a line which a crash has cut spoils no other.
func (d *digests) add(l location) (err error) {
	path, err := d.path(l.digest)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("note digest: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.WriteString("\n" + l.line()); err != nil {
		return fmt.Errorf("note digest: %w", err)
	}
	return nil
}
