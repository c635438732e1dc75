package server_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/store"
)

// desk is what benchmarks measure: the handlers, the dispatcher and the memory
// store behind them, and the coding of messages. What gRPC itself costs is not
// in it.
type desk struct {
	dispatch  pb.DispatchServiceServer
	tasks     pb.TaskServiceServer
	submitted int
	payload   []byte
}

func newDesk(b *testing.B) *desk {
	b.Helper()
	store, err := store.New(store.Config{})
	if err != nil {
		b.Fatal(err)
	}
	d, err := engine.New(engine.Config{Store: store, ID: "d1"})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ran := make(chan error, 1)
	go func() { ran <- d.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			b.Error(err)
		}
	})
	if _, _, err := operate.New(d).SetQueueRule(b.Context(), "*", operate.AnyRules, func(r *dispatch.QueueRule) {
		r.Settings.MinDelay, r.Settings.MaxInFlight = 0, 1000
	}); err != nil {
		b.Fatal(err)
	}
	if _, err := operate.New(d).CreateSource(b.Context(), "bench", dispatch.SourceSpec{}); err != nil {
		b.Fatal(err)
	}
	k := &desk{payload: make([]byte, 200)}
	k.dispatch, k.tasks = server.Services(operate.New(d))
	return k
}

func encode(b *testing.B, sent proto.Message) []byte {
	b.Helper()
	data, err := proto.Marshal(sent)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func decode[M proto.Message](b *testing.B, data []byte, received M) M {
	b.Helper()
	if err := proto.Unmarshal(data, received); err != nil {
		b.Fatal(err)
	}
	return received
}

// submission is a call of SubmitTasks as it comes in.
func (k *desk) submission(b *testing.B, n int) []byte {
	b.Helper()
	request := &pb.SubmitTasksRequest{}
	for range n {
		k.submitted++
		request.Items = append(request.Items, &pb.SubmitItem{
			SourceId: "bench", Url: "https://q.bench.invalid/task/" + strconv.Itoa(k.submitted), Payload: k.payload,
		})
	}
	return encode(b, request)
}

func (k *desk) submit(b *testing.B, request []byte) {
	b.Helper()
	reply, err := k.tasks.SubmitTasks(b.Context(), decode(b, request, new(pb.SubmitTasksRequest)))
	if err != nil {
		b.Fatal(err)
	}
	encode(b, reply)
}

func (k *desk) fetch(b *testing.B, request *pb.FetchTaskRequest) []byte {
	b.Helper()
	reply, err := k.dispatch.FetchTask(b.Context(), request)
	if err != nil {
		b.Fatal(err)
	}
	return encode(b, reply)
}

func allSucceeded(leased []*pb.LeasedTask) []*pb.TaskReport {
	reports := make([]*pb.TaskReport, len(leased))
	for i, lt := range leased {
		reports[i] = &pb.TaskReport{
			TaskId: lt.GetLease().GetTaskId(), LeaseToken: lt.GetLease().GetLeaseToken(),
			Outcome: &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{HttpStatus: 200}}},
		}
	}
	return reports
}

// BenchmarkService_FetchReport fetches a batch and reports it, by how many
// tasks a call has.
func BenchmarkService_FetchReport(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch%d", batch), func(b *testing.B) {
			k := newDesk(b)
			calls := 0
			b.ReportAllocs()
			for b.Loop() {
				calls++
				b.StopTimer()
				k.submit(b, k.submission(b, batch))
				b.StartTimer()
				reply := k.fetch(b, &pb.FetchTaskRequest{
					CollectorId: "c1", Session: "s1", ClientToken: strconv.Itoa(calls), MaxTasks: int32(batch), Wait: durationpb.New(0),
				})
				b.StopTimer()
				leased := decode(b, reply, new(pb.FetchTaskResponse)).GetLeasedTasks()
				if len(leased) != batch {
					b.Fatalf("fetched %d tasks, want %d", len(leased), batch)
				}
				request := encode(b, &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: allSucceeded(leased)})
				b.StartTimer()
				results, err := k.dispatch.ReportTask(b.Context(), decode(b, request, new(pb.ReportTaskRequest)))
				if err != nil {
					b.Fatal(err)
				}
				encode(b, results)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/task")
		})
	}
}

// BenchmarkService_Submit submits tasks, by how many a call has.
func BenchmarkService_Submit(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch%d", batch), func(b *testing.B) {
			k := newDesk(b)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				request := k.submission(b, batch)
				b.StartTimer()
				k.submit(b, request)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/task")
		})
	}
}
