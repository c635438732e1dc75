package dispatch_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// middle is a policy whose jitter always is in the middle: 3/4 of a backoff.
var middle = dispatch.Policy{Rand: func() float64 { return 0.5 }}

func spec(change func(*dispatch.SourceSpec)) *dispatch.SourceSpec {
	s := &dispatch.SourceSpec{Schedule: dispatch.Schedule{Every: time.Hour}}
	if change != nil {
		change(s)
	}
	s.FillDefaults()
	return s
}

func leased(recurring bool, counters dispatch.Counters) *dispatch.Task {
	counters.Attempt++
	return &dispatch.Task{
		ID: "1-aaaaaaaaaaaaaaaaaaaaaaaaaa", State: dispatch.StateLeased, Recurring: recurring, Counters: counters, Revision: 7,
		FirstDue: epoch.Add(-10 * time.Minute),
		Lease: &dispatch.Lease{
			Digest: dispatch.LeaseDigest{Fence: 42, Holder: 1}, Granted: epoch.Add(-time.Second),
			Deadline: epoch, Duration: time.Second, MaxHold: time.Hour,
		},
	}
}

func succeeded() *dispatch.Report {
	return &dispatch.Report{Succeeded: &dispatch.Succeeded{HTTPStatus: 200, Bytes: 9, Memo: []byte("etag"), FetchDuration: time.Second}}
}

func failed(reason dispatch.FailureReason) *dispatch.Report {
	return &dispatch.Report{Failed: &dispatch.Failed{Reason: reason, Message: "no"}}
}

const (
	taskReason      dispatch.FailureReason = 5
	hostReason      dispatch.FailureReason = 103
	collectorReason dispatch.FailureReason = 201
	urlReason       dispatch.FailureReason = 301
)

