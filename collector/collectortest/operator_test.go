package collectortest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/collectortest"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestOperator_EndsWork shows that a handler hears of an operator who cancels its task or takes its lease, and what
// becomes of the task.
func TestOperator_EndsWork(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end    func(context.Context, wagglev1.TaskServiceClient, []string) ([]*wagglev1.TaskChange, error)
		code   wagglev1.TaskChangeCode
		cause  error
		visits int
		state  wagglev1.TaskState
	}{
		"CancelTasks": {func(ctx context.Context, tasks wagglev1.TaskServiceClient, ids []string) ([]*wagglev1.TaskChange, error) {
			reply, err := tasks.CancelTasks(ctx, &wagglev1.CancelTasksRequest{TaskIds: ids})
			return reply.GetResults(), err
		}, wagglev1.TaskChangeCode_TASK_CHANGE_CODE_CANCEL_REQUESTED, collector.ErrCanceled, 1, wagglev1.TaskState_TASK_STATE_CANCELED},
		"RevokeLeases": {func(ctx context.Context, tasks wagglev1.TaskServiceClient, ids []string) ([]*wagglev1.TaskChange, error) {
			reply, err := tasks.RevokeLeases(ctx, &wagglev1.RevokeLeasesRequest{TaskIds: ids})
			return reply.GetResults(), err
		}, wagglev1.TaskChangeCode_TASK_CHANGE_CODE_REVOKED, collector.ErrLeaseLost, 2, wagglev1.TaskState_TASK_STATE_DONE},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := collectortest.Start(t)
				d.CreateSource(&wagglev1.SourceSpec{Id: "shop", LeaseDuration: durationpb.New(6 * time.Second)})
				d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://a.example/"})
				var seen visits
				d.Work(collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
					if seen.note(task.URL); seen.times(task.URL) > 1 {
						return collector.Succeeded{}, nil
					}
					changes, err := test.end(context.WithoutCancel(ctx), wagglev1.NewTaskServiceClient(d.Conn()), []string{task.ID})
					if err != nil || len(changes) != 1 || changes[0].GetCode() != test.code {
						t.Errorf("the operator is answered %v, %v, want %s", changes, err, test.code)
					}
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, test.cause) {
						t.Errorf("the handler is stopped by %v, want %v", cause, test.cause)
					}
					return collector.Succeeded{}, ctx.Err()
				}))
				if n := seen.times("https://a.example/"); n != test.visits {
					t.Errorf("the handler was called %d times, want %d", n, test.visits)
				}
				if got := d.Task("shop", "https://a.example/"); got.GetState() != test.state {
					t.Errorf("the task is %s, want %s", got.GetState(), test.state)
				}
			})
		})
	}
}

// times is how often a handler was called with url.
func (v *visits) times(url string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.count[url]
}
