package engine

import (
	"context"
	"fmt"
)

// settle settles the reports that the fetch carries, before it claims: so the claim sees
// what they free.
func (f *fetch) settle(ctx context.Context) error {
	if len(f.req.Reports) == 0 {
		return nil
	}
	var err error
	if f.results, err = f.d.Report(ctx, f.want.Collector, f.req.Reports); err != nil {
		return fmt.Errorf("settle what the fetch reports: %w", err)
	}
	return nil
}