func TestPolicy_Report_success(t *testing.T) {
	t.Parallel()
	t.Run("one-shot is done and shrinks", func(t *testing.T) {
		t.Parallel()
		tr := middle.Report(leased(false, dispatch.Counters{Failures: 2}), spec(nil), succeeded(), epoch)
		if tr.State != dispatch.StateDone || !tr.Shrink || !tr.Settled || tr.Remember != dispatch.DefaultSpec().Remember {
			t.Errorf("%+v", tr)
		}
		if tr.Counters != (dispatch.Counters{Cycle: 1}) || string(tr.Memo) != "etag" || tr.Token.Fence != 42 || tr.Revision != 7 {
			t.Errorf("%+v", tr)
		}
		if tr.Queue.Kind != dispatch.QueueSucceeded || tr.Queue.FetchDuration != time.Second || !tr.SourceSuccess {
			t.Errorf("%+v", tr)
		}
		if tr.Response() != (dispatch.Response{HTTPStatus: 200, Bytes: 9, FetchDuration: time.Second}) {
			t.Errorf("%+v", tr.Response())
		}
		if tr.Cursor == nil || len(tr.Cursor) > 0 || !tr.ClearError {
			t.Errorf("cursor %q and last error are kept: %+v", tr.Cursor, tr)
		}
	})
	t.Run("recurring is due in its phase", func(t *testing.T) {
		t.Parallel()
		tr := middle.Report(leased(true, dispatch.Counters{GivenUp: 3, ExpiredCycles: 2, PermanentCycles: 1}), spec(nil), succeeded(), epoch)
		if tr.State != dispatch.StateScheduled || !tr.Due.Equal(epoch.Add(50*time.Minute)) {
			t.Errorf("state %v, due %v after now, want 50m", tr.State, tr.Due.Sub(epoch))
		}
		if tr.Counters != (dispatch.Counters{Cycle: 1}) || tr.Shrink || !tr.Run.IsZero() {
			t.Errorf("%+v", tr)
		}
		if tr.Attempt == nil || tr.Attempt.Response.Bytes != 9 || tr.Attempt.Response.HTTPStatus != 200 {
			t.Errorf("its line of the history: %+v", tr.Attempt)
		}
	})
	t.Run("recurring and late is due once after an outage", func(t *testing.T) {
		t.Parallel()
		for late, want := range map[time.Duration]time.Duration{
			25 * time.Minute: 5 * time.Minute, 35 * time.Minute: time.Hour + 5*time.Minute, 30 * time.Hour: time.Hour + 5*time.Minute,
		} {
			task := leased(true, dispatch.Counters{})
			task.FirstDue, task.Due = epoch.Add(-55*time.Minute), task.Lease.Granted.Add(-late)
			if tr := middle.Report(task, spec(nil), succeeded(), epoch); !tr.Due.Equal(epoch.Add(want)) {
				t.Errorf("%v late: due in %v, want %v", late, tr.Due.Sub(epoch), want)
			}
		}
		task := leased(true, dispatch.Counters{})
		task.FirstDue, task.Due = epoch.Add(-25*time.Minute), task.Lease.Granted.Add(-time.Hour)
		if tr := middle.Report(task, spec(nil), succeeded(), epoch); !tr.Due.Equal(epoch.Add(35 * time.Minute)) {
			t.Errorf("with the next due time far enough: due in %v", tr.Due.Sub(epoch))
		}
	})
	t.Run("a pass has the due time of its seed's cycle as its run", func(t *testing.T) {
		t.Parallel()
		tr := middle.Report(leased(true, dispatch.Counters{}), spec(func(s *dispatch.SourceSpec) { s.Schedule.Revisit = true }), succeeded(), epoch)
		if !tr.Run.Equal(tr.Due) || tr.Run.IsZero() {
			t.Errorf("run %v, due %v", tr.Run, tr.Due)
		}
	})
	t.Run("triggered meanwhile, due again at once", func(t *testing.T) {
		t.Parallel()
		task := leased(true, dispatch.Counters{})
		task.AgainRequested = true
		tr := middle.Report(task, spec(nil), succeeded(), epoch)
		if tr.State != dispatch.StateScheduled || !tr.Due.Equal(epoch) || !tr.ClearAgain {
			t.Errorf("%+v", tr)
		}
	})
	t.Run("canceled meanwhile, canceled", func(t *testing.T) {
		t.Parallel()
		for _, report := range []*dispatch.Report{succeeded(), failed(taskReason), failed(hostReason), {Released: &dispatch.Released{}}} {
			task := leased(true, dispatch.Counters{})
			task.CancelRequested, task.AgainRequested = dispatch.CancelTask, true
			if tr := middle.Report(task, spec(nil), report, epoch); tr.State != dispatch.StateCanceled || !tr.ClearAgain {
				t.Errorf("%+v", tr)
			}
		}
	})
	t.Run("without a schedule, a seed is done until it is triggered", func(t *testing.T) {
		t.Parallel()
		tr := middle.Report(leased(true, dispatch.Counters{}), spec(func(s *dispatch.SourceSpec) { s.Schedule = dispatch.Schedule{} }), succeeded(), epoch)
		if tr.State != dispatch.StateDone || tr.Shrink {
			t.Errorf("%+v", tr)
		}
	})
}

func TestPolicy_Report_taskFailure(t *testing.T) {
	t.Parallel()
	for failures, ms := range []int{7500, 15000, 30000} {
		want := time.Duration(ms) * time.Millisecond
		tr := middle.Report(leased(false, dispatch.Counters{Failures: uint16(failures)}), spec(nil), failed(taskReason), epoch)
		if tr.State != dispatch.StateScheduled || tr.Delay != want || int(tr.Counters.Failures) != failures+1 {
			t.Errorf("failure %d: %v in %v, want %v", failures+1, tr.State, tr.Delay, want)
		}
		if tr.Settled || tr.Counters.Cycle != 0 {
			t.Errorf("failure %d settled the task: %+v", failures+1, tr)
		}
	}
	last := middle.Report(leased(false, dispatch.Counters{Failures: 3}), spec(nil), failed(taskReason), epoch)
	if last.State != dispatch.StateDead || last.Counters.Failures != 4 || !last.Settled || last.LastError.Message != "no" || last.Attempt == nil {
		t.Errorf("the fourth failure: %+v", last)
	}
	permanent := failed(taskReason)
	permanent.Failed.Permanent = true
	if tr := middle.Report(leased(false, dispatch.Counters{}), spec(nil), permanent, epoch); tr.State != dispatch.StateDead {
		t.Errorf("a permanent failure: %+v", tr)
	}
	if last.Queue.Kind != dispatch.QueueAnswered {
		t.Errorf("a failure of the task's own has the effect %v on the queue, want QueueAnswered", last.Queue.Kind)
	}
}

