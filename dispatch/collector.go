package dispatch

import (
	"context"
	"time"
)

// How long collectors may be silent.
const (
	// IdleBeat is the interval of beats of a collector that holds no lease, and the
	// longest there is.
	IdleBeat = 15 * time.Second
	// GoneAfter is how long a collector is silent before it is gone: three beats.
	GoneAfter = 3 * IdleBeat
	// PollNoted is how long after a store has noted that it saw a collector it need
	// not note a poll of it.
	PollNoted = time.Second
	// CollectorMemory is how long a collector that is gone is remembered, and with
	// it which of its sessions were replaced.
	CollectorMemory = 24 * time.Hour
)

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
	Stopping bool     `json:"stopping,omitempty"`
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

// Collectors keeps what collectors tell of themselves.
type Collectors interface {
	// Beats records presence. The session rules are those of BeginPolls, but for the beat
	// with which a session has Ended: what comes after it changes nothing of what it told,
	// and where another session is current it changes nothing. Each beat is atomic, and
	// idempotent but for the time at which the collector was seen.
	Beats(ctx context.Context, beats []CollectorInfo) ([]PollState, error)
	// ListCollectors lists those of a filter. Collectors silent for CollectorMemory
	// are forgotten.
	ListCollectors(ctx context.Context, filter CollectorFilter, after string, limit int) ([]*CollectorRecord, error)
	// Forget removes collectors not seen since before, up to limit, and returns how
	// many. Each is removed in one step; repeated, it goes on.
	Forget(ctx context.Context, before time.Time, limit int) (int, error)
}

// CollectorFilter selects collectors to list, and what is read of each. Without IDs and
// Since they are listed by id, ascending, from the first after after.
type CollectorFilter struct {
	// IDs, unless nil, are those to read: the answer has a record for each, in their
	// order, nil for one that is not known. after and limit are not looked at.
	IDs []string
	// Since, unless zero, lists those that were seen at it or later, to within a
	// millisecond, and have not ended: any limit of them, in no order, and of each the
	// id alone. after is not looked at.
	Since time.Time
	// Held has their leases counted. That reads of each collector in every shard,
	// several times where it holds many: only who shows the numbers should ask.
	Held bool
}
