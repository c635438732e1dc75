package warc

import (
	"fmt"
	"strconv"
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
	switch v := f.value.(type) {
	case *string:
		return *v
	case *int:
		return strconv.Itoa(*v)
	case *int64:
		return strconv.FormatInt(*v, 10)
	case *bool:
		return strconv.FormatBool(*v)
	case *time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return ""
}

// parse reads the value. A field that is missing, as one that is newer than the archive, stays as it is.
func (f pageField) parse(text string) (err error) {
	if text == "" {
		return nil
	}
	switch v := f.value.(type) {
	case *string:
		*v = text
	case *int:
		*v, err = strconv.Atoi(text)
	case *int64:
		*v, err = strconv.ParseInt(text, 10, 64)
	case *bool:
		*v, err = strconv.ParseBool(text)
	case *time.Time:
		*v, err = time.Parse(time.RFC3339Nano, text)
	}
	return err
}

// pageOf reads the page that a metadata record tells of.
func pageOf(get func(name string) string) (page web.Page, err error) {
	for _, f := range fieldsOf(&page) {
		if err := f.parse(get(f.name)); err != nil {
			return page, fmt.Errorf("metadata field %s: %w", f.name, err)
		}
	}
	return page, nil
}