// The reasons that a short wait does not change have retries of their own, of one-shot tasks; max_attempts limits them too.
func TestPolicy_Report_retriesByReason(t *testing.T) {
	t.Parallel()
	const notFound, forbidden, gone dispatch.FailureReason = 1, 2, 3
	retry := func(attempts int, backoff time.Duration) func(*dispatch.SourceSpec) {
		return func(s *dispatch.SourceSpec) {
			s.Retry.MaxAttempts, s.Retry.MinBackoff, s.Retry.MaxBackoff = attempts, backoff, backoff
		}
	}
	permanent, asked := failed(notFound), failed(forbidden)
	permanent.Failed.Permanent, asked.Failed.RetryAfter = true, time.Minute
	for name, test := range map[string]struct {
		report    *dispatch.Report
		recurring bool
		change    func(*dispatch.SourceSpec)
		want      []time.Duration // before each retry
	}{
		"404":                       {report: failed(notFound), want: []time.Duration{time.Hour}},
		"410":                       {report: failed(gone), want: []time.Duration{time.Hour}},
		"403":                       {report: failed(forbidden), want: []time.Duration{time.Hour, time.Hour}},
		"404, max_attempts 1":       {report: failed(notFound), change: retry(1, 0)},
		"403, max_attempts 2":       {report: failed(forbidden), change: retry(2, time.Minute), want: []time.Duration{time.Hour}},
		"404, max_attempts 9":       {report: failed(notFound), change: retry(9, time.Minute), want: []time.Duration{time.Hour}},
		"404, a longer backoff":     {report: failed(notFound), change: retry(4, 4*time.Hour), want: []time.Duration{3 * time.Hour}},
		"404, permanent":            {report: permanent},
		"another":                   {report: failed(taskReason), want: []time.Duration{7500 * time.Millisecond, 15 * time.Second, 30 * time.Second}},
		"404 of a seed":             {report: failed(notFound), recurring: true, want: []time.Duration{7500 * time.Millisecond, 15 * time.Second, 30 * time.Second}},
		"403 that asks for a delay": {report: asked, change: func(s *dispatch.SourceSpec) { s.Retry.MaxThrottled = 2 }, want: []time.Duration{time.Minute}},
	} {
		task := leased(test.recurring, dispatch.Counters{})
		var waits []time.Duration
		tr := middle.Report(task, spec(test.change), test.report, epoch)
		for tr.Counters.Cycle == 0 && len(waits) < 5 {
			waits = append(waits, tr.Delay)
			task.Counters = tr.Counters
			tr = middle.Report(task, spec(test.change), test.report, epoch)
		}
		if !slices.Equal(waits, test.want) || (tr.State == dispatch.StateDead) == test.recurring {
			t.Errorf("%s: retried after %v, then %v; want %v", name, waits, tr.State, test.want)
		}
	}
}

func TestPolicy_Report_urlFailure(t *testing.T) {
	t.Parallel()
	page := func(url, key string, throttled uint16) *dispatch.Task {
		task := leased(false, dispatch.Counters{Throttled: throttled, Failures: 3})
		task.URL, task.Key = url, key
		return task
	}
	hash := func(url, key string) uint32 {
		return middle.Report(page(url, key, 0), spec(nil), failed(urlReason), epoch).Queue.URL
	}
	for throttled, ms := range []int{7500, 15000, 30000} {
		tr := middle.Report(page("http://a.example/1", "k", uint16(throttled)), spec(nil), failed(urlReason), epoch)
		if want := time.Duration(ms) * time.Millisecond; tr.State != dispatch.StateScheduled || tr.Delay != want || !tr.Behind || tr.Settled {
			t.Errorf("failure %d: %+v, want it behind in %v", throttled+1, tr, want)
		}
		if int(tr.Counters.Throttled) != throttled+1 || tr.Counters.Failures != 3 || tr.Queue.Kind != dispatch.QueueURLFailed {
			t.Errorf("failure %d: %+v", throttled+1, tr)
		}
	}
	again := page("http://a.example/1", "k", 1)
	again.Behind = true
	if tr := middle.Report(again, spec(nil), failed(urlReason), epoch); tr.Queue.Kind != dispatch.QueueReported || !tr.Behind || tr.Counters.Throttled != 2 {
		t.Errorf("a retry counts against the host: %+v", tr)
	}
	if one := hash("http://a.example/1", "1"); one != hash("http://a.example/1", "2") || one == hash("http://a.example/2", "1") {
		t.Error("the hash is not of the URL")
	}
	if hash("", "1") == hash("", "2") {
		t.Error("tasks without a URL are one")
	}
	last := middle.Report(page("http://a.example/1", "k", 19), spec(nil), failed(urlReason), epoch)
	if last.State != dispatch.StateDead || last.Counters.Throttled != 20 || last.Behind || last.Queue.Kind != dispatch.QueueURLFailed {
		t.Errorf("the twentieth: %+v", last)
	}
	seed := leased(true, dispatch.Counters{Throttled: 19})
	if tr := middle.Report(seed, spec(nil), failed(urlReason), epoch); tr.State != dispatch.StateScheduled || tr.Counters.GivenUp != 1 || tr.Behind {
		t.Errorf("the twentieth of a seed: %+v", tr)
	}
}

