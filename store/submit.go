package store

import (
	"context"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Submit implements [dispatch.Tasks].
func (s *Store) Submit(ctx context.Context, rulesVersion int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	gateOf := machine.GatesByUID(gates)
	for i := range items {
		if _, err := dispatch.ParseTaskID(string(items[i].ID)); err != nil {
			return nil, err
		}
		if gateOf[items[i].SourceUID] == nil {
			return nil, fmt.Errorf("%w: source %.64q of task %s is not among the gates", dispatch.ErrInvalid, items[i].SourceUID, items[i].ID)
		}
	}
	results := make([]dispatch.SubmitResult, len(items))
	err := byPage(ctx, s, len(items), bounds.MaxSubmissions, func(i int) dispatch.TaskID { return items[i].ID },
		func(page []int) *machine.Submit {
			return &machine.Submit{Rules: rulesVersion, Gates: gates, Items: pick(items, page)}
		},
		func(_ *shard, c *machine.Submit, page []int) { spread(results, page, c.Answers) })
	if err != nil {
		return nil, err
	}
	return results, nil
}
