package dispatch

import "time"

// CollectorInfo is what a collector tells of itself with each beat.
type CollectorInfo struct {
	ID       string            `json:"id"`
	Session  string            `json:"session"`
	Version  string            `json:"version,omitempty"`
	Hostname string            `json:"hostname,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Pools    []string          `json:"pools,omitempty"`
	// Sources and Queues are what its fetches are narrowed to; empty: not.
	Sources  []string `json:"sources,omitempty"`
	Queues   []string `json:"queues,omitempty"`
	Slots    int      `json:"slots,omitempty"`
	Draining bool     `json:"draining,omitempty"`
	// Ended: this was its last beat, which stands for its session.
	Ended bool `json:"ended,omitempty"`
}

// CollectorRecord is a collector as a store knows it.
type CollectorRecord struct {
	Info  CollectorInfo
	First time.Time // of this session
	Seen  time.Time // the last beat, or the last poll to within [PollNoted]
	// OnlyPolls: its session has sent no beat, so that Info has its id and session alone.
	OnlyPolls bool
	// Held is how many leases all shards have for it, where that was asked for.
	Held int64
}

// CollectorView is a collector with what operators want of it.
type CollectorView struct {
	CollectorRecord
	// Drained is the drain that holds it, of several the one that ends last; nil when
	// none does.
	Drained *Gate
}

// PollNoted is how long after a store has noted that it saw a collector it need
// not note a poll of it.
const PollNoted = time.Second

// SilentBeats in a row make a collector gone: none is asked for later than
// [IdleBeat].
const SilentBeats = 3

// GoneAfter is how long a collector is silent before it is gone.
const GoneAfter = SilentBeats * IdleBeat

// Gone reports whether the collector has been silent for [SilentBeats] beats.
func (c *CollectorRecord) Gone(now time.Time) bool { return now.Sub(c.Seen) > GoneAfter }

// IdleBeat is the interval of beats of a collector that holds no lease, and the
// longest there is.
const IdleBeat = 15 * time.Second

// CollectorMemory is how long a collector that is gone is remembered, and with
// it which of its sessions were replaced.
const CollectorMemory = 24 * time.Hour
