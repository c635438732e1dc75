package load

import (
	"encoding/binary"
	"fmt"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Workload is how tasks spread over queues and sources, and how collectors ask for them.
type Workload struct {
	// Name is how flags and tables call it.
	Name string
	// Queues, by turns, of the tasks; each queue belongs to one of the Sources.
	Queues, Sources int
	// InFlight is how many leases a queue may have at a time. Queues have no delay.
	InFlight int32
	// Batch is the most tasks of a fetch, Collectors how many collectors fetch at once.
	Batch, Collectors int
	// Carried: reports go along in the next fetch instead of a call of their own.
	Carried bool
	// Tasks is how many make a measurement of some seconds.
	Tasks int
}

// Workloads are those that builds are compared by.
func Workloads() []Workload {
	return []Workload{
		{Name: "queue", Queues: 1, Sources: 1, InFlight: 10_000, Batch: 100, Collectors: 16, Tasks: 60_000},
		{Name: "queues", Queues: 1000, Sources: 1, InFlight: 1000, Batch: 100, Collectors: 16, Tasks: 60_000},
		{Name: "polite", Queues: 10_000, Sources: 1, InFlight: 1, Batch: 100, Collectors: 16, Tasks: 60_000},
		{Name: "sources", Queues: 1000, Sources: 1000, InFlight: 1000, Batch: 100, Collectors: 16, Tasks: 60_000},
		{Name: "single", Queues: 1000, Sources: 1, InFlight: 1000, Batch: 1, Collectors: 64, Tasks: 20_000},
		{Name: "carried", Queues: 1000, Sources: 1, InFlight: 1000, Batch: 1, Collectors: 64, Carried: true, Tasks: 20_000},
	}
}

// payloadBytes is the size of a task's payload, which begins with the task's number.
const payloadBytes = 200

// queuePattern is the rule that covers all queues.
const queuePattern = "*.bench.invalid"

func sourceID(i int) string { return fmt.Sprintf("bench.s%d", i) }

// item is the task with a number.
func (w *Workload) item(number int) *pb.SubmitItem {
	queue := number % w.Queues
	payload := make([]byte, payloadBytes)
	binary.LittleEndian.PutUint64(payload, uint64(number))
	return &pb.SubmitItem{
		SourceId: sourceID(queue % w.Sources), Payload: payload,
		Url: fmt.Sprintf("https://q%d.bench.invalid/task/%d", queue, number),
	}
}

// numberOf reads a task's number; -1 when it is none of item.
func numberOf(task *pb.Task) int {
	if len(task.GetPayload()) != payloadBytes {
		return -1
	}
	return int(binary.LittleEndian.Uint64(task.GetPayload()))
}
