package history_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
)

const ms = int64(1000)

// granted is a lease of 3 s that was fetched within 2 ms.
func granted(collector, task, queue, clientToken string, fence int64) history.Event {
	return history.Event{
		Kind: history.Granted, Time: fence + ms, Sent: fence - ms, Waited: ms, Collector: collector, Task: task, Queue: queue,
		Token: token(collector, clientToken, task, fence), ClientToken: clientToken, Fence: fence, Duration: 3000 * ms,
	}
}

func token(collector, clientToken, task string, fence int64) string {
	return collector + "/" + clientToken + "/" + task + "/" + time.UnixMicro(fence).UTC().Format("05.000000")
}

// reported is a report of a lease and its answer.
func reported(lease history.Event, at int64, outcome, code string) []history.Event {
	e := history.Event{Collector: lease.Collector, Task: lease.Task, Token: lease.Token}
	sent, answer := e, e
	sent.Kind, sent.Time, sent.Code = history.ReportSent, at, outcome
	answer.Kind, answer.Time, answer.Sent, answer.Code = history.Reported, at+ms, at, code
	return []history.Event{sent, answer}
}

// done is a lease that was reported successful a while after its grant.
func done(collector, task, queue, clientToken string, fence, after int64) []history.Event {
	g := granted(collector, task, queue, clientToken, fence)
	return append(reported(g, fence+after, history.Succeeded, history.OK), g)
}

func TestHistory_Checks(t *testing.T) {
	t.Parallel()
	lost := granted("a", "t", "q", "1", 1000*ms)
	late := granted("a", "u", "r", "9", 1000*ms)
	late.Time, late.Sent = 2000*ms, 1500*ms
	stale := granted("b", "v", "r", "8", 900*ms)
	stale.Time, stale.Sent = 3000*ms, 2500*ms
	sent := func(at int64) history.Event {
		return history.Event{Kind: history.FetchSent, Time: at, Collector: "b", ClientToken: "8"}
	}
	began := func(at int64) history.Event { return history.Event{Kind: history.Began, Time: at, Collector: "a"} }
	replayed := granted("a", "t", "q", "1", 1000*ms)
	replayed.Sent, replayed.Time = 1500*ms, 1501*ms
	more := granted("a", "u", "r", "1", 1200*ms)
	renewed := history.Event{
		Kind: history.Renewed, Time: 3001 * ms, Sent: 3000 * ms, Collector: "a", Task: "t", Token: lost.Token, Duration: 3000 * ms,
	}
	gone := func(sent int64, reason string) history.Event {
		return history.Event{Kind: history.Lost, Time: sent + ms, Sent: sent, Collector: "a", Task: "t", Token: lost.Token, Code: "LOST_REASON_" + reason}
	}
	for _, c := range []struct {
		name   string
		events []history.Event
		want   []string // the promises broken
	}{
		{"nothing wrong", slices.Concat(done("a", "t", "q", "1", 1000*ms, 100*ms), done("b", "u", "q", "2", 1050*ms, 100*ms)), nil},
		{"expired, then done by another", slices.Concat([]history.Event{lost}, done("b", "t", "q", "2", 4000*ms, 100*ms)), nil},
		{"granted before the deadline", slices.Concat([]history.Event{lost}, done("b", "t", "q", "2", 3900*ms, 100*ms)), []string{"P2"}},
		{"granted after the first deadline, before the renewed one", slices.Concat([]history.Event{lost, renewed}, done("b", "t", "q", "2", 4100*ms, 100*ms)), []string{"P2"}},
		{"granted after its collector began anew", slices.Concat([]history.Event{lost, began(1500 * ms)}, done("b", "t", "q", "2", 1600*ms, 100*ms)), nil},
		{"granted before its collector began anew", slices.Concat([]history.Event{lost, began(1700 * ms)}, done("b", "t", "q", "2", 1600*ms, 100*ms)), []string{"P2"}},
		{"granted after a report went out", slices.Concat(reported(lost, 1500*ms, "released", history.OK), []history.Event{lost}, done("b", "t", "q", "2", 1600*ms, 100*ms)), nil},
		{"done twice", slices.Concat(done("a", "t", "q", "1", 1000*ms, 100*ms), done("b", "t", "q", "2", 4100*ms, 100*ms)), []string{"P7"}},
		{"accepted as new twice", slices.Concat(done("a", "t", "q", "1", 1000*ms, 100*ms), reported(lost, 1300*ms, history.Succeeded, history.OK)), []string{"P7"}},
		{"accepted, and repeated", slices.Concat(done("a", "t", "q", "1", 1000*ms, 100*ms), reported(lost, 1300*ms, history.Succeeded, history.AlreadyReported)), nil},
		{"fetch repeated", slices.Concat(done("a", "t", "q", "1", 1000*ms, 900*ms), []history.Event{replayed}), nil},
		{"fetch repeated gives more", slices.Concat(done("a", "t", "q", "1", 1000*ms, 900*ms), []history.Event{replayed, more}, reported(more, 1300*ms, history.Succeeded, history.OK)), []string{"P7"}},
		{"reported after another had it", slices.Concat([]history.Event{lost}, done("b", "t", "q", "2", 4000*ms, 900*ms), reported(lost, 4500*ms, "released", history.OK)), []string{"P3"}},
		{"refused after another had it", slices.Concat([]history.Event{lost}, done("b", "t", "q", "2", 4000*ms, 900*ms), reported(lost, 4500*ms, "released", history.LeaseLost)), nil},
		{"one fence twice", slices.Concat(done("a", "t", "q", "1", 1000*ms, 100*ms), done("b", "u", "r", "2", 1000*ms, 100*ms)), []string{"P4"}},
		{"a fence that falls", []history.Event{late, sent(2400 * ms), stale}, []string{"P4"}},
		{"a lower fence of a fetch repeated", []history.Event{late, sent(800 * ms), sent(2400 * ms), stale}, nil},
		{"renewed after the deadline", []history.Event{lost, gone(4001*ms, "EXPIRED")}, nil},
		{"renewed in time, and gone", []history.Event{lost, gone(3900*ms, "EXPIRED")}, []string{"P11"}},
		{"renewed in time, and revoked", []history.Event{lost, gone(3900*ms, "REVOKED")}, nil},
		{"renewed when it was reported", slices.Concat(reported(lost, 3850*ms, history.Succeeded, history.OK), []history.Event{lost, gone(3900*ms, "SETTLED")}), nil},
		{"too soon", slices.Concat(done("a", "t", "q", "1", 1000*ms, 100*ms), done("b", "u", "q", "2", 1049*ms, 100*ms)), []string{"P6"}},
		{"too many", slices.Concat(done("a", "t", "q", "1", 1000*ms, 500*ms), done("b", "u", "q", "2", 1050*ms, 500*ms), done("b", "v", "q", "3", 1100*ms, 500*ms)), []string{"P6"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := history.New(c.events)
			found := slices.Concat(h.OneHolder(), h.StaleRefused(), h.FencesRise(func(string) int { return 0 }), h.Polite(50*time.Millisecond, 2), h.ReplayHarmless(), h.RenewedInTime())
			var broken []string
			for _, v := range found {
				promise, _, _ := strings.Cut(string(v), ":")
				broken = append(broken, promise)
			}
			if slices.Sort(broken); !slices.Equal(slices.Compact(broken), c.want) {
				t.Errorf("broken: %v, want %v: %v", broken, c.want, found)
			}
		})
	}
}

