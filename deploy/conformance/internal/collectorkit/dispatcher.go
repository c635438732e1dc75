package collectorkit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	defaultLease = 30 * time.Second
	idleBeat     = 15 * time.Second
	heldBeat     = 5 * time.Second
	reportRetry  = 1500 * time.Millisecond // as a report's answer of kit.codes asks
)

// call is one request that a dispatcher got. What the client sent is fixed; what became of it is guarded by kit.mu.
type call struct {
	ctx      context.Context //nolint:containedctx // hooks wait until the caller has gone
	server   *server
	at       time.Time // when it came
	header   metadata.MD
	deadline time.Time // the caller's; zero: none
	method   string

	// One of these, or none: a stream was opened.
	fetch  *wagglev1.FetchTaskRequest
	beat   *wagglev1.HeartbeatRequest // of a stream, or of RenewLease
	report *wagglev1.ReportTaskRequest
	submit *wagglev1.SubmitDiscoveredRequest

	stream *stream // of a beat; nil: RenewLease
	onWork bool    // it came on a Work stream

	answered time.Time // zero: not yet, or with an error
	err      error
}

// hasArrived reports whether the client surely has the answer; the caller holds kit.mu.
func (c *call) hasArrived() bool {
	return !c.answered.IsZero() && c.err == nil && !c.server.isSilent(c.answered)
}

