package operate

import (
	"context"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Warnings are, for each spec, what keeps its seeds from being handed out though the spec is
// valid: a pool that no collector takes, a schedule without seeds. Either may be on purpose.
func (o *Operator) Warnings(ctx context.Context, specs []*dispatch.SourceSpec) ([][]string, error) {
	pools, err := o.poolWarnings(ctx, specs)
	if err != nil {
		return nil, err
	}
	warnings := make([][]string, len(specs))
	for i, spec := range specs {
		for _, warning := range []string{pools[spec.Pool], idleSchedule(spec)} {
			if warning != "" {
				warnings[i] = append(warnings[i], warning)
			}
		}
	}
	return warnings, nil
}

// poolWarnings are the warnings about the pools of specs, by pool.
func (o *Operator) poolWarnings(ctx context.Context, specs []*dispatch.SourceSpec) (map[string]string, error) {
	var pools []wanted
	for _, spec := range specs {
		if spec.Pool != "" && spec.Pool != dispatch.DefaultPool { // who begins has no collector yet
			pools = append(pools, wanted{pool: spec.Pool})
		}
	}
	if len(pools) == 0 {
		return nil, nil
	}
	at, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	found, err := at.takers(ctx, collectorsLookedAt, pools)
	if err != nil {
		return nil, err
	}
	warnings := make(map[string]string)
	for w, nobody := range found {
		if len(nobody.gates) > 0 && nobody.gates[0].Kind == dispatch.GateNoCollector {
			warnings[w.pool] = nobody.gates[0].Reason
		}
	}
	return warnings, nil
}

// idleSchedule warns of a schedule or of passes without seeds to begin them.
func idleSchedule(spec *dispatch.SourceSpec) string {
	switch {
	case len(spec.Seeds) > 0:
	case !spec.Schedule.Once():
		return "it has a schedule and no seeds: only tasks that are submitted are crawled"
	case spec.Schedule.Revisit:
		return "it has revisit and no seeds, whose cycles begin the passes: only tasks that are submitted are crawled, once"
	}
	return ""
}