// A task stays behind until something is known of its URL, or its cycle ends.
func TestPolicy_behind(t *testing.T) {
	t.Parallel()
	report := func(r *dispatch.Report) func(*dispatch.Task) dispatch.Transition {
		return func(task *dispatch.Task) dispatch.Transition { return middle.Report(task, spec(nil), r, epoch) }
	}
	asked := failed(urlReason)
	asked.Failed.RetryAfter = time.Minute
	for name, c := range map[string]struct {
		end  func(*dispatch.Task) dispatch.Transition
		kept bool
	}{
		"succeeded":         {report(succeeded()), false},
		"task failed":       {report(failed(taskReason)), false},
		"host failed":       {report(failed(hostReason)), false},
		"host asks to wait": {report(asked), false},
		"URL failed":        {report(failed(urlReason)), true},
		"collector failed":  {report(failed(collectorReason)), true},
		"released":          {report(&dispatch.Report{Released: &dispatch.Released{}}), true},
		"expired":           {func(task *dispatch.Task) dispatch.Transition { return middle.Expire(task, spec(nil), epoch) }, true},
		"expired, given up": {func(task *dispatch.Task) dispatch.Transition {
			task.Counters.Expirations = 4
			return middle.Expire(task, spec(nil), epoch)
		}, false},
		"replaced": {func(task *dispatch.Task) dispatch.Transition { return middle.Replace(task, spec(nil), epoch) }, true},
		"revoked": {func(task *dispatch.Task) dispatch.Transition {
			return middle.Revoke(task, spec(nil), dispatch.Note{}, epoch)
		}, true},
		"held": {func(task *dispatch.Task) dispatch.Transition {
			task.CancelRequested = dispatch.CancelHeld
			return middle.Report(task, spec(nil), failed(taskReason), epoch)
		}, true},
		"canceled": {func(task *dispatch.Task) dispatch.Transition {
			task.CancelRequested = dispatch.CancelTask
			return middle.Report(task, spec(nil), failed(urlReason), epoch)
		}, false},
	} {
		task := leased(true, dispatch.Counters{})
		task.Behind = true
		if tr := c.end(task); tr.Behind != c.kept {
			t.Errorf("%s: behind is %v", name, tr.Behind)
		}
	}
}

// A host that asks to wait is blocked, whatever went wrong.
func TestPolicy_Report_retryAfterIsTheHosts(t *testing.T) {
	t.Parallel()
	for _, reason := range []dispatch.FailureReason{taskReason, hostReason, urlReason} {
		asked := failed(reason)
		asked.Failed.RetryAfter = 2 * time.Hour
		tr := middle.Report(leased(true, dispatch.Counters{Failures: 3}), spec(nil), asked, epoch)
		if tr.Queue.Kind != dispatch.QueueBlocked || tr.Queue.RetryAfter != 2*time.Hour || tr.Delay != 2*time.Hour || tr.Counters.Failures != 3 || tr.Counters.Throttled != 1 {
			t.Errorf("reason %d: %+v", reason, tr)
		}
	}
	asked := failed(collectorReason)
	asked.Failed.RetryAfter = 2 * time.Hour
	if tr := middle.Report(leased(false, dispatch.Counters{}), spec(nil), asked, epoch); tr.Queue.Kind != dispatch.QueueUntouched || tr.Delay > time.Minute {
		t.Errorf("of a collector: %+v", tr)
	}
	gone := failed(taskReason)
	gone.Failed.RetryAfter, gone.Failed.Permanent = time.Hour, true
	tr := middle.Report(leased(false, dispatch.Counters{}), spec(nil), gone, epoch)
	if tr.State != dispatch.StateDead || tr.Counters.Failures != 1 || tr.Counters.Throttled != 0 || tr.Queue.Kind != dispatch.QueueBlocked || tr.Queue.RetryAfter != time.Hour {
		t.Errorf("a permanent failure: %+v", tr)
	}
}

