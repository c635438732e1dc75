package dispatch

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"time"
)

// Rank orders tasks within a lane: priority first, then recurring tasks before
// those they led to. Lower goes first; 0 to 19.
func Rank(priority int, recurring bool) int {
	rank := (MaxPriority - priority) * 2
	if !recurring {
		rank++
	}
	return rank
}

// SettingsNames lists the names under which settings for queue may be filed,
// the most specific first: the queue itself, its host without a port, "*." and
// each shorter suffix, "*".
func SettingsNames(queue string) []string {
	names := []string{queue}
	host := queue
	if h, _, err := net.SplitHostPort(queue); err == nil {
		host = h
		names = append(names, host)
	}
	for {
		_, rest, ok := strings.Cut(host, ".")
		if !ok {
			break
		}
		names = append(names, "*."+rest)
		host = rest
	}
	return append(names, "*")
}

// LongestMatch finds what is filed for queue under the most specific of its
// [SettingsNames].
func LongestMatch[V any](filed map[string]V, queue string) (found V, ok bool) {
	if len(filed) == 0 {
		return found, false
	}
	if found, ok = filed[queue]; ok {
		return found, true
	}
	host := queue
	if strings.Contains(queue, ":") {
		if h, _, err := net.SplitHostPort(queue); err == nil {
			host = h
			if found, ok = filed[host]; ok {
				return found, true
			}
		}
	}
	var name [MaxQueueLength + 2]byte
	for {
		_, rest, more := strings.Cut(host, ".")
		if !more {
			break
		}
		if found, ok = filed[string(append(append(name[:0], "*."...), rest...))]; ok {
			return found, true
		}
		host = rest
	}
	found, ok = filed["*"]
	return found, ok
}

// NextGrantAfterReport is the earliest next grant of a queue after a report:
// min_delay from the start of the request (from now when its duration is
// unknown, 0), and delay_factor times its duration from now, never before prev
// (P6).
func NextGrantAfterReport(now, prev time.Time, s QueueSettings, fetch time.Duration) time.Time {
	next := latest(prev, now.Add(s.MinDelay-fetch))
	if fetch > 0 && s.DelayFactor > 0 {
		delay := time.Duration(s.DelayFactor * float64(fetch)).Truncate(time.Millisecond)
		next = latest(next, now.Add(min(delay, s.longestAdaptiveDelay())))
	}
	return next
}

// BlockAfter is the automatic block of a queue after its host failed. The first
// failure outside a block begins one, twice as long as the last one, or as long
// as the host asked for; failures inside a block only let it last as long as
// the host asks for.
func BlockAfter(now, until time.Time, step int, s QueueSettings, retryAfter time.Duration) (time.Time, int) {
	if until.After(now) {
		return latest(until, now.Add(min(retryAfter, s.MaxBlock))), step
	}
	step++
	length := retryAfter
	if length <= 0 {
		// 30 doublings of 10 s are 340 years; max_block is at most days.
		length = FirstBlock << min(step-1, 30)
	}
	return now.Add(min(length, s.MaxBlock)), step
}

// Paced are the settings of a queue whose host asks for a delay of its own: its
// MinDelay is the longer of the rule's and asked, of which MaxDelay
// (HostDelayLimit where the rule sets none) counts at most. All that grants and
// reports do goes by it.
func (s QueueSettings) Paced(asked time.Duration) QueueSettings {
	s.MinDelay = max(s.MinDelay, min(asked, cmp.Or(s.MaxDelay, HostDelayLimit)))
	return s
}

// MinDelayGate is the gate of a queue whose next request start is not due yet:
// where its host asks for the longer delay, Reason says so.
func (s QueueSettings) MinDelayGate(until time.Time, asked time.Duration) Gate {
	gate := Gate{Kind: GateMinDelay, Until: until}
	switch paced := s.Paced(asked).MinDelay; {
	case paced <= s.MinDelay:
	case paced < asked:
		gate.Reason = fmt.Sprintf("the host asks for %v between requests, of which max_delay lets %v count", asked, paced)
	default:
		gate.Reason = fmt.Sprintf("the host asks for %v between requests", asked)
	}
	return gate
}

// MaxInFlightGate is the gate of a queue that has as many leases as it may have, or
// more, since it might have more.
func (s QueueSettings) MaxInFlightGate(leased int64) Gate {
	return Gate{Kind: GateMaxInFlight, Reason: fmt.Sprintf("%d in flight of at most %d", leased, s.MaxInFlight)}
}

// LongestDelay is the longest that next_grant can lie ahead by these settings.
// Further ahead, the store's clock was stepped back.
func (s QueueSettings) LongestDelay() time.Duration {
	if s.DelayFactor > 0 {
		return max(s.MinDelay, s.longestAdaptiveDelay())
	}
	return s.MinDelay
}

func (s QueueSettings) longestAdaptiveDelay() time.Duration {
	if s.MaxDelay > 0 {
		return s.MaxDelay
	}
	return MaxMinDelay
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
