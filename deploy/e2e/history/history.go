// Package history writes down what a collector saw of its dispatchers, and finds out whether what several collectors
// saw together keeps Waggle's promises.
//
// A collector writes a Log: one line of JSON an event, each in one write, so that a kill -9 loses none that happened.
// Read joins the logs of a test, and the methods of History check the promises P1, P2, P3, P4, P6 and P7. They compare times
// of different processes, so all of these, Redis included, must run on one machine.
package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// Kind is what an event says.
type Kind string

// The kinds of events.
const (
	Began      Kind = "began"       // the collector's process did; one before it is gone
	FetchSent  Kind = "fetch_sent"  // a FetchTask goes out, for the first time or again
	Granted    Kind = "granted"     // a reply of FetchTask held this lease; Duration from Sent + Waited on
	Started    Kind = "started"     // the handler began
	Ended      Kind = "ended"       // the handler returned; Code says how
	Renewed    Kind = "renewed"     // a beat sent at Sent was answered: the lease runs for Duration from then on
	Lost       Kind = "lost"        // a beat sent at Sent was answered: the lease is gone; Code says why
	ReportSent Kind = "report_sent" // a report goes out; Code is its outcome
	Reported   Kind = "reported"    // a report was answered; Code is the answer's
	Failed     Kind = "failed"      // a call was answered with an error; Code is its method, code and reason
)

// Codes of Ended, ReportSent and Reported that the checks know.
const (
	Succeeded       = "succeeded"
	OK              = "REPORT_CODE_OK"
	AlreadyReported = "REPORT_CODE_ALREADY_REPORTED"
	LeaseLost       = "REPORT_CODE_LEASE_LOST"
)

// Event is one line of a log. Times are microseconds since 1970 by the machine's clock.
type Event struct {
	Kind      Kind   `json:"kind"`
	Time      int64  `json:"time"`           // when it was written, which is after it happened
	Sent      int64  `json:"sent,omitempty"` // when the call that it is the answer to was sent
	Collector string `json:"collector"`

	// The task and its lease, as far as the kind has them.
	Task     string `json:"task,omitempty"`
	Queue    string `json:"queue,omitempty"`
	Token    string `json:"token,omitempty"` // the lease token; of Started and Ended only the Fence is known
	Fence    int64  `json:"fence,omitempty"`
	Attempt  int32  `json:"attempt,omitempty"`
	Waited   int64  `json:"waited,omitempty"`   // of Granted, µs
	Duration int64  `json:"duration,omitempty"` // of Granted and Renewed, µs

	ClientToken string `json:"client_token,omitempty"` // of FetchSent and Granted
	Code        string `json:"code,omitempty"`
}

// Now is the time as events have it.
func Now() int64 { return time.Now().UnixMicro() }

// Log is where a collector writes its events. Its methods may be called from any goroutine.
type Log struct {
	collector string

	mu   sync.Mutex // guards what follows
	file *os.File
	err  error // the first write that failed
}

// Open makes the log of a collector that has begun, or goes on with the one that is there.
func Open(path, collector string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l := &Log{collector: collector, file: file}
	l.Add(Event{Kind: Began})
	return l, nil
}

// Add writes an event, and fills in its time and collector. Close tells whether one could not be written.
func (l *Log) Add(e Event) {
	e.Time, e.Collector = Now(), l.collector
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	l.err = cmp.Or(l.err, err)
}

// Close ends the log. It returns the first error of any Add.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.file.Close())
}

// History is what several collectors saw, in the order of time.
type History struct {
	// Events by Time.
	Events []Event

	leases map[string]*lease   // by token
	tasks  map[string][]*lease // by task, in the order of fences
}

// lease is what the events say of one lease.
type lease struct {
	task, queue, token string
	collector          string
	fence              int64 // the instant of its grant by the store's clock, see fenceSlack
	came               int64 // when its grant did
	replaced           int64 // when its collector began anew, which ends it; 0: it did not
	until              int64 // it stood at least until then, unless a report ended it
	reportSent         int64 // when the first report went out; 0: none did
	accepted           bool  // a report was answered OK or ALREADY_REPORTED
	oks                int   // answers OK
	succeeded          bool  // a report that went out said so
}

// certainEnd is the time until which the lease stood for sure.
func (l *lease) certainEnd() int64 {
	end := l.until
	for _, at := range []int64{l.reportSent, l.replaced} {
		if at > 0 {
			end = min(end, at)
		}
	}
	return end
}

// Read reads logs, and puts their events in the order of time.
func Read(paths ...string) (*History, error) {
	var events []Event
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		for n := 1; lines.Scan(); n++ {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, n, err)
			}
			events = append(events, e)
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return New(events), nil
}

// New makes a History of events in any order. It keeps the slice.
func New(events []Event) *History {
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Time, b.Time) })
	h := &History{Events: events, leases: map[string]*lease{}, tasks: map[string][]*lease{}}
	for _, e := range events {
		if e.Kind == Granted && h.leases[e.Token] == nil {
			l := &lease{task: e.Task, queue: e.Queue, token: e.Token, collector: e.Collector, fence: e.Fence, came: e.Time}
			h.leases[e.Token] = l
			h.tasks[e.Task] = append(h.tasks[e.Task], l)
		}
	}
	for _, e := range events {
		if l := h.leases[e.Token]; l != nil {
			l.note(e)
		}
	}
	h.replace()
	for _, leases := range h.tasks {
		slices.SortFunc(leases, func(a, b *lease) int { return cmp.Compare(a.fence, b.fence) })
	}
	return h
}

// replace notes with leases when their collectors began anew.
func (h *History) replace() {
	began := map[string][]int64{}
	for _, e := range h.Events {
		if e.Kind == Began {
			began[e.Collector] = append(began[e.Collector], e.Time)
		}
	}
	for _, l := range h.leases {
		if i, _ := slices.BinarySearch(began[l.collector], l.came); i < len(began[l.collector]) {
			l.replaced = began[l.collector][i]
		}
	}
}

// note adds what an event says of the lease.
func (l *lease) note(e Event) {
	switch e.Kind {
	case Granted:
		l.until = max(l.until, e.Sent+e.Waited+e.Duration)
	case Renewed:
		l.until = max(l.until, e.Sent+e.Duration)
	case ReportSent:
		if l.reportSent == 0 || e.Time < l.reportSent {
			l.reportSent = e.Time
		}
		l.succeeded = l.succeeded || e.Code == Succeeded
	case Reported:
		if e.Code == OK {
			l.oks++
		}
		l.accepted = l.accepted || e.Code == OK || e.Code == AlreadyReported
	case Began, FetchSent, Started, Ended, Lost, Failed:
	}
}
