package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/dir"
)

// Settle has n tasks succeed, and as many more wait as waiting says. Of a store in a directory the dispatcher is stopped meanwhile: this
// process puts the tasks in, as `waggle store copy` does, so that there can be many. [Load.Restart] is to come next then.
func (l *Load) Settle(ctx context.Context, cfg Config, n, waiting int) error {
	if cfg.Store == StoreFile {
		return l.settleDir(ctx, n, waiting)
	}
	if _, err := l.Submit(ctx, n, knownPerCall); err != nil {
		return err
	}
	if _, err := l.Work(ctx, n); err != nil {
		return err
	}
	_, err := l.Submit(ctx, waiting, knownPerCall)
	return err
}

const knownPerCall = 1000

func (l *Load) settleDir(ctx context.Context, n, waiting int) (err error) {
	l.node.dispatcher.Stop()
	s, err := store.Open(ctx, store.Config{Backend: dir.New(dir.Config{
		Dir: strings.TrimPrefix(l.node.store, "file:"), Existing: true, SyncEvery: dir.SyncNever,
	})})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, rules, err := s.Rules(ctx)
	if err != nil {
		return err
	}
	sources, err := s.SourcesByID(ctx, []string{sourceID(0)})
	if err != nil || sources[0] == nil {
		return fmt.Errorf("find the source: %w", err)
	}
	gate := sources[0].Gate()
	now := time.Now()
	for from := 0; from < n; from += dispatch.MaxPortable {
		batch := dispatch.PortableBatch{Gates: []dispatch.SourceGate{gate}}
		for number := from; number < min(from+dispatch.MaxPortable, n); number++ {
			of := l.submission(gate.UID, number)
			batch.Tasks = append(batch.Tasks, dispatch.PortableTask{
				Task: dispatch.Task{
					ID: of.ID, SourceUID: of.SourceUID, Queue: of.Queue, Key: of.Key, URL: of.URL, Priority: of.Priority,
					State: dispatch.StateDone, Result: dispatch.ResultSucceeded, Revision: 3, Counters: dispatch.Counters{Cycle: 1, Attempt: 1},
					Created: now, Due: now, SettledAt: now.Add(time.Second),
					LastLease: dispatch.LeaseDigest{Holder: rand.Uint64(), Fence: uint64(now.UnixMicro()) + uint64(number)}, //nolint:gosec // not negative
				},
				ForgetAt: now.Add(30 * 24 * time.Hour),
			})
		}
		if err := s.Import(ctx, &batch); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	for from := n; from < n+waiting; from += knownPerCall {
		items := make([]dispatch.Submission, min(knownPerCall, n+waiting-from))
		for i := range items {
			items[i] = l.submission(gate.UID, from+i)
			items[i].Payload = l.workload.item(from + i).GetPayload()
		}
		if _, err := s.Submit(ctx, rules, []dispatch.SourceGate{gate}, items); err != nil {
			return fmt.Errorf("submit: %w", err)
		}
	}
	return nil
}

// submission is a task as the dispatcher gives it to the store, without its payload.
func (l *Load) submission(uid string, number int) dispatch.Submission {
	queue, url := fmt.Sprintf("q%d.bench.invalid", l.workload.queueOf(number)), l.workload.item(number).GetUrl()
	return dispatch.Submission{
		ID:        dispatch.NewTaskID(dispatch.Identity{Scope: uid, Queue: queue, Key: url}),
		SourceUID: uid, Queue: queue, Key: url, URL: url, Priority: 5,
	}
}

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
