package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Reports that a fetch carries are settled before it, but where all that they say is that
// the work is done, and the fetch is claimed for straight away: then the claim carries
// them along. That spares the store a call and the fetch a wait.

// maxCarried is how many reports go along with a claim. More are worth a call of the
// store of their own, which others can be made beside.
const maxCarried = dispatch.MaxTransitions / 10

// carry is what the claim for the fetch carries along; nil: its reports are to be settled
// first.
func (f *fetch) carry() []dispatch.Success {
	reports := f.req.Reports
	if len(reports) == 0 || len(reports) > maxCarried || f.d.Draining() || !f.straight() {
		return nil
	}
	done := make([]dispatch.Success, len(reports))
	for i := range reports {
		r := &reports[i]
		if !r.Plain() || r.Token.Collector != f.want.Collector {
			return nil
		}
		done[i] = r.Success()
	}
	return done
}

// carriedPatience is how long what a fetch carries stays in line for a claim: as long as
// a task may wait beside a fetch (P9).
const carriedPatience = 100 * time.Millisecond

func carries(w dispatch.Want) bool { return len(w.Done) > 0 }

// withoutDone are the wants with nothing to carry.
func withoutDone(wants []dispatch.Want) []dispatch.Want {
	wants = slices.Clone(wants)
	for i := range wants {
		wants[i].Done = nil
	}
	return wants
}

// checkDone reports whether the reply answers what the wants carry.
func checkDone(r *dispatch.ClaimReply, wants []dispatch.Want) error {
	for i := range wants {
		if n := len(wants[i].Done); n > 0 && (i >= len(r.Done) || len(r.Done[i]) != n) {
			return fmt.Errorf("the store did not answer the %d successes of want %d", n, i)
		}
	}
	return nil
}

// settleRest takes in what a claim has made of the reports that it carried, and settles
// what it left: those that need a policy, or all where they came into none. Not so where
// the store did not answer it: then the fetch ends with that, and is to be repeated.
func (f *fetch) settleRest(ctx context.Context) error {
	if len(f.out.done) > 0 {
		f.results = make([]dispatch.ReportResult, len(f.out.done))
		for i, applied := range f.out.done {
			f.results[i].ID = f.req.Reports[i].ID
			if applied.Code != dispatch.ApplyPolicy {
				f.d.answer(&f.results[i], &f.req.Reports[i], dispatch.ResultSucceeded, applied)
			}
		}
		if err := f.d.recall(ctx, f.req.Reports, f.results); err != nil && !notSettled(err) {
			return err
		}
	}
	if !f.out.asked && notSettled(f.out.err) {
		return nil
	}
	return f.settle(ctx)
}

// settle settles the reports that are not settled yet. What that frees, no claim before
// it has seen.
func (f *fetch) settle(ctx context.Context) error {
	reports := f.req.Reports
	if f.results == nil {
		f.results = make([]dispatch.ReportResult, len(reports))
	}
	var open []int
	for i := range f.results {
		if f.results[i].Code == 0 {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return nil
	}
	results, err := f.d.Report(ctx, f.want.Collector, pick(reports, open))
	if err != nil {
		return err
	}
	for n, i := range open {
		f.results[i] = results[n]
	}
	f.out.asked = false
	return nil
}