// The retry of a seed comes no later than its next crawl would.
func TestPolicy_Report_backoffWithinSchedule(t *testing.T) {
	t.Parallel()
	crawled := epoch.Add(-time.Minute)
	for name, c := range map[string]struct {
		schedule dispatch.Schedule
		want     time.Duration // at most
	}{
		"every":            {dispatch.Schedule{Every: 7 * time.Minute}, 4 * time.Minute}, // first due 10 minutes ago
		"cron":             {dispatch.Schedule{Cron: "* * * * *"}, time.Minute - time.Duration(epoch.Second())*time.Second},
		"adaptive":         {dispatch.Schedule{Adaptive: dispatch.Adaptive{Min: time.Second, Max: time.Hour}}, 50 * time.Second},
		"without schedule": {dispatch.Schedule{}, 45 * time.Minute},
	} {
		for _, reason := range []dispatch.FailureReason{taskReason, hostReason, urlReason, collectorReason} {
			task := leased(true, dispatch.Counters{Attempt: 30, Throttled: 12, Failures: 12})
			if c.schedule.IsAdaptive() {
				task.SettledAt, task.FirstDue = crawled, crawled.Add(50*time.Second)
			}
			s := spec(func(s *dispatch.SourceSpec) { s.Schedule, s.Retry.MaxAttempts = c.schedule, 100 })
			want := c.want
			if reason == collectorReason {
				want = min(want, 45*time.Second) // never longer
			}
			if tr := middle.Report(task, s, failed(reason), epoch); tr.State != dispatch.StateScheduled || tr.Delay != want || tr.Counters.Cycle != 0 {
				t.Errorf("%s, reason %d: %v in %v, want %v", name, reason, tr.State, tr.Delay, want)
			}
		}
	}
	late := leased(false, dispatch.Counters{Throttled: 12})
	if tr := middle.Report(late, spec(func(s *dispatch.SourceSpec) { s.Schedule.Every = time.Minute }), failed(urlReason), epoch); tr.Delay != 45*time.Minute {
		t.Errorf("a one-shot task: again in %v", tr.Delay)
	}
}

func TestPolicy_Report_scopesPayDifferently(t *testing.T) {
	t.Parallel()
	host := failed(hostReason)
	host.Failed.RetryAfter = time.Minute
	tr := middle.Report(leased(false, dispatch.Counters{}), spec(nil), host, epoch)
	if tr.Queue.Kind != dispatch.QueueBlocked || tr.Queue.RetryAfter != time.Minute || tr.Counters.Throttled != 1 || tr.Counters.Failures != 0 {
		t.Errorf("host: %+v", tr)
	}
	if tr := middle.Report(leased(false, dispatch.Counters{Throttled: 19}), spec(nil), host, epoch); tr.State != dispatch.StateDead {
		t.Errorf("the twentieth throttling: %+v", tr)
	}
	tr = middle.Report(leased(false, dispatch.Counters{Failures: 3, Throttled: 19, Expirations: 4}), spec(nil), failed(collectorReason), epoch)
	if tr.State != dispatch.StateScheduled || tr.Counters.Failures != 3 || tr.Counters.Throttled != 19 || tr.Queue.Kind != dispatch.QueueUntouched || tr.SourceFailure {
		t.Errorf("collector: %+v", tr)
	}
}

// A task that no collector can do comes back ever later, and is no worse off
// for what its other attempts of the cycle cost.
func TestPolicy_Report_collectorFailuresBackOff(t *testing.T) {
	t.Parallel()
	for n, ms := range []int{750, 1500, 3000, 6000, 12000, 24000, 45000, 45000, 45000} {
		c := dispatch.Counters{Attempt: uint32(n + 3), Failures: 1, Throttled: 1, Expirations: 1}
		tr := middle.Report(leased(false, c), spec(nil), failed(collectorReason), epoch)
		if want := time.Duration(ms) * time.Millisecond; tr.Delay != want || tr.Counters.Attempt != c.Attempt+1 || tr.Counters.Failures != 1 {
			t.Errorf("failure %d: again in %v with %+v, want %v", n+1, tr.Delay, tr.Counters, want)
		}
	}
	if tr := middle.Report(leased(false, dispatch.Counters{Attempt: 1 << 31}), spec(nil), failed(collectorReason), epoch); tr.Delay != 45*time.Second {
		t.Errorf("after very many failures: again in %v", tr.Delay)
	}
}

