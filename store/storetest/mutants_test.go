package storetest_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// mutants each break one promise, those named "answers" one that only the comparison with a sound store holds.
func mutants(ctx context.Context) map[string]*mutant {
	calls, picks := 0, 0
	first := firstHeld()
	failed := map[int]uint32{} // the last URL by slot
	return map[string]*mutant{
		"P1 every hundredth submit is acknowledged and forgotten": {
			submit: func(s dispatch.Store, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
				if calls++; calls%100 != 0 || len(items) != 1 {
					return s.Submit(ctx, rules, gates, items)
				}
				return []dispatch.SubmitResult{{Code: dispatch.SubmitCreated, State: dispatch.StateReady}}, nil
			},
		},
		"P3 the token of a report is not compared": {
			apply: func(s dispatch.Store, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
				transitions = slices.Clone(transitions)
				for i := range transitions {
					tasks, _, err := s.Tasks(ctx, []dispatch.TaskID{transitions[i].ID}, false)
					if err != nil {
						return nil, err
					}
					if tasks[0] != nil && tasks[0].Lease != nil {
						transitions[i].Token = tasks[0].Lease.Digest
					}
				}
				return s.Apply(ctx, transitions)
			},
		},
		"P2 an expiry is not checked again": {
			apply: func(s dispatch.Store, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
				transitions = slices.Clone(transitions)
				for i := range transitions {
					transitions[i].Expired = false
				}
				return s.Apply(ctx, transitions)
			},
		},
		"a revision is not compared": {
			apply: func(s dispatch.Store, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
				transitions = slices.Clone(transitions)
				for i := range transitions {
					tasks, _, err := s.Tasks(ctx, []dispatch.TaskID{transitions[i].ID}, false)
					if err != nil {
						return nil, err
					}
					if tasks[0] != nil {
						transitions[i].Revision = tasks[0].Revision
					}
				}
				return s.Apply(ctx, transitions)
			},
		},
		"P4 fences repeat": {
			claim: func(s dispatch.Store, shard int, pool string, holds int64, wants []dispatch.Want) (dispatch.ClaimReply, error) {
				reply, err := s.Claim(ctx, shard, pool, holds, wants, nil)
				for _, grants := range reply.Grants {
					for i := range grants {
						grants[i].Token.Fence -= grants[i].Token.Fence % 2
					}
				}
				return reply, err
			},
		},
		"P6 delays are not kept": {
			rule: func(r *dispatch.QueueRule) {
				r.Settings.MinDelay = 0
			},
		},
		"P6 a limit in flight is not kept": {
			rule: func(r *dispatch.QueueRule) {
				r.Settings.MaxInFlight++
			},
		},
		"P6 a hold of a suffix is ignored": {
			holds: func(s dispatch.Store, change dispatch.HoldChange, ifVersion int64) (int64, error) {
				change.Queues = maps.Clone(change.Queues) // the model has this one
				maps.DeleteFunc(change.Queues, func(name string, _ time.Time) bool { return strings.HasPrefix(name, "*.") })
				return s.PutHolds(ctx, change, ifVersion)
			},
		},
		"P6 only the first name that is held is looked at": {
			holds: func(s dispatch.Store, change dispatch.HoldChange, ifVersion int64) (int64, error) {
				change.Queues = first(change.Queues)
				return s.PutHolds(ctx, change, ifVersion)
			},
		},
		"P6 to lift one hold of a queue opens it": {
			holds: func(s dispatch.Store, change dispatch.HoldChange, ifVersion int64) (int64, error) {
				change.Queues = maps.Clone(change.Queues)
				for _, key := range change.Lift {
					if parts := strings.Split(key, "\x00"); parts[0] == "queue" {
						change.Queues[parts[1]] = time.Time{}
					}
				}
				return s.PutHolds(ctx, change, ifVersion)
			},
		},
		"P6 a claim by older holds is granted": {
			claim: func(s dispatch.Store, shard int, pool string, _ int64, wants []dispatch.Want) (dispatch.ClaimReply, error) {
				return s.Claim(ctx, shard, pool, math.MaxInt64, wants, nil)
			},
		},
		"a renewal extends what a hold ends": {
			renew: func(s dispatch.Store, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
				results, err := s.Renew(ctx, renewals)
				for i := range results {
					if results[i].Cancel == dispatch.CancelHeld {
						results[i].Remaining = results[i].Duration
					}
				}
				return results, err
			},
		},
		"what a hold ends is canceled when it is given back": {
			back: func(s dispatch.Store, shard int, collector, token, call string) (int, error) {
				leased, _, err := s.ListLeases(ctx, "", 1000)
				if err != nil {
					return 0, err
				}
				for _, t := range leased {
					if t.CancelRequested == dispatch.CancelHeld {
						err = errors.Join(err, s.RequestCancel(ctx, []dispatch.TaskID{t.ID}, dispatch.CancelTask, nil))
					}
				}
				given, backErr := s.GiveBack(ctx, shard, collector, token, call)
				return given, errors.Join(err, backErr)
			},
		},
		"P7 a repeated fetch is a new one": {
			claim: func(s dispatch.Store, shard int, pool string, holds int64, wants []dispatch.Want) (dispatch.ClaimReply, error) {
				renamed := make([]dispatch.Want, len(wants))
				for i, w := range wants {
					calls++
					w.ClientToken = "mutant-" + strconv.Itoa(calls)
					renamed[i] = w
				}
				reply, err := s.Claim(ctx, shard, pool, holds, renamed, nil)
				for i := range reply.Grants {
					for k := range reply.Grants[i] {
						reply.Grants[i][k].Token.ClientToken = wants[i].ClientToken
					}
				}
				return reply, err
			},
		},
		"answers: a page that is gone is no answer of its host": {
			apply: func(s dispatch.Store, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
				transitions = slices.Clone(transitions)
				for i := range transitions {
					if q := &transitions[i].Queue; q.Kind == dispatch.QueueAnswered {
						q.Kind = dispatch.QueueReported
					}
				}
				return s.Apply(ctx, transitions)
			},
		},
		"answers: two URLs that failed block their host": {
			apply: func(s dispatch.Store, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
				transitions = slices.Clone(transitions)
				for i := range transitions {
					slot := transitions[i].ID.Slot()
					switch q := &transitions[i].Queue; q.Kind {
					case dispatch.QueueSucceeded, dispatch.QueueAnswered:
						delete(failed, slot)
					case dispatch.QueueURLFailed:
						if other, ok := failed[slot]; ok && other != q.URL {
							q.Kind = dispatch.QueueBlocked
						}
						failed[slot] = q.URL
					case dispatch.QueueReported, dispatch.QueueBlocked, dispatch.QueueExpired, dispatch.QueueUntouched:
					}
				}
				return s.Apply(ctx, transitions)
			},
		},
		"answers: an eighth pick takes what is behind": {
			claim: func(s dispatch.Store, shard int, pool string, holds int64, wants []dispatch.Want) (dispatch.ClaimReply, error) {
				if w := wants[0]; len(wants) == 1 && w.Max == 1 && len(w.Queues)+len(w.SourceUIDs) == 0 {
					if picks++; picks%8 == 0 {
						behind, err := readyBehind(ctx, s)
						for _, t := range behind {
							w.Queues, w.SourceUIDs = []string{t.Queue}, []string{t.SourceUID}
							if reply, err := s.Claim(ctx, shard, pool, holds, []dispatch.Want{w}, nil); err != nil || len(reply.Grants[0]) > 0 {
								return reply, err
							}
						}
						if err != nil {
							return dispatch.ClaimReply{}, err
						}
					}
				}
				return s.Claim(ctx, shard, pool, holds, wants, nil)
			},
		},
		"P9 what a held source holds stays held": {
			push: func(s dispatch.Store, shard int, g dispatch.SourceGate, page string) (string, error) {
				if calls++; calls%3 == 0 && g.HeldUntil.IsZero() {
					g.HeldUntil = dispatch.Forever
				}
				return s.PushSource(ctx, shard, g, page)
			},
		},
		"T15 a renewal gives more than was asked for": {
			renew: func(s dispatch.Store, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
				results, err := s.Renew(ctx, renewals)
				for i := range results {
					results[i].Remaining = max(results[i].Remaining, results[i].Duration)
				}
				return results, err
			},
		},
		"T20 an expired lease is overlooked": {
			expired: func(s dispatch.Store, shard, limit int) (dispatch.Sweep, error) {
				sweep, err := s.Expired(ctx, shard, limit)
				sweep.Expired = sweep.Expired[:len(sweep.Expired)/2]
				return sweep, err
			},
		},
		"answers: a replaced session keeps its leases": {
			end: func(s dispatch.Store, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
				_, err := s.EndSession(ctx, shard, collector, keep, limit)
				return nil, err
			},
		},
	}
}

