package console

import (
	"html/template"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

type sourceView struct {
	Source    *pb.Source
	Explain   *pb.ExplainResponse
	Cycles    []*pb.SourceCycle // the newest first
	Days      template.HTML
	Seeds     []*pb.Seed
	MoreSeeds int64
	Schedule  string
}

// shownSeeds is how many seeds of a source its page has.
const shownSeeds = 50

func (c *Console) source(v *visit) (any, error) {
	id := v.query("id")
	history, err := c.sources.GetSourceHistory(v.Context(), &pb.GetSourceHistoryRequest{Id: id})
	if err != nil {
		return nil, err
	}
	source := history.GetSource()
	out := &sourceView{Source: source, Cycles: history.GetCycles(), Days: v.text.days(v.now, history.GetDays()), Schedule: v.text.schedule(source.GetSpec().GetSchedule())}
	slices.Reverse(out.Cycles)
	seeds := source.GetSpec().GetSeeds()
	out.Seeds = seeds[:min(len(seeds), shownSeeds)]
	out.MoreSeeds = int64(len(seeds) - len(out.Seeds))
	if out.Explain, err = c.explain(v, &pb.ExplainRequest{SourceId: id}); err != nil {
		return nil, err
	}
	acts := append(v.actsOn([]string{"source", id}, "trigger", "edit", "hold", "delete"), v.liftActs(source.GetStatus().GetHolds()...)...)
	return &view{page: "source", title: v.text.say("Source %s", id), command: "waggle source get " + quoted(id), live: true, data: out, acts: acts}, nil
}

// explain is nil to whom may not ask.
func (c *Console) explain(v *visit, req *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	reply, err := c.admin.Explain(v.Context(), req)
	if code := status.Code(err); code == codes.PermissionDenied || code == codes.NotFound {
		return nil, nil
	}
	return reply, err
}

func (t *texts) schedule(s *pb.Schedule) string {
	switch {
	case s.GetEvery() != nil:
		return t.say("every %s", t.span(s.GetEvery().AsDuration()))
	case s.GetCron() != "":
		return strings.TrimSpace(s.GetCron() + " " + s.GetTimeZone())
	case s.GetAdaptive() != nil:
		return t.say("as often as it changes")
	default:
		return t.say("once")
	}
}

type queueView struct {
	Queue   *pb.Queue
	Explain *pb.ExplainResponse
	Hour    template.HTML
	Leases  []*pb.HeldLease
}

func (c *Console) queue(v *visit) (any, error) {
	name := v.query("name")
	got, err := c.queues.GetQueue(v.Context(), &pb.GetQueueRequest{Name: name})
	if err != nil {
		return nil, err
	}
	out := &queueView{Queue: got.GetQueue(), Hour: v.text.hour(got.GetQueue().GetHour())}
	if out.Explain, err = c.explain(v, &pb.ExplainRequest{Queue: name}); err != nil {
		return nil, err
	}
	if got.GetQueue().GetLeased() > 0 {
		leases, err := c.admin.ListLeases(v.Context(), &pb.ListLeasesRequest{Filter: &pb.Filter{Queue: got.GetQueue().GetName()}, PageSize: oldestLeases})
		if err != nil && status.Code(err) != codes.PermissionDenied {
			return nil, err
		}
		out.Leases = leases.GetLeases()
	}
	name = got.GetQueue().GetName()
	acts := v.acts([]string{"hold", "queue", name}, []string{"rule", "pattern", name})
	for _, gate := range got.GetQueue().GetGates() {
		switch gate.GetKind() {
		case pb.GateKind_GATE_KIND_QUEUE_HELD:
			acts = append(acts, v.liftActs(gate.GetHold())...)
		case pb.GateKind_GATE_KIND_HOST_BLOCKED:
			acts = append(acts, v.acts([]string{"unblock", "queue", name})...)
		default:
		}
	}
	return &view{page: "queue", title: v.text.say("Queue %s", name), command: "waggle queue get " + quoted(name), live: true, data: out, acts: acts}, nil
}

type taskView struct {
	Task     *pb.Task
	Explain  *pb.ExplainResponse
	Attempts []shownAttempt // the newest first
}

type shownAttempt struct {
	Level, Result, CollectorID, Message, MovedTo, Took string
	EndTime                                            *timestamppb.Timestamp
	HTTPStatus                                         int32
}

func (c *Console) task(v *visit) (any, error) {
	req := &pb.GetTaskRequest{TaskId: v.query("id")}
	if find := v.query("find"); find != "" {
		if webURL(find) {
			req.Url, req.SourceId = find, v.query("source")
		} else {
			req.TaskId = find
		}
	}
	got, err := c.tasks.GetTask(v.Context(), req)
	if err != nil {
		return nil, err
	}
	task := got.GetTask()
	out := &taskView{Task: task}
	for _, a := range slices.Backward(task.GetHistory()) {
		shown := shownAttempt{
			Level: "bad", Result: v.text.word(a.GetResult(), "ATTEMPT_RESULT_"), CollectorID: a.GetCollectorId(), Message: a.GetMessage(), MovedTo: a.GetMovedTo(),
			EndTime: a.GetEndTime(), HTTPStatus: a.GetHttpStatus(),
		}
		switch a.GetResult() {
		case pb.AttemptResult_ATTEMPT_RESULT_SUCCEEDED:
			shown.Level = "good"
		case pb.AttemptResult_ATTEMPT_RESULT_FAILED:
			shown.Result = v.text.word(a.GetReason(), "FAILURE_REASON_")
		default:
			shown.Level = "note"
		}
		if a.GetFetchDuration() != nil {
			shown.Took = v.text.span(a.GetFetchDuration().AsDuration())
		}
		out.Attempts = append(out.Attempts, shown)
	}
	if out.Explain, err = c.explain(v, &pb.ExplainRequest{TaskId: task.GetId()}); err != nil {
		return nil, err
	}
	return &view{page: "task", title: "Task", command: "waggle task get " + quoted(task.GetId()), live: true, data: out, acts: v.actsOn([]string{"task", task.GetId()}, taskChangesOf(strings.ToLower(strings.TrimPrefix(task.GetState().String(), "TASK_STATE_")))...)}, nil
}