func TestPolicy_Report_releasedSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	tr := middle.Report(leased(false, dispatch.Counters{Attempt: 2}), spec(nil), &dispatch.Report{Released: &dispatch.Released{Delay: time.Minute}}, epoch)
	if tr.Counters.Attempt != 2 || tr.Delay != time.Minute || tr.State != dispatch.StateScheduled || tr.Attempt != nil {
		t.Errorf("%+v", tr)
	}
}

// A task that is released again and again is slowed down from the 20th time on, and shows it; only ends that are no
// release begin the count anew.
func TestPolicy_Report_releasedAgain(t *testing.T) {
	t.Parallel()
	release := func(task *dispatch.Task, delay time.Duration) dispatch.Transition {
		return middle.Report(task, spec(nil), &dispatch.Report{Released: &dispatch.Released{Delay: delay}}, epoch)
	}
	for released, ms := range map[uint8]int{0: 0, 18: 0, 19: 750, 20: 1500, 22: 6000, 25: 45_000, 254: 45_000, 255: 45_000} {
		tr := release(leased(false, dispatch.Counters{Released: released}), 0)
		n := min(int(released)+1, 255)
		if tr.Delay != time.Duration(ms)*time.Millisecond || tr.Counters != (dispatch.Counters{Released: uint8(n)}) {
			t.Errorf("release %d: again in %v with %+v, want %dms", n, tr.Delay, tr.Counters, ms)
		}
		if n < 20 {
			if tr.Attempt != nil || tr.LastError != nil {
				t.Errorf("release %d: %+v, %+v", n, tr.Attempt, tr.LastError)
			}
		} else if a := tr.Attempt; a == nil || a.Result != dispatch.ResultReleased || a.Fence != 42 || a.Failure != tr.LastError ||
			tr.LastError.Message != fmt.Sprintf("released %d times in a row", n) {
			t.Errorf("release %d: %+v, %+v", n, tr.Attempt, tr.LastError)
		}
	}
	many := dispatch.Counters{Released: 30}
	if tr := release(leased(false, many), time.Hour); tr.Delay != time.Hour {
		t.Errorf("a longer delay that was asked for: %v", tr.Delay)
	}
	held := leased(false, many)
	held.CancelRequested = dispatch.CancelHeld
	for end, tr := range map[string]dispatch.Transition{
		"held": release(held, 0), "revoked": middle.Revoke(leased(false, many), spec(nil), dispatch.Note{By: "ada"}, epoch),
	} {
		if tr.Counters != many || tr.Delay != 0 || tr.LastError != nil {
			t.Errorf("%s: %+v", end, tr)
		}
	}
	for end, tr := range map[string]dispatch.Transition{
		"success":   middle.Report(leased(true, many), spec(nil), succeeded(), epoch),
		"failure":   middle.Report(leased(true, many), spec(nil), failed(urlReason), epoch),
		"collector": middle.Report(leased(true, many), spec(nil), failed(collectorReason), epoch),
		"expired":   middle.Expire(leased(true, many), spec(nil), epoch),
	} {
		if tr.Counters.Released != 0 {
			t.Errorf("%s: %d releases in a row", end, tr.Counters.Released)
		}
	}
}

func TestPolicy_Expire(t *testing.T) {
	t.Parallel()
	tr := middle.Expire(leased(false, dispatch.Counters{}), spec(nil), epoch)
	if !tr.Expired || tr.State != dispatch.StateScheduled || tr.Delay != 0 || tr.Counters.Expirations != 1 || tr.Result != dispatch.ResultExpired {
		t.Errorf("first: %+v", tr)
	}
	if tr.Queue.Kind != dispatch.QueueExpired || tr.Attempt.Fence != 42 {
		t.Errorf("first: %+v", tr)
	}
	// P8: a task that keeps killing its collector stops being handed out.
	if tr := middle.Expire(leased(false, dispatch.Counters{Expirations: 4}), spec(nil), epoch); tr.State != dispatch.StateDead || tr.LastError == nil {
		t.Errorf("fifth: %+v", tr)
	}
	held := leased(false, dispatch.Counters{})
	held.Lease.Deadline = held.Lease.Granted.Add(held.Lease.MaxHold)
	if tr := middle.Expire(held, spec(nil), epoch); tr.Result != dispatch.ResultMaxHold || tr.Counters.Expirations != 1 {
		t.Errorf("held for max_hold: %+v", tr)
	}
	if tr := middle.Replace(leased(false, dispatch.Counters{}), spec(nil), epoch); tr.Expired || tr.Counters.Expirations != 1 || tr.Result != dispatch.ResultReplaced {
		t.Errorf("replaced: %+v", tr)
	}
}