// modelQueues are those of the model.
func modelQueues() []string {
	return []string{"a.test", "b.a.test", "c.a.test", "c.a.test:81", "d.test", "e.org", "f.e.org", "g.e.org:8080", "h.org", "localhost"}
}

// readyBehind lists ready tasks that are behind.
func readyBehind(ctx context.Context, s dispatch.Store) (behind []*dispatch.Task, err error) {
	for _, queue := range modelQueues() {
		page, listErr := s.ListTasks(ctx, dispatch.TaskFilter{Queue: queue, States: []dispatch.State{dispatch.StateReady}}, "", 1000)
		err = errors.Join(err, listErr)
		behind = append(behind, slices.DeleteFunc(page.Tasks, func(t *dispatch.Task) bool { return !t.Behind })...)
	}
	return behind, err
}

// firstHeld makes changes that hold a queue by the first of its names alone: each answers
// what a change of names comes to for the queues of the model.
func firstHeld() func(map[string]time.Time) map[string]time.Time {
	held := map[string]time.Time{}
	return func(change map[string]time.Time) map[string]time.Time {
		for name, until := range change {
			if held[name] = until; until.IsZero() {
				delete(held, name)
			}
		}
		queues := map[string]time.Time{}
		for _, queue := range modelQueues() {
			queues[queue] = time.Time{}
			for _, name := range dispatch.SettingsNames(queue) {
				if until, ok := held[name]; ok {
					queues[queue] = until
					break
				}
			}
		}
		return queues
	}
}

