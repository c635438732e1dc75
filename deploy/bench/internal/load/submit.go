package load

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// producers submit at once.
const producers = 16

// Submit submits n new tasks, perCall at a time.
func (l *Load) Submit(ctx context.Context, n, perCall int) (*Outcome, error) {
	o := &Outcome{}
	used, err := l.node.Used(func() error {
		began := time.Now()
		err := l.submit(ctx, n, perCall)
		o.Took = time.Since(began)
		return err
	})
	o.Used = used
	return o, err
}

func (l *Load) submit(ctx context.Context, n, perCall int) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l.mu.Lock()
	first := len(l.given)
	l.given = append(l.given, make([]time.Time, n)...)
	l.mu.Unlock()
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(producers)
	for from := 0; from < n; from += perCall {
		all.Go(func() error {
			items := make([]*pb.SubmitItem, min(perCall, n-from))
			for i := range items {
				items[i] = l.workload.item(first + from + i)
			}
			reply, err := pb.NewTaskServiceClient(l.conn(from/perCall)).SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: items})
			if err != nil {
				return fmt.Errorf("submit: %w", err)
			}
			return created(reply.GetResults(), len(items))
		})
	}
	return all.Wait()
}

func created(results []*pb.SubmitResult, want int) error {
	if len(results) != want {
		return fmt.Errorf("%d tasks got %d results", want, len(results))
	}
	for _, r := range results {
		if r.GetCode() != pb.SubmitCode_SUBMIT_CODE_CREATED {
			return fmt.Errorf("a new task was answered %s: %s", r.GetCode(), r.GetMessage())
		}
	}
	return nil
}
