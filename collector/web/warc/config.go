package warc

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

const (
	minFileBytes   = 64 << 10
	maxCollectorID = 128
)

// Config says where a Sink writes, and what it says of itself.
type Config struct {
	// Dir is the directory; it is made when missing. Sinks of different collector ids may share it.
	Dir string

	// CollectorID names the files: waggle-<CollectorID>-<time>-<number>.warc.gz. 1 to 128 of a-z, 0-9, '.', '_', '-'.
	CollectorID string

	// MaxFileBytes is the size from which a file gets no more pages. 64 KiB or more; default 1 GiB, as archives like it.
	// A page that is larger gets a file of its own.
	MaxFileBytes int64

	// MaxFileAge is the age from which a file gets no more pages. Default: none.
	MaxFileAge time.Duration

	// Keep is how long a file stays after its last page, 1 minute or more; then it is removed with its index, and its payloads are
	// stored anew when they come again. A revisit may outlive the record that it refers to. Default: files stay.
	Keep time.Duration

	// Software and Operator stand in the warcinfo records: the crawler with its version, and how to reach who runs it.
	// Defaults: "waggle", and none.
	Software string
	Operator string
}

func (c Config) withDefaults() Config {
	c.MaxFileBytes = cmp.Or(c.MaxFileBytes, 1<<30)
	c.Software = cmp.Or(c.Software, "waggle")
	return c
}

// Validate checks the configuration; its error names the field, the value and the limit.
func (c *Config) Validate() error {
	if c.Dir == "" {
		return fmt.Errorf("field Dir: want a directory")
	}
	if c.CollectorID == "" || len(c.CollectorID) > maxCollectorID ||
		strings.Trim(c.CollectorID, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return fmt.Errorf("field CollectorID: %q: want 1 to %d of a-z, 0-9, '.', '_', '-'", c.CollectorID, maxCollectorID)
	}
	if c.MaxFileBytes != 0 && c.MaxFileBytes < minFileBytes {
		return fmt.Errorf("field MaxFileBytes: %d: want %d or more", c.MaxFileBytes, minFileBytes)
	}
	if c.MaxFileAge < 0 {
		return fmt.Errorf("field MaxFileAge: %v: want 0 or more", c.MaxFileAge)
	}
	if c.Keep != 0 && c.Keep < time.Minute {
		return fmt.Errorf("field Keep: %v: want 1m or more", c.Keep)
	}
	for _, text := range []struct{ name, value string }{{"Software", c.Software}, {"Operator", c.Operator}} {
		if strings.ContainsFunc(text.value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("field %s: %q: want one line of text", text.name, text.value)
		}
	}
	return nil
}
