package status

import (
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// How long a look takes at most: an operator who asks what is wrong does not wait for it.
const (
	statsLimit = 2 * time.Second        // for the first answer
	aliveLimit = 400 * time.Millisecond // for the health check that follows, if there was none
	readLimit  = 1500 * time.Millisecond
	lookLimit  = 2900 * time.Millisecond

	// slowStore is a time for counts in which something is wrong with the store.
	slowStore = 500 * time.Millisecond
)

// Kinds of findings, the most severe first.
const (
	kindDispatcher  = "DISPATCHER"
	kindStore       = "STORE"
	kindHeld        = "HELD"
	kindStuck       = "STUCK"
	kindNoCollector = "NO_COLLECTOR"
	kindHung        = "HUNG"
	kindHandler     = "HANDLER"
	kindReleased    = "RELEASED"
	kindBlocked     = "BLOCKED"
	kindFailing     = "FAILING"
	kindBackedOff   = "BACKED_OFF"
	kindLate        = "LATE"
	kindGone        = "GONE"
	kindIdle        = "IDLE"
	kindUnread      = "UNREAD"
)

func kinds() []string {
	return []string{
		kindDispatcher, kindStore, kindHeld, kindStuck, kindNoCollector, kindHung, kindHandler, kindReleased, kindBlocked, kindFailing, kindBackedOff,
		kindLate, kindGone, kindIdle, kindUnread,
	}
}

// finding is something that stands still, why, and the command that shows more or ends it.
type finding struct {
	Kind  string   `json:"kind"`
	Count int      `json:"count"`
	Names []string `json:"names,omitempty"` // the worst first
	Text  string   `json:"text"`
	Next  string   `json:"next"`
}

// look is one look at a Waggle.
type look struct {
	client *client.Client
	now    time.Time
	begun  time.Time
	stats  *pb.GetStatsResponse

	sources sources
	holds   []*pb.Hold
	blocked []*pb.Hold
	pools   []*pb.Pool
	workers []*pb.Collector
	leases  []*pb.HeldLease

	findings []finding
}

// sources is what was seen of them.
type sources struct {
	seen     int
	whole    bool // all were seen
	next     *pb.Source
	released []*pb.ReleasedTask
	by       map[pb.SourceHealth]*healthCount
}

// healthCount is how many sources have a health, and those that are worst.
type healthCount struct {
	count int
	gates map[pb.GateKind]int // by the gate that decides
	worst []*pb.Source        // at most shownNames
}

// shownNames is how many names a finding has.
const shownNames = 3

// add adds a finding. Names are of what it is about, the worst first.
func (l *look) add(kind string, count int, names []string, next, text string) {
	l.findings = append(l.findings, finding{Kind: kind, Count: count, Names: names, Text: strings.TrimSpace(text), Next: next})
}

// okCount is how many are OK.
func (s *sources) okCount() int {
	if count := s.by[pb.SourceHealth_SOURCE_HEALTH_OK]; count != nil {
		return count.count
	}
	return 0
}

// seenText is how many sources were looked at, and are OK.
func (s *sources) seenText() string {
	of := " of "
	if !s.whole {
		of = " of the first " // there was no time for the others
	}
	return human.Count(s.okCount()) + of + human.Plural(s.seen, "source") + " OK"
}
