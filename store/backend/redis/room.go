package redis

import (
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	// entryBytes of memory Redis takes for a byte of a group, at most, about: names of fields, entries of tables, buffers.
	entryBytes = 3
	// leastReserve is kept for what drains: a group on its way, and the buffers of connections.
	leastReserve = 4 << 20
)

// memory is how much room the Redis of a shard has, by what it said last.
type memory struct {
	used, limit int64 // limit 0: there is none
	since       int64 // bytes of groups that were promised since then
	refused     bool  // Redis has refused a group since then
}

// reserve is what growth must leave.
func (m *memory) reserve() int64 { return min(max(m.limit/16, leastReserve), m.limit/4) }

// read takes what Redis says.
func (m *memory) read(used, limit int64) { *m = memory{used: used, limit: limit} }

// grow is an error if there is no room for a group of that many bytes.
func (m *memory) grow(bytes int) error {
	left := m.limit - m.reserve() - m.used - entryBytes*m.since
	if m.refused || m.limit > 0 && left < entryBytes*int64(bytes) {
		return fmt.Errorf("%w: redis uses %d of %d bytes", dispatch.ErrStoreFull, m.used, m.limit)
	}
	m.since += int64(bytes)
	return nil
}
