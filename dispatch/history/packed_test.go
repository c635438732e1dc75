package history_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/history"
)

var start = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

// full is a history of a feed that is crawled each quarter of an hour, and what it packs to.
func full(random *rand.Rand, busy int64) (h history.History, cycles, days []byte) {
	for i := range history.MaxCycles + 20 {
		c := history.Cycle{
			Ended: start.Add(time.Duration(i*900+random.IntN(20)) * time.Second),
			Visit: history.Visit{
				HTTPStatus: 200, Bytes: 20_000 + random.Int64N(90_000*busy), Duration: time.Duration(20+random.Int64N(300*busy)) * 10 * time.Millisecond,
				Document: history.Feed, BrokenOff: busy > 1, Entries: history.Entries{Found: 30 * busy, New: random.Int64N(9 * busy)},
			},
		}
		for n := range c.Filtered {
			if busy > 1 && n > 0 {
				c.Filtered[n] = random.Int64N(busy) + 1
			}
		}
		if i%7 == 3 {
			c = history.Cycle{Ended: c.Ended, Failed: true, Reason: 101, Visit: history.Visit{HTTPStatus: 503}}
		}
		cycles = history.AddCycle(cycles, &c)
		h.Cycles = append(h.Cycles, c)
	}
	for i := range history.MaxDays + 20 {
		d := history.Day{
			Date: start.AddDate(0, 0, i), Cycles: 96 * busy, Pages: 96*busy + random.Int64N(60*busy), New: random.Int64N(60 * busy),
			Bytes: (5_000 + random.Int64N(9_000*busy)) << 10,
		}
		reasons := []int32{1, 2, 100, 101, 102, 300}
		for _, reason := range reasons[:min(busy-1, int64(len(reasons)))] {
			d.Failed = append(d.Failed, history.Failures{Reason: reason, Count: 1 + random.Int64N(60*busy)})
		}
		days = history.AddDay(days, &d)
		h.Days = append(h.Days, d)
	}
	h.Cycles, h.Days = h.Cycles[20:], h.Days[21:]
	return h, cycles, days
}

// TestPacked packs full histories: they are read as they were, and small.
func TestPacked(t *testing.T) {
	t.Parallel()
	for busy, most := range map[int64]int{1: 1300, 1_000: history.MostBytes} {
		h, cycles, days := full(rand.New(rand.NewPCG(1, 2)), busy)
		if got := history.Cycles(cycles); !reflect.DeepEqual(got, h.Cycles) {
			t.Errorf("%d: cycles are read as\n%v, want\n%v", busy, got, h.Cycles)
		}
		if got := history.Days(days); !reflect.DeepEqual(got, h.Days) {
			t.Errorf("%d: days are read as\n%v, want\n%v", busy, got, h.Days)
		}
		if n := len(cycles) + len(days); n > most {
			t.Errorf("%d: a full history takes %d bytes, %d and %d, want at most %d", busy, n, len(cycles), len(days), most)
		} else {
			t.Logf("%d: a full history takes %d bytes, %d and %d", busy, n, len(cycles), len(days))
		}
	}
}

// TestPacked_damaged reads what is cut or wrong: nothing panics, and the next that is added is there.
func TestPacked_damaged(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	h, cycles, days := full(random, 1)
	for range 5000 {
		damaged := append([]byte(nil), cycles[:random.IntN(len(cycles))]...)
		if len(damaged) > 0 {
			damaged[random.IntN(len(damaged))] ^= byte(1 << random.IntN(8))
		}
		got := history.Cycles(history.AddCycle(damaged, &h.Cycles[0]))
		if len(got) == 0 || !reflect.DeepEqual(got[len(got)-1], h.Cycles[0]) {
			t.Fatalf("of damaged cycles and one that is added %v are read", got)
		}
		damaged = append([]byte(nil), days[:random.IntN(len(days))]...)
		if last := history.Days(history.AddDay(damaged, &h.Days[0])); len(last) == 0 || !reflect.DeepEqual(last[len(last)-1], h.Days[0]) {
			t.Fatalf("of damaged days and one that is added %v are read", last)
		}
	}
}

// TestHistory_Merge joins what two shards remember.
func TestHistory_Merge(t *testing.T) {
	t.Parallel()
	at := func(day int) time.Time { return start.AddDate(0, 0, day) }
	a := history.History{
		Cycles: []history.Cycle{{Ended: at(0)}, {Ended: at(2)}},
		Days:   []history.Day{{Date: at(0), Pages: 1}, {Date: at(95), Pages: 3, Failed: []history.Failures{{Reason: 3, Count: 1}}}},
	}
	a.Merge(&history.History{
		Cycles: []history.Cycle{{Ended: at(1)}},
		Days:   []history.Day{{Date: at(94), New: 7}, {Date: at(95), Cycles: 2, Failed: []history.Failures{{Reason: 1, Count: 4}, {Reason: 3, Count: 2}}}},
	})
	want := history.History{
		Cycles: []history.Cycle{{Ended: at(0)}, {Ended: at(1)}, {Ended: at(2)}},
		Days: []history.Day{
			{Date: at(94), New: 7},
			{Date: at(95), Cycles: 2, Pages: 3, Failed: []history.Failures{{Reason: 1, Count: 4}, {Reason: 3, Count: 3}}},
		},
	}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("merged %+v, want %+v", a, want)
	}
}

// TestToday_Fail counts more reasons than a day tells apart.
func TestToday_Fail(t *testing.T) {
	t.Parallel()
	var today history.Today
	today.Number = history.DayOf(start.UnixMilli())
	for reason := int32(1); reason < 10; reason++ {
		today.Fail(reason)
		today.Fail(reason)
	}
	day, ok := today.Day()
	want := history.Day{Date: start, Failed: []history.Failures{{1, 2}, {2, 2}, {3, 2}, {4, 2}, {5, 2}, {99, 8}}}
	if !ok || !reflect.DeepEqual(day, want) {
		t.Errorf("the day is %+v, want %+v", day, want)
	}
	var again history.Today
	if !again.Continue(&day) || again != today {
		t.Errorf("continued it is %+v, want %+v", again, today)
	}
}

// TestPack packs at once what was added one by one.
func TestPack(t *testing.T) {
	t.Parallel()
	h, cycles, days := full(rand.New(rand.NewPCG(1, 2)), 3)
	if got := history.Cycles(history.PackCycles(h.Cycles)); !reflect.DeepEqual(got, history.Cycles(cycles)) {
		t.Errorf("cycles are read as %v", got)
	}
	if got := history.Days(history.PackDays(h.Days)); !reflect.DeepEqual(got, history.Days(days)) {
		t.Errorf("days are read as %v", got)
	}
}
