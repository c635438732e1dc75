package warc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// location is a response record that has the payload of a body, by the names that it has in its line.
type location struct {
	Digest        string `json:"digest"` // SHA-256 of the body, in hexadecimal
	Bytes         int64  `json:"bytes"`  // its length
	File          string `json:"file"`
	Offset        int64  `json:"offset"`
	Length        int64  `json:"length"`
	RecordID      string `json:"id"`
	Date          string `json:"date"`
	PayloadDigest string `json:"payload"`
	URI           string `json:"uri"`
}

// locationOf is where an entry's payload is.
func locationOf(e *Entry) location {
	return location{
		Digest: e.Digest, Bytes: e.Bytes, File: e.File, Offset: e.Offset, Length: e.Length,
		RecordID: e.RecordID, Date: e.Date, PayloadDigest: e.PayloadDigest, URI: oneLine(e.FinalURL),
	}
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
	for line := range bytes.Lines(text) {
		var l location
		if bytes.Contains(line, []byte(digest)) && json.Unmarshal(line, &l) == nil && l.Digest == digest && filepath.IsLocal(l.File) {
			found = append(found, l) // others are of other bodies, or a crash has cut them
		}
	}
	return found, nil
}

// add notes where a body is. It begins with an empty line, so that a line which a crash has cut spoils no other.
func (d *digests) add(l location) (err error) {
	path, err := d.path(l.Digest)
	if err != nil {
		return err
	}
	line, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("note digest: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("note digest: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := fmt.Fprintf(file, "\n%s\n", line); err != nil {
		return fmt.Errorf("note digest: %w", err)
	}
	return nil
}
