package warc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/waggle-crawl/waggle/collector/web"
)

// pageField is a field of a page by its name in the metadata record, with a pointer to its value.
type pageField struct {
	name  string
	value any
}

// text writes the value.
func (f pageField) text() string {
	if t, ok := f.value.(*time.Time); ok {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(reflect.ValueOf(f.value).Elem())
}

// parse reads the value. An empty text, as of a field that is newer than the archive, leaves it as it is.
func (f pageField) parse(text string) (err error) {
	if text == "" {
		return nil
	}
	switch v := f.value.(type) {
	case *string:
		*v = text
	case *time.Time:
		*v, err = time.Parse(time.RFC3339Nano, text)
	default: // numbers and truth values are written as in JSON
		err = json.Unmarshal([]byte(text), v)
	}
	return err
}

// fieldsOf lists the fields of the metadata record of a page, in order.
func fieldsOf(p *web.Page) []pageField {
	return []pageField{
		{"fetchTimeMs", &p.FetchMillis},
		{"waggle-task-id", &p.TaskID},
		{"waggle-cycle", &p.Cycle},
		{"waggle-fence", &p.Fence},
		{"waggle-attempt", &p.Attempt},
		{"waggle-run", &p.Run},
		{"waggle-source-id", &p.SourceID},
		{"waggle-url", &p.URL},
		{"waggle-final-url", &p.FinalURL},
		{"waggle-redirected-from", &p.RedirectedFrom},
		{"waggle-status", &p.Status},
		{"waggle-content-type", &p.ContentType},
		{"waggle-fetch-time", &p.FetchTime},
		{"waggle-digest", &p.Digest},
		{"waggle-bytes", &p.Bytes},
		{"waggle-changed", &p.Changed},
		{"waggle-links", &p.Links},
		{"waggle-canonical", &p.Canonical},
		{"waggle-no-index", &p.NoIndex},
		{"waggle-title", &p.Title},
		{"waggle-author", &p.Author},
		{"waggle-published", &p.Published},
		{"waggle-depth", &p.Depth},
		{"waggle-kind", &p.Kind},
	}
}

// pageFields is the block of the metadata record.
func pageFields(page *web.Page) []byte {
	var block bytes.Buffer
	for _, f := range fieldsOf(page) {
		writeFields(&block, []field{{f.name, f.text()}})
	}
	return block.Bytes()
}

// pageOf reads the page that a metadata record describes.
func pageOf(get func(name string) string) (page web.Page, err error) {
	for _, f := range fieldsOf(&page) {
		if err := f.parse(get(f.name)); err != nil {
			return page, fmt.Errorf("metadata field %s: %w", f.name, err)
		}
	}
	return page, nil
}