func TestPolicy_givenUpCyclesDoubleTheGap(t *testing.T) {
	t.Parallel()
	hourly := spec(nil)
	for givenUp, want := range []int{2, 4, 8, 16, 24, 24} {
		task := leased(true, dispatch.Counters{Failures: 3, GivenUp: uint8(givenUp), Cycle: 9})
		task.FirstDue = epoch
		tr := middle.Report(task, hourly, failed(taskReason), epoch)
		if tr.State != dispatch.StateScheduled || tr.Due.Sub(epoch) != time.Duration(want)*time.Hour {
			t.Errorf("cycle %d given up in a row: %v in %v, want %dh", givenUp+1, tr.State, tr.Due.Sub(epoch), want)
		}
		if tr.Counters.GivenUp != uint8(givenUp+1) || tr.Counters.Cycle != 10 || tr.Counters.Failures != 0 || tr.Counters.Attempt != 0 {
			t.Errorf("cycle %d given up: %+v", givenUp+1, tr.Counters)
		}
	}
	weekly := spec(func(s *dispatch.SourceSpec) { s.Schedule.Every = 7 * 24 * time.Hour })
	task := leased(true, dispatch.Counters{Failures: 3, GivenUp: 20})
	task.FirstDue = epoch
	if tr := middle.Report(task, weekly, failed(taskReason), epoch); tr.Due.Sub(epoch) != 8*7*24*time.Hour {
		t.Errorf("weekly: gap %v, want 8 weeks", tr.Due.Sub(epoch))
	}
}

func TestPolicy_breaker(t *testing.T) {
	t.Parallel()
	if tr := middle.Expire(leased(true, dispatch.Counters{Expirations: 4, ExpiredCycles: 3}), spec(nil), epoch); tr.State != dispatch.StateScheduled {
		t.Errorf("fourth cycle by expirations: %v", tr.State)
	}
	if tr := middle.Expire(leased(true, dispatch.Counters{Expirations: 4, ExpiredCycles: 4}), spec(nil), epoch); tr.State != dispatch.StateDead {
		t.Errorf("fifth cycle by expirations: %v", tr.State)
	}
	permanent := failed(taskReason)
	permanent.Failed.Permanent = true
	if tr := middle.Report(leased(true, dispatch.Counters{PermanentCycles: 1}), spec(nil), permanent, epoch); tr.State != dispatch.StateScheduled {
		t.Errorf("second permanent cycle: %v", tr.State)
	}
	if tr := middle.Report(leased(true, dispatch.Counters{PermanentCycles: 2}), spec(nil), permanent, epoch); tr.State != dispatch.StateDead {
		t.Errorf("third permanent cycle: %v", tr.State)
	}
	// Another way to end a cycle breaks the row.
	if tr := middle.Report(leased(true, dispatch.Counters{Failures: 3, PermanentCycles: 2, ExpiredCycles: 4}), spec(nil), failed(taskReason), epoch); tr.Counters.PermanentCycles != 0 || tr.Counters.ExpiredCycles != 0 {
		t.Errorf("rows after a cycle of plain failures: %+v", tr.Counters)
	}
}

func TestPolicy_jitterStaysInBounds(t *testing.T) {
	t.Parallel()
	for _, r := range []float64{0, 0.25, 0.999} {
		p := dispatch.Policy{Rand: func() float64 { return r }}
		tr := p.Report(leased(false, dispatch.Counters{}), spec(nil), failed(taskReason), epoch)
		if tr.Delay < 5*time.Second || tr.Delay > 10*time.Second {
			t.Errorf("random %v: delay %v, want 5s to 10s", r, tr.Delay)
		}
	}
}
