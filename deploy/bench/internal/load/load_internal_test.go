package load

import (
	"strings"
	"testing"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func leased(w *Workload, number int) *pb.LeasedTask {
	return &pb.LeasedTask{Task: &pb.Task{Id: "t", Payload: w.item(number).GetPayload()}, Lease: &pb.Lease{TaskId: "t"}}
}

// TestLoad_Receive shows that a dispatcher that hands out what it may not fails the run.
func TestLoad_Receive(t *testing.T) {
	t.Parallel()
	w := Workloads()[0]
	for _, c := range []struct {
		want  string // part of the error; "": none
		tasks []*pb.LeasedTask
	}{
		{"", []*pb.LeasedTask{leased(&w, 0), leased(&w, 1)}},
		{"handed out twice", []*pb.LeasedTask{leased(&w, 1), leased(&w, 1)}},
		{"never submitted", []*pb.LeasedTask{leased(&w, 3)}},
		{"never submitted", []*pb.LeasedTask{{Task: &pb.Task{Payload: []byte("other")}}}},
		{"a fetch of 2 tasks got 3", []*pb.LeasedTask{leased(&w, 0), leased(&w, 1), leased(&w, 2)}},
	} {
		l := &Load{workload: w, given: make([]time.Time, 3), outcome: &Outcome{}}
		reports, err := l.receive(c.tasks, 2, time.Now())
		if c.want == "" && (err != nil || len(reports) != len(c.tasks) || len(l.outcome.Fetches) != 1) {
			t.Errorf("%d reports, %d fetches, %v", len(reports), len(l.outcome.Fetches), err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

func TestLoad_Settle(t *testing.T) {
	t.Parallel()
	ok := &pb.ReportResult{Code: pb.ReportCode_REPORT_CODE_OK, State: pb.TaskState_TASK_STATE_DONE}
	lost := &pb.ReportResult{Code: pb.ReportCode_REPORT_CODE_LEASE_LOST}
	ready := &pb.ReportResult{Code: pb.ReportCode_REPORT_CODE_OK, State: pb.TaskState_TASK_STATE_READY}
	l := &Load{}
	if err := l.settle([]*pb.ReportResult{ok, ok}, 2); err != nil || l.settled != 2 {
		t.Errorf("%d are settled, %v", l.settled, err)
	}
	for _, results := range [][]*pb.ReportResult{{ok}, {ok, lost}, {ok, ready}} {
		if err := l.settle(results, 2); err == nil {
			t.Errorf("2 reports with %v count as settled", results)
		}
	}
}

func TestSpreadOf(t *testing.T) {
	t.Parallel()
	itself := func(v float64) float64 { return v }
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{9, 1, 2}, Spread{Median: 2, Low: 1, High: 9}},
		{[]float64{4, 1, 2, 3}, Spread{Median: 2.5, Low: 1, High: 4}},
	} {
		if got := SpreadOf(c.values, itself); got != c.want {
			t.Errorf("SpreadOf(%v) = %+v, want %+v", c.values, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for i := range 1000 {
		all = append(all, time.Duration(1000-i))
	}
	for q, want := range map[float64]time.Duration{0.5: 500, 0.99: 990, 0.999: 999, 1: 1000} {
		if got := Quantile(all, q); got != want {
			t.Errorf("quantile %v of 1 to 1000 is %d, want %d", q, got, want)
		}
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("a quantile of nothing is %d", got)
	}
}
