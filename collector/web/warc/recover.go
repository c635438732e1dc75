package warc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/collector/web"
)

// recoverAll finishes the archives that dead processes of the collector have left open.
func recoverAll(cfg *Config, known *digests) error {
	files, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		name, isOpen := strings.CutSuffix(file.Name(), archiveSuffix+openSuffix)
		match := fileName.FindStringSubmatch(name)
		if !isOpen || match == nil || match[1] != cfg.CollectorID {
			continue
		}
		if err := recoverFile(cfg.Dir, name, known); err != nil {
			return fmt.Errorf("recover %s: %w", file.Name(), err)
		}
	}
	return nil
}

// recoverFile cuts an archive behind its last whole group, writes its index anew, and gives it its name. A file that a
// living process writes is left to it.
func recoverFile(dir, name string, known *digests) error {
	o := &output{dir: dir, name: name}
	err := o.open(os.O_RDWR)
	if errors.Is(err, errTaken) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, end, err := scanGroups(o.archive, name+archiveSuffix)
	if err != nil {
		return errors.Join(err, o.leave())
	}
	err = o.restore(entries, end)
	for i := 0; err == nil && i < len(entries); i++ {
		err = restoreDigest(known, &entries[i])
	}
	if err != nil {
		return errors.Join(err, o.leave())
	}
	return o.finish()
}

// restore makes the archive end at end, and the index have the entries.
func (o *output) restore(entries []Entry, end int64) error {
	var index bytes.Buffer
	for i := range entries {
		line, err := entries[i].line()
		if err != nil {
			return err
		}
		index.Write(line)
	}
	if err := o.cut(end); err != nil {
		return err
	}
	if err := o.index.Truncate(0); err != nil {
		return err
	}
	o.groups = len(entries)
	_, err := o.index.WriteAt(index.Bytes(), 0)
	return err
}

// cut ends the archive at end. What lies behind is kept in a file of its own, for people to look at.
func (o *output) cut(end int64) (err error) {
	info, err := o.archive.Stat()
	if err != nil || info.Size() == end {
		return err
	}
	if end > 0 {
		rest, err := os.Create(o.archivePath() + cutSuffix)
		if err != nil {
			return err
		}
		_, err = io.Copy(rest, io.NewSectionReader(o.archive, end, info.Size()-end))
		if err := errors.Join(err, rest.Sync(), rest.Close()); err != nil {
			return err
		}
	}
	return o.archive.Truncate(end)
}

// restoreDigest notes where a body is, if the process died before it could.
func restoreDigest(known *digests, entry *Entry) error {
	if !entry.whole {
		return nil
	}
	places, err := known.find(entry.Digest)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(places, func(l location) bool { return l.PayloadDigest == entry.PayloadDigest }) {
		return nil
	}
	return known.add(locationOf(entry))
}

// scanGroups reads an archive from its begin up to where it is whole: the groups' entries, and where the last one ends.
func scanGroups(r io.Reader, file string) (entries []Entry, end int64, err error) {
	records := newScanner(r)
	answers := make(map[string]*scanned) // of the group that is read, by record id
	for {
		record, err := records.next()
		if err != nil {
			if _, disk := errors.AsType[*os.PathError](err); disk {
				return nil, 0, err
			}
			return entries, end, nil
		}
		switch record.header.Get("WARC-Type") {
		case typeResponse, typeRevisit:
			answers[record.header.Get("WARC-Record-ID")] = record
		case typeMetadata:
			answer := answers[record.header.Get("WARC-Concurrent-To")]
			page, err := readPage(record.block)
			if err != nil || answer == nil {
				return entries, end, nil
			}
			page.File = file
			entries, end = append(entries, entryOf(page, answer)), record.end
			clear(answers)
		}
	}
}

// readPage reads the block of a metadata record.
func readPage(block []byte) (web.Page, error) {
	text := io.MultiReader(bytes.NewReader(block), strings.NewReader("\r\n"))
	header, err := textproto.NewReader(bufio.NewReader(text)).ReadMIMEHeader()
	if err != nil {
		return web.Page{}, err
	}
	return pageOf(header.Get)
}

// entryOf is the entry of a group that was read.
func entryOf(page web.Page, answer *scanned) Entry {
	return Entry{
		Page: page, Type: answer.header.Get("WARC-Type"), RecordID: answer.header.Get("WARC-Record-ID"),
		Date: answer.header.Get("WARC-Date"), PayloadDigest: answer.header.Get("WARC-Payload-Digest"),
		Offset: answer.begin, Length: answer.end - answer.begin,
		whole: answer.header.Get("WARC-Type") == typeResponse && isWhole(&page, answer.header.Get("WARC-Truncated")),
	}
}
