package bench

import "testing"

func TestLatencyOf(t *testing.T) {
	t.Parallel()
	var samples []int64
	for i := range int64(1000) {
		samples = append(samples, (1000-i)*1_000_000)
	}
	got := latencyOf(samples)
	if want := (Latency{Count: 1000, P50: 0.5, P99: 0.99, P999: 0.999, Max: 1}); got != want {
		t.Errorf("latencyOf(1 ms to 1 s) = %+v, want %+v", got, want)
	}
	if got := latencyOf(nil); got != (Latency{}) {
		t.Errorf("latencyOf(nothing) = %+v", got)
	}
}

func TestSampleOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   Sample
	}{
		{nil, Sample{}},
		{[]float64{3}, Sample{3, 3, 3}},
		{[]float64{9, 1, 2}, Sample{2, 1, 9}},
		{[]float64{4, 1, 2, 3}, Sample{2.5, 1, 4}},
	} {
		if got := sampleOf(c.values); got != c.want {
			t.Errorf("sampleOf(%v) = %+v, want %+v", c.values, got, c.want)
		}
	}
}

func TestReading_Command(t *testing.T) {
	t.Parallel()
	var r reading
	r.command("fcall", "calls=7,usec=1400,usec_per_call=200.00,rejected_calls=0,failed_calls=0")
	r.command("get", "calls=10,usec=20,usec_per_call=2.00")
	if r.scripts != 7 || r.scriptSecs != 0.0014 || r.commands != 10 {
		t.Errorf("reading = %+v", r)
	}
}

func TestPairs(t *testing.T) {
	t.Parallel()
	got := pairs([]int{1, 100, 1000}, []int{1, 16, 64})
	want := [][2]int{{1, 16}, {100, 16}, {1000, 16}, {100, 1}, {100, 64}, {1, 64}}
	if len(got) != len(want) {
		t.Fatalf("pairs = %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("pairs = %v, want %v", got, want)
		}
	}
}