// TestExplore_CatchesMutants holds the model's checker against stores with one
// guard taken out: each must be found out.
func TestExplore_CatchesMutants(t *testing.T) {
	t.Parallel()
	for name, m := range mutants(t.Context()) {
		t.Run(name, func(t *testing.T) {
			instance := newInstance(t, func(s dispatch.Store) dispatch.Store {
				m.Store = s
				return m
			})
			stores := []storetest.Instance{instance}
			if strings.HasPrefix(name, "answers") {
				stores = append(stores, newInstance(t, func(s dispatch.Store) dispatch.Store { return s }))
			}
			run, err := storetest.Explore(t.Context(), stores, storetest.ModelConfig{Seed: 7, Steps: 20_000})
			if err == nil {
				t.Fatalf("%d steps found nothing wrong", run.Steps)
			}
			t.Logf("found in step %d: %v", run.Steps, err)
		})
	}
}

// TestExplore_PassesASoundStore shows that it is the mutation that is found.
func TestExplore_PassesASoundStore(t *testing.T) {
	t.Parallel()
	instance := newInstance(t, func(s dispatch.Store) dispatch.Store { return &mutant{Store: s} })
	run, err := storetest.Explore(t.Context(), []storetest.Instance{instance}, storetest.ModelConfig{Seed: 7, Steps: 10_000})
	if err != nil {
		t.Fatalf("step %d: %v\n%s", run.Steps, err, strings.Join(run.History, "\n"))
	}
}

// TestExplore_ComparesWithTheReference gives the reference another answer.
func TestExplore_ComparesWithTheReference(t *testing.T) {
	t.Parallel()
	instance := newInstance(t, func(s dispatch.Store) dispatch.Store { return s })
	reference := newInstance(t, func(s dispatch.Store) dispatch.Store {
		return &mutant{Store: s, claim: func(s dispatch.Store, shard int, pool string, holds int64, wants []dispatch.Want) (dispatch.ClaimReply, error) {
			reply, err := s.Claim(t.Context(), shard, pool, holds, wants, nil)
			reply.More = err == nil && len(reply.Grants[0]) > 1
			return reply, err
		}}
	})
	run, err := storetest.Explore(t.Context(), []storetest.Instance{instance, reference}, storetest.ModelConfig{Seed: 7, Steps: 20_000})
	if err == nil {
		t.Fatalf("%d steps found no difference", run.Steps)
	}
}
