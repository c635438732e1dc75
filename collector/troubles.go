package collector

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// sameTrouble is how long a call that keeps failing the same way is not logged again.
	sameTrouble = time.Minute

	// nextOutage is how long no other outage is logged after one was. The same holds for dispatchers that stop: several may be
	// restarted in turn.
	nextOutage = 30 * time.Second

	// abandoned is how long the call that began an outage may be silent. After that nobody repeats it any more, as for a lost
	// lease. It is longer than any call and the wait after it.
	abandoned = 2 * time.Minute
)

// The calls that are repeated until they are answered, as the log names them.
const (
	fetchCall  = "fetch"
	beatCall   = "heartbeat"
	streamCall = "heartbeat stream"
	reportCall = "report"
	submitCall = "submit of discovered items"
)

// troubles logs calls that fail and are repeated. When dispatchers or their store are away, every call of every loop fails.
// Such an outage gets one line when a repeated call fails, and one when it is over. Any other failure is logged once a minute;
// credentials that are not accepted are one failure of all calls. At level debug all failures are logged.
type troubles struct {
	log *zap.Logger

	mu    sync.Mutex // guards what follows
	began time.Time  // the outage; zero: there is none
	by    string     // the call that failed first, whose answer ends it: others may go to dispatchers, or shards, that are well
	again time.Time  // when that call failed last
	quiet bool       // this one is not logged, or not yet
	told  time.Time  // when the last outage was logged
	left  time.Time  // when a dispatcher that stops was logged last
	last  map[failedCall]time.Time
	tasks map[Reason]*failedTasks
}

// failedTasks are tasks that failed for one reason.
type failedTasks struct {
	logged time.Time
	since  int // then
}

// failedCall is what failed, and how.
type failedCall struct {
	call string
	code codes.Code
}

func newTroubles(log *zap.Logger) *troubles {
	return &troubles{log: log, last: make(map[failedCall]time.Time), tasks: make(map[Reason]*failedTasks)}
}

// ended notes how a task ended. Each failure is logged at level debug. Of each reason one is logged at once, as a warning unless
// the page itself is the cause, and then with their number once in sameTrouble.
func (t *troubles) ended(task *Task, outcome *wagglev1.Outcome) {
	failed := outcome.GetFailed()
	if failed == nil {
		return
	}
	reason := failed.GetReason()
	fields := []zap.Field{
		zap.Stringer("reason", reason), zap.String("error", failed.GetMessage()), zap.String("url", task.URL),
		zap.String("source_id", task.SourceID), zap.String("task_id", task.ID),
	}
	t.log.Debug("task failed", fields...)
	count := t.countFailed(reason, time.Now())
	if count == 0 {
		return
	}
	level := zap.WarnLevel
	if reason < ReasonDNS && reason != ReasonHandler {
		level = zap.InfoLevel
	}
	t.log.Log(level, "tasks fail; this is the last of them", append(fields, zap.Int("failed", count))...)
}

// countFailed counts a failure, and returns how many there are to log; 0: none.
func (t *troubles) countFailed(reason Reason, now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.tasks[reason]
	if of == nil {
		of = &failedTasks{}
		t.tasks[reason] = of
	}
	of.since++
	if !of.logged.IsZero() && now.Sub(of.logged) < sameTrouble {
		return 0
	}
	count := of.since
	of.logged, of.since = now, 0
	return count
}

// failed notes that a call failed and is repeated after a wait; repeated if it was a repetition already. A first failure may
// come from a dispatcher that stops, and another one may answer the repetition.
func (t *troubles) failed(call string, err error, wait time.Duration, repeated bool) {
	level, message := zap.WarnLevel, call+" failed, will be repeated"
	switch {
	case reasonOf(err) == wagglev1.ErrorReason_ERROR_REASON_SOURCE_NOT_FOUND:
		message = "a source to take tasks of (--sources, Config.Sources) does not exist; fetches are repeated until it does"
	case isOutage(err):
		message = "no answer from a dispatcher, or from its store; calls are repeated until there is one"
	case status.Code(err) == codes.Unauthenticated:
		message = "dispatchers do not accept the credentials (--token-file, --client-cert; Config.TokenFile, Config.TLS); calls are repeated until they do"
	}
	if !t.isNews(call, err, repeated, time.Now()) {
		level, message = zap.DebugLevel, call+" failed, will be repeated"
	}
	t.log.Log(level, message, zap.String("call", call), zap.Duration("wait", wait), zap.Error(err))
}

func (t *troubles) isNews(call string, err error, repeated bool, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !isOutage(err) {
		what := failedCall{call, status.Code(err)}
		if what.code == codes.Unauthenticated {
			what.call = "" // every call fails by that
		}
		if last, ok := t.last[what]; ok && now.Sub(last) < sameTrouble {
			return false
		}
		t.last[what] = now
		return true
	}
	if t.began.IsZero() {
		t.began, t.by, t.quiet = now, call, true
	}
	if call == t.by {
		t.again = now
	}
	if !repeated || !t.quiet || !t.told.IsZero() && now.Sub(t.told) < nextOutage {
		return false
	}
	t.quiet, t.told = false, now
	return true
}

// over notes that a dispatcher has answered a call. That ends an outage if the call began it.
func (t *troubles) over(call string) {
	t.mu.Lock()
	began := t.began
	if began.IsZero() || call != t.by && time.Since(t.again) < abandoned {
		t.mu.Unlock()
		return
	}
	logged := !t.quiet
	t.began = time.Time{}
	t.mu.Unlock()
	if logged {
		t.log.Info("dispatchers answer again", zap.Duration("after", time.Since(began).Round(time.Millisecond)))
	}
}

// stopping notes that a dispatcher is about to stop. Several of its answers report that.
func (t *troubles) stopping() {
	t.mu.Lock()
	now := time.Now()
	isNews := t.left.IsZero() || now.Sub(t.left) >= nextOutage
	if isNews {
		t.left = now
	}
	t.mu.Unlock()
	if isNews {
		t.log.Info("a dispatcher is about to stop; going on with another, or with it when it is back")
	}
}