// delay delays the answer, unless the caller has gone.
func (c *call) delay(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// lease is what the store knows of a task that was granted.
type lease struct {
	work     work
	token    string
	fence    int64
	duration time.Duration

	client   string    // its client token
	granted  time.Time // when the store granted it
	answered time.Time // when a reply with it went out; zero: none
	deadline time.Time
	lost     wagglev1.LostReason // unspecified: it is not
	told     time.Time           // when a message went out that says lost
	canceled *wagglev1.CancelNotice
	result   *wagglev1.TaskReport // the report that counted
	reports  []*reported
	limit    time.Duration // of a renewal, as max_hold sets it; 0: none
	limited  bool
}

// reported is one report that came.
type reported struct {
	at     time.Time
	call   *call
	report *wagglev1.TaskReport
	lease  *lease // nil: the kit granted no such lease
	code   wagglev1.ReportCode
}

// stream is an open stream with heartbeats.
type stream struct {
	number int
	opened time.Time
	ended  time.Time // zero: it is open
	pushes chan *wagglev1.HeartbeatResponse
	end    chan error
}

// service is the DispatchService of one server: it notes each call, asks the script's hook, and does what a good
// dispatcher does when the hook leaves that to it.
type service struct {
	wagglev1.UnsafeDispatchServiceServer
	server *server
}

// note records a call as it comes.
func (s service) note(ctx context.Context, c *call) *call {
	c.ctx, c.server, c.at = ctx, s.server, time.Now()
	c.header, _ = metadata.FromIncomingContext(ctx)
	c.deadline, _ = ctx.Deadline()
	k := s.server.k
	k.change(func() { k.calls = append(k.calls, c) })
	return c
}

// answer runs the hooks of a call: the one for all calls, then its own, then the default.
func answer[T any](k *kit, c *call, hook func(*call) (*T, error), usual func(*call) (*T, error)) (*T, error) {
	var reply *T
	err := k.hooked().every(c)
	if err == nil && hook != nil {
		reply, err = hook(c)
	}
	if err == nil && reply == nil {
		reply, err = usual(c)
	}
	if err == errSilent && c.stream == nil { //nolint:errorlint // it is never wrapped
		<-c.ctx.Done()
	}
	k.change(func() {
		if c.err = err; err == nil {
			c.answered = time.Now()
		}
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// FetchTask settles the reports and grants what is due.
func (s service) FetchTask(ctx context.Context, request *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
	k := s.server.k
	c := s.note(ctx, &call{method: "FetchTask", fetch: request, onWork: isOnWork(ctx)})
	k.noteReports(c, request.GetReports())
	reply, err := answer(k, c, k.hooked().fetch, k.serveFetch)
	if err == nil {
		k.handedOut(reply)
	}
	return reply, err
}

// RenewLease answers a beat.
func (s service) RenewLease(ctx context.Context, request *wagglev1.RenewLeaseRequest) (*wagglev1.RenewLeaseResponse, error) {
	k := s.server.k
	c := s.note(ctx, &call{method: "RenewLease", beat: &wagglev1.HeartbeatRequest{Collector: request.GetCollector(), Leases: request.GetLeases()}})
	reply, err := answer(k, c, k.hooked().beat, k.serveBeat)
	if err != nil {
		return nil, err
	}
	k.said(reply)
	return &wagglev1.RenewLeaseResponse{Status: reply}, nil
}

// ReportTask settles reports.
func (s service) ReportTask(ctx context.Context, request *wagglev1.ReportTaskRequest) (*wagglev1.ReportTaskResponse, error) {
	k := s.server.k
	c := s.note(ctx, &call{method: "ReportTask", report: request, onWork: isOnWork(ctx)})
	k.noteReports(c, request.GetReports())
	return answer(k, c, k.hooked().report, func(c *call) (*wagglev1.ReportTaskResponse, error) {
		return &wagglev1.ReportTaskResponse{Results: k.settle(c, request.GetReports())}, nil
	})
}

// SubmitDiscovered takes every item.
func (s service) SubmitDiscovered(ctx context.Context, request *wagglev1.SubmitDiscoveredRequest) (*wagglev1.SubmitDiscoveredResponse, error) {
	k := s.server.k
	c := s.note(ctx, &call{method: "SubmitDiscovered", submit: request, onWork: isOnWork(ctx)})
	return answer(k, c, k.hooked().submit, func(*call) (*wagglev1.SubmitDiscoveredResponse, error) {
		return &wagglev1.SubmitDiscoveredResponse{Summary: summary(request.GetItems())}, nil
	})
}

// Heartbeat answers beats, and sends what the script pushes.
func (s service) Heartbeat(client wagglev1.DispatchService_HeartbeatServer) error {
	k := s.server.k
	opened := s.note(client.Context(), &call{method: "Heartbeat"})
	if err := k.hooked().every(opened); err != nil {
		return err
	}
	if hook := k.hooked().stream; hook != nil {
		if err := hook(opened); err != nil {
			return err
		}
	}
	beats := make(chan *wagglev1.HeartbeatRequest)
	go func() {
		defer close(beats)
		for {
			beat, err := client.Recv()
			if err != nil {
				return
			}
			select {
			case beats <- beat:
			case <-client.Context().Done():
				return
			}
		}
	}()
	return s.serveBeats(client.Context(), beats, false, client.Send)
}

// serveBeats answers the beats of a stream until the client or the script ends it.
func (s service) serveBeats(ctx context.Context, beats <-chan *wagglev1.HeartbeatRequest, onWork bool, send func(*wagglev1.HeartbeatResponse) error) error {
	k := s.server.k
	st := k.openStream()
	defer k.closeStream(st)
	for {
		select {
		case beat, more := <-beats:
			if !more {
				return nil // the client has closed it
			}
			c := s.note(ctx, &call{method: "Heartbeat", beat: beat, stream: st, onWork: onWork})
			reply, err := answer(k, c, k.hooked().beat, k.serveBeat)
			switch {
			case err == errSilent: //nolint:errorlint // it is never wrapped
				continue
			case err != nil:
				return err
			}
			k.said(reply)
			if err := send(&wagglev1.HeartbeatResponse{Status: reply}); err != nil {
				return err
			}
		case message := <-st.pushes:
			k.said(message.GetStatus())
			if err := send(message); err != nil {
				return err
			}
		case err := <-st.end:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// serveFetch settles the reports, and grants what is due, or waits for it.
func (k *kit) serveFetch(c *call) (*wagglev1.FetchTaskResponse, error) {
	reply := &wagglev1.FetchTaskResponse{ReportResults: k.settle(c, c.fetch.GetReports())}
	over := time.After(c.fetch.GetWait().AsDuration())
	for {
		leases, used, changed := k.grant(c)
		reply.Waited = durationpb.New(time.Since(c.at))
		switch {
		case used:
			reply.EmptyReason = wagglev1.EmptyReason_EMPTY_REASON_TOKEN_USED
			return reply, nil
		case len(leases) > 0:
			reply.LeasedTasks = leases
			return reply, nil
		}
		select {
		case <-changed:
		case <-over:
			reply.EmptyReason = wagglev1.EmptyReason_EMPTY_REASON_NO_TASKS
			return reply, nil
		case <-c.ctx.Done():
			return nil, status.FromContextError(c.ctx.Err()).Err()
		}
	}
}

// grant returns what this client token was granted and still holds, else grants what is due. used says that the token had
// its grant, and nothing is left of it. changed is closed when there may be more.
func (k *kit) grant(c *call) (granted []*wagglev1.LeasedTask, used bool, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if c.ctx.Err() != nil || c.server.isFrozen() {
		return nil, false, k.changed
	}
	for _, l := range k.leases {
		if l.client == c.fetch.GetClientToken() {
			used = true
			if l.holds(now) {
				granted = append(granted, l.message(now))
			}
		}
	}
	if used {
		return granted, len(granted) == 0, k.changed
	}
	for len(k.due) > 0 && len(granted) < int(max(c.fetch.GetMaxTasks(), 1)) {
		w := k.due[0]
		k.due = k.due[1:]
		k.fence++
		duration := cmp.Or(w.lease, c.fetch.GetLeaseDuration().AsDuration(), defaultLease)
		l := &lease{
			work: w, client: c.fetch.GetClientToken(), fence: k.fence, duration: duration, granted: now, deadline: now.Add(duration),
			token: fmt.Sprintf("%s/%s/%d", c.fetch.GetCollectorId(), c.fetch.GetClientToken(), k.fence),
		}
		k.leases = append(k.leases, l)
		granted = append(granted, l.message(now))
	}
	return granted, false, k.changed
}

// handedOut notes which leases a reply has.
func (k *kit) handedOut(reply *wagglev1.FetchTaskResponse) {
	k.change(func() {
		for _, one := range reply.GetLeasedTasks() {
			if l := k.find(one.GetLease().GetLeaseToken()); l != nil && l.answered.IsZero() {
				l.answered = time.Now()
			}
		}
	})
}

// holds reports whether the lease is its holder's.
func (l *lease) holds(at time.Time) bool {
	return l.result == nil && l.lost == 0 && at.Before(l.deadline)
}

// message is the lease with its task as they travel, with what a later version may add.
func (l *lease) message(now time.Time) *wagglev1.LeasedTask {
	due := timestamppb.New(now.AddDate(l.work.yearsOff, 0, 0))
	task := &wagglev1.Task{
		Id: l.work.id, SourceId: "kit", SourceUid: "kit-1", Queue: "kit.test", Pool: "default", Url: "http://kit.test/" + l.work.id,
		Key: "http://kit.test/" + l.work.id, State: wagglev1.TaskState_TASK_STATE_LEASED, Attempt: 1, Priority: 5,
		Payload: l.work.payload(), DueTime: due, CreateTime: due, Relation: unknownEnum,
	}
	task.ProtoReflect().SetUnknown(unknownField())
	return &wagglev1.LeasedTask{Task: task, Lease: &wagglev1.Lease{
		TaskId: l.work.id, LeaseToken: l.token, Fence: l.fence, Duration: durationpb.New(l.deadline.Sub(now)),
	}}
}

// unknownEnum is a value that no version of today knows.
const unknownEnum = 999

// unknownField is field 9999 with a text, as a later version may send it.
func unknownField() protoreflect.RawFields {
	return protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), "of a later version")
}

// serveBeat renews what the beat names.
func (k *kit) serveBeat(c *call) (*wagglev1.LeaseStatus, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	reply := &wagglev1.LeaseStatus{Held: k.held}
	shortest, next := defaultLease, k.nextBeat
	if k.held {
		next = min(next, heldBeat)
	}
	for _, beat := range c.beat.GetLeases() {
		l := k.find(beat.GetLeaseToken())
		if l == nil || !l.holds(now) {
			reply.Lost = append(reply.Lost, lostLease(beat, l))
			continue
		}
		if l.canceled != nil {
			reply.Cancel = append(reply.Cancel, l.canceled)
		}
		if l.limited {
			reply.Limited = append(reply.Limited, &wagglev1.LimitedLease{TaskId: l.work.id, Duration: durationpb.New(l.limit)})
		} else {
			shortest = min(shortest, l.duration)
			l.deadline = now.Add(l.duration)
		}
		next = min(next, l.duration/3)
	}
	reply.LeaseDuration, reply.NextHeartbeat = durationpb.New(shortest), durationpb.New(next)
	reply.ProtoReflect().SetUnknown(unknownField())
	return reply, nil
}

// lostLease is what a beat is told of a lease that is not its own.
func lostLease(beat *wagglev1.LeaseBeat, l *lease) *wagglev1.LostLease {
	reason := wagglev1.LostReason_LOST_REASON_EXPIRED
	switch {
	case l == nil:
		reason = wagglev1.LostReason_LOST_REASON_NOT_LEASED
	case l.result != nil:
		reason = wagglev1.LostReason_LOST_REASON_SETTLED
	case l.lost != 0:
		reason = l.lost
	}
	return &wagglev1.LostLease{TaskId: beat.GetTaskId(), LeaseToken: beat.GetLeaseToken(), Reason: reason}
}

// said notes whom a message told that a lease is lost. A lease that its own report has settled does not count: the answer to
// that report may have been lost, and then its sender is to repeat it.
func (k *kit) said(message *wagglev1.LeaseStatus) {
	k.change(func() {
		for _, lost := range message.GetLost() {
			isSettled := lost.GetReason() == wagglev1.LostReason_LOST_REASON_SETTLED
			if l := k.find(lost.GetLeaseToken()); l != nil && !isSettled && l.told.IsZero() {
				l.told = time.Now()
			}
		}
	})
}

// noteReports records reports as they come, whatever becomes of their call.
func (k *kit) noteReports(c *call, reports []*wagglev1.TaskReport) {
	k.change(func() {
		for _, report := range reports {
			one := &reported{at: c.at, call: c, report: report, lease: k.find(report.GetLeaseToken())}
			k.reports = append(k.reports, one)
			if one.lease != nil {
				one.lease.reports = append(one.lease.reports, one)
			}
		}
	})
}

// settle counts reports whose lease is their sender's.
func (k *kit) settle(c *call, reports []*wagglev1.TaskReport) []*wagglev1.ReportResult {
	var results []*wagglev1.ReportResult
	k.change(func() {
		for _, report := range reports {
			l := k.find(report.GetLeaseToken())
			result := &wagglev1.ReportResult{TaskId: report.GetTaskId(), State: wagglev1.TaskState_TASK_STATE_DONE, Result: unknownEnum}
			code, isSet := k.codes[report.GetTaskId()]
			switch {
			case isSet:
				result.Code, result.RetryAfter = code, durationpb.New(reportRetry)
			case l != nil && l.result != nil:
				result.Code = wagglev1.ReportCode_REPORT_CODE_ALREADY_REPORTED
			case l != nil && l.lost == 0 && (k.graceful || c.at.Before(l.deadline)):
				l.result = report
				result.Code = wagglev1.ReportCode_REPORT_CODE_OK
			default:
				result.Code = wagglev1.ReportCode_REPORT_CODE_LEASE_LOST
			}
			result.Discovered = summary(report.GetOutcome().GetSucceeded().GetDiscovered())
			results = append(results, result)
			for _, one := range k.reports {
				if one.call == c && one.report == report {
					one.code = result.Code
				}
			}
		}
	})
	return results
}

// summary answers that each item is a new task.
func summary(items []*wagglev1.DiscoveredItem) *wagglev1.DiscoverSummary {
	s := &wagglev1.DiscoverSummary{Created: int32(len(items))}
	for range items {
		s.Results = append(s.Results, &wagglev1.DiscoverResult{Code: wagglev1.DiscoverCode_DISCOVER_CODE_CREATED})
	}
	return s
}

func (k *kit) openStream() *stream {
	st := &stream{opened: time.Now(), pushes: make(chan *wagglev1.HeartbeatResponse, 16), end: make(chan error, 1)}
	k.change(func() {
		st.number = len(k.streams) + 1
		k.streams = append(k.streams, st)
	})
	return st
}

func (k *kit) closeStream(st *stream) { k.change(func() { st.ended = time.Now() }) }
