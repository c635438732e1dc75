package load

import (
	"context"
	"fmt"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Restart kills the dispatcher and starts it on what it has kept. It returns how long the start took, and the resident memory after it.
func (l *Load) Restart(ctx context.Context, cfg Config) (took time.Duration, resident int, err error) {
	l.node.dispatcher.Stop()
	if err := l.Close(); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := l.node.startDispatcher(ctx, cfg); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	if err := l.connect(); err != nil {
		return 0, 0, err
	}
	resident, err = l.node.dispatcher.Resident()
	return took, resident, err
}

// SubmitKnown submits tasks that are done, perCall at a time, and returns how long each call took. The tasks are spread over the first
// of so many.
func (l *Load) SubmitKnown(ctx context.Context, of, calls, perCall int) (took []time.Duration, err error) {
	client := pb.NewTaskServiceClient(l.conn(0))
	for call := range calls {
		items := make([]*pb.SubmitItem, perCall)
		for i := range items {
			items[i] = l.workload.item(int(uint64(call*perCall+i) * 0x9e3779b97f4a7c15 % uint64(of))) //nolint:gosec // not negative
		}
		began := time.Now()
		reply, err := client.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: items})
		if err != nil {
			return nil, fmt.Errorf("submit: %w", err)
		}
		took = append(took, time.Since(began))
		for _, r := range reply.GetResults() {
			if r.GetCode() != pb.SubmitCode_SUBMIT_CODE_EXISTS || r.GetState() != pb.TaskState_TASK_STATE_DONE {
				return nil, fmt.Errorf("a task that is done was answered %s: %s", r.GetCode(), r.GetMessage())
			}
		}
	}
	return took, nil
}
