package load

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Workload is how tasks spread over queues and sources, and how collectors ask for them.
type Workload struct {
	// Name is how flags and tables call it.
	Name string
	// Queues get the tasks by turns; each belongs to one of the Sources.
	Queues, Sources int
	// InFlight is how many leases a queue may have at a time. Queues have no delay.
	InFlight int32
	// Batch is the most tasks of a fetch, Collectors how many fetch at once.
	Batch, Collectors int
	// Carried: reports go along in the next fetch instead of a call of their own.
	Carried bool
	// Streamed: each collector has a Work stream, and its reports go along in the next fetch.
	Streamed bool
	// PerConn is how many collectors share a connection; 0: 4.
	PerConn int
	// Narrowed: each collector fetches from a source of its own. There are as many of both.
	Narrowed bool
	// Pause is how long a collector waits after it has reported.
	Pause time.Duration
	// Lease is how long leases last; 0: none expires.
	Lease time.Duration
	// URLBytes is the length of URLs; 0: as short as they are.
	URLBytes int
}

// Workloads are the ways in which tasks spread, each fetched 100 a call by 16 collectors. The first is what crawlers run.
func Workloads() []Workload {
	return []Workload{
		{Name: "polite", Queues: 10_000, Sources: 1, InFlight: 1, Batch: 100, Collectors: 16},
		{Name: "queue", Queues: 1, Sources: 1, InFlight: 10_000, Batch: 100, Collectors: 16},
		{Name: "queues", Queues: 1000, Sources: 1, InFlight: 1000, Batch: 100, Collectors: 16},
		{Name: "sources", Queues: 1000, Sources: 1000, InFlight: 1000, Batch: 100, Collectors: 16},
	}
}

// OneACall is the workload with one task a call, by 64 collectors.
func (w Workload) OneACall(carried bool) Workload {
	w.Batch, w.Collectors, w.Carried = 1, 64, carried
	return w
}

// OnStreams is the workload with a Work stream for each collector, of which so many share a connection.
func (w Workload) OnStreams(perConn int) Workload {
	w.Streamed, w.PerConn = true, perConn
	return w
}

// OfOneSource is the workload with a source for each of 64 collectors, which fetches from no other.
func (w Workload) OfOneSource() Workload {
	w.Name, w.Sources, w.Collectors, w.Batch, w.Narrowed = "narrowed", 64, 64, 10, true
	return w
}

// ASourceEach is the workload with a source for each queue.
func (w Workload) ASourceEach() Workload {
	w.Name, w.Sources = w.Name+"-sources", w.Queues
	return w
}

// Within is the workload with no more queues and sources than tasks.
func (w Workload) Within(tasks int) Workload {
	w.Queues = min(w.Queues, tasks)
	w.Sources = min(w.Sources, w.Queues)
	return w
}

// payloadBytes is the size of a task's payload, which begins with the task's number.
const payloadBytes = 200

// queuePattern is the rule that covers all queues.
const queuePattern = "*.bench.invalid"

func sourceID(i int) string { return fmt.Sprintf("bench.s%d", i) }

func (w *Workload) queueOf(number int) int { return number % w.Queues }

// item is the task with a number.
func (w *Workload) item(number int) *pb.SubmitItem {
	queue := w.queueOf(number)
	payload := make([]byte, payloadBytes)
	binary.LittleEndian.PutUint64(payload, uint64(number))
	url := fmt.Sprintf("https://q%d.bench.invalid/task/%d", queue, number)
	if missing := w.URLBytes - len(url); missing > 0 {
		url += "/" + strings.Repeat("x", missing-1)
	}
	return &pb.SubmitItem{SourceId: sourceID(queue % w.Sources), Payload: payload, Url: url}
}

// numberOf reads a task's number; -1 when it is none of item.
func numberOf(task *pb.Task) int {
	if len(task.GetPayload()) != payloadBytes {
		return -1
	}
	return int(binary.LittleEndian.Uint64(task.GetPayload()))
}