func TestHistory_NothingLost(t *testing.T) {
	t.Parallel()
	dead := granted("dead", "u", "r", "2", 1000*ms)
	h := history.New(slices.Concat(done("a", "t", "q", "1", 1000*ms, 100*ms), []history.Event{dead}, reported(dead, 1100*ms, history.Succeeded, "")[:1]))
	for _, c := range []struct {
		name       string
		states     map[string]string
		killed     map[string]bool
		want       int
		unanswered int
	}{
		{"all done", map[string]string{"t": "TASK_STATE_DONE"}, nil, 0, 0},
		{"done by one that was killed", map[string]string{"t": "TASK_STATE_DONE", "u": "TASK_STATE_DONE"}, map[string]bool{"dead": true}, 0, 1},
		{"done by nobody's report", map[string]string{"t": "TASK_STATE_DONE", "u": "TASK_STATE_DONE"}, nil, 1, 0},
		{"not done", map[string]string{"t": "TASK_STATE_READY"}, nil, 1, 0},
		{"never granted", map[string]string{"x": "TASK_STATE_DONE"}, nil, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found, unanswered := h.NothingLost(c.states, c.killed)
			if len(found) != c.want || unanswered != c.unanswered {
				t.Errorf("%v, %d unanswered; want %d violations, %d unanswered", found, unanswered, c.want, c.unanswered)
			}
		})
	}
}

func TestHistory_Read(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var paths []string
	for _, collector := range []string{"a", "b"} {
		path := filepath.Join(dir, collector+".jsonl")
		log, err := history.Open(path, collector)
		if err != nil {
			t.Fatal(err)
		}
		fence := history.Now()
		log.Add(history.Event{
			Kind: history.Granted, Task: collector, Queue: collector, Token: collector, Fence: fence, Sent: fence, Duration: 3000 * ms,
		})
		log.Add(history.Event{Kind: history.ReportSent, Task: collector, Token: collector, Code: history.Succeeded})
		log.Add(history.Event{Kind: history.Reported, Task: collector, Token: collector, Code: history.OK})
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	h, err := history.Read(paths...)
	if err != nil {
		t.Fatal(err)
	}
	if s := h.Summary(); len(h.Events) != 8 || s.Leases != 2 || s.Tasks != 2 || s.Accepted != 2 {
		t.Errorf("%d events, %+v", len(h.Events), s)
	}
	if _, err := history.Read(filepath.Join(dir, "none")); err == nil {
		t.Error("a log that is missing was read")
	}
}
