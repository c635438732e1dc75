package collectorkit

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// fetchScenarios are about fetches that are answered, and about those whose answer is lost.
func fetchScenarios() []Scenario {
	return []Scenario{
		{
			Name: "fetch/one-task", Rule: "19: fetch, work, report",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 100, HTTPStatus: 200, Bytes: 10, Memo: "etag"})
				k.start()
				k.settled(soon, ids...)
				done := k.outcome(ids[0]).GetSucceeded()
				verdict.Want(done.GetHttpStatus() == 200 && done.GetBytes() == 10 && string(done.GetMemo()) == "etag",
					"the report has status %d, %d bytes and memo %q, want 200, 10 and \"etag\"", done.GetHttpStatus(), done.GetBytes(), done.GetMemo())
			},
		},
		{
			Name: "fetch/free-slots", Rule: "6: ask only for what you can start now",
			script: func(k *kit) {
				ids := k.add(many(12, work{WorkMS: 1000})...)
				k.start()
				k.settled(10*time.Second, ids...)
				most := int32(0)
				for _, c := range k.seen(isFetch) {
					most = max(most, c.fetch.GetMaxTasks())
				}
				verdict.Want(most == 4, "the largest fetch asked for %d tasks with 4 free slots, want 4", most)
			},
		},
		{
			Name: "fetch/slow-handler", Rule: "6: a slow handler takes its own slot, and no other",
			script: func(k *kit) {
				slow := k.add(work{WorkMS: 4000})
				quick := k.add(many(9, work{WorkMS: 100})...)
				k.start()
				k.settled(soon, quick...)
				verdict.Want(k.leaseOf(slow[0]).result == nil, "the slow task was reported before the quick ones were done")
				k.settled(6*time.Second, slow...)
			},
		},
		{
			Name: "fetch/request", Rule: "3, 6: pools, lease and wait as configured; the deadline of a fetch is wait plus 5 s or more",
			config: func(c *clientConfig) { c.Pools, c.WaitMS, c.LeaseMS = []string{"default", "browser"}, 1500, 2000 },
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 3000})
				k.start()
				k.settled(6*time.Second, ids...)
				k.next(soon, "fetch that waits", time.Time{}, func(c *call) bool { return isFetch(c) && len(c.fetch.GetReports()) == 0 })
				for _, c := range k.seen(isFetch) {
					wait := c.fetch.GetWait().AsDuration()
					verdict.Want(slices.Equal(c.fetch.GetPools(), k.config.Pools), "a fetch asks for pools %v, want %v", c.fetch.GetPools(), k.config.Pools)
					verdict.Want(c.fetch.GetLeaseDuration().AsDuration() == 2*time.Second, "a fetch asks for a lease of %s, want 2 s", c.fetch.GetLeaseDuration().AsDuration())
					if c.onWork {
						continue // it waits for as long as the stream lasts
					}
					verdict.Want(wait <= 1500*time.Millisecond, "a fetch asks to wait %s, want at most 1.5 s", wait)
					verdict.Want(!c.deadline.IsZero() && c.deadline.Sub(c.at) >= wait+5*time.Second-slack, "a fetch that waits %s has no deadline, or one of less than 5 s more", wait)
				}
				info := k.seen(isBeat)[0].beat.GetCollector()
				verdict.Want(info.GetSlots() == 4 && slices.Equal(info.GetPools(), k.config.Pools), "a heartbeat has %d slots and pools %v, want 4 and %v",
					info.GetSlots(), info.GetPools(), k.config.Pools)
			},
		},
		{
			Name: "fetch/clock-off", Rule: "3: act on durations, never on times of day",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 2500, lease: 2 * time.Second, yearsOff: 10}, work{WorkMS: 2500, lease: 2 * time.Second, yearsOff: -10})
				k.start()
				k.settled(5*time.Second, ids...)
				for _, id := range ids {
					verdict.Want(k.outcome(id).GetSucceeded() != nil, "a task whose times are 10 years off did not succeed")
				}
			},
		},
		{
			Name: "fetch/held", Rule: "6: HELD: fetch again after retry_after",
			script: func(k *kit) {
				k.on(func(h *hooks) { h.fetch = once(empty(wagglev1.EmptyReason_EMPTY_REASON_HELD, 1500*time.Millisecond)) })
				ids := k.add(work{})
				k.start()
				k.settled(soon+2*time.Second, ids...)
				k.wantGap(0, 1500*time.Millisecond, "HELD had a retry_after of 1.5 s")
			},
		},
		{
			Name: "fetch/collector-held", Rule: "6: COLLECTOR_HELD: fetch nothing until a heartbeat has no held, or after retry_after",
			config: func(c *clientConfig) { c.WaitMS = 500 },
			script: func(k *kit) {
				k.start()
				k.await(soon, "heartbeat", func() bool { return len(k.callsLocked(isBeat)) > 0 })
				k.pass(slack) // its answer has arrived
				var held atomic.Pointer[call]
				k.on(func(h *hooks) {
					h.fetch = once(func(c *call) (*wagglev1.FetchTaskResponse, error) {
						k.change(func() { k.held = true })
						held.Store(c)
						return empty(wagglev1.EmptyReason_EMPTY_REASON_COLLECTOR_HELD, 2*time.Second)(c)
					})
				})
				first := k.add(work{}) // ends a fetch that waits on a stream
				k.await(soon, "fetch", func() bool { return held.Load() != nil })
				k.pass(2500 * time.Millisecond)
				n := k.count(held.Load().at, held.Load().at.Add(2*time.Second-slack/10), isFetch)
				verdict.Want(n == 0, "%d fetches came within the 2 s of COLLECTOR_HELD's retry_after", n)
				k.hold(false)
				k.settled(heldBeat+soon, append(first, k.add(work{})...)...)
			},
		},
		{
			Name: "fetch/draining", Rule: "6: DISPATCHER_DRAINING: fetch from another dispatcher",
			script: func(k *kit) {
				var draining *server
				k.on(func(h *hooks) {
					h.fetch = func(c *call) (*wagglev1.FetchTaskResponse, error) {
						isDraining := false
						k.change(func() {
							if draining == nil {
								draining = c.server
							}
							isDraining = draining == c.server
						})
						if isDraining {
							return empty(wagglev1.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING, time.Second)(c)
						}
						return nil, nil //nolint:nilnil // the usual dispatcher answers
					}
				})
				ids := k.add(work{})
				k.start()
				k.settled(soon+2*time.Second, ids...)
			},
		},
		{
			Name: "fetch/token-used", Rule: "6: TOKEN_USED: fetch with a new client token",
			script: func(k *kit) {
				k.on(func(h *hooks) { h.fetch = once(empty(wagglev1.EmptyReason_EMPTY_REASON_TOKEN_USED, 0)) })
				ids := k.add(work{})
				k.start()
				k.settled(soon, ids...)
			},
		},
		{
			Name: "fetch/unknown-reason", Rule: "21: an unknown EmptyReason is NO_TASKS",
			script: func(k *kit) {
				k.on(func(h *hooks) { h.fetch = once(empty(unknownEnum, 0)) })
				ids := k.add(work{})
				k.start()
				k.settled(soon, ids...)
			},
		},
		{
			Name: "fetch/lost-reply", Rule: "6: after an error or no reply, repeat with the same client token",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 100})
				k.on(func(h *hooks) { h.fetch = once(k.grantAndLose) })
				k.start()
				first := k.next(soon, "fetch", time.Time{}, isFetch)
				second := k.next(soon, "repeated fetch", first.at, isFetch)
				verdict.Want(first.fetch.GetClientToken() == second.fetch.GetClientToken(), "the repeated fetch has another client token")
				k.settled(soon, ids...)
			},
		},
		{
			Name: "fetch/rate-limited", Rule: "4: wait at least as long as RetryInfo asks, then repeat with the same client token",
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.fetch = failing[wagglev1.FetchTaskResponse](2, wgError(codes.ResourceExhausted, "RATE_LIMITED", 1500*time.Millisecond))
				})
				ids := k.add(work{})
				k.start()
				k.settled(10*time.Second, ids...)
				fetches := k.seen(isFetch)
				verdict.Want(fetches[0].fetch.GetClientToken() == fetches[1].fetch.GetClientToken(), "the repeated fetch has another client token")
				k.wantGap(0, 1500*time.Millisecond, "RetryInfo asked for 1.5 s")
				k.wantGap(1, 1500*time.Millisecond, "RetryInfo asked for 1.5 s")
			},
		},
		{
			Name: "fetch/rate-limited-long", Rule: "4: wait before each repetition, twice as long each time",
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.fetch = failing[wagglev1.FetchTaskResponse](always, wgError(codes.ResourceExhausted, "RATE_LIMITED", 0))
				})
				k.start()
				began := time.Now()
				k.pass(4 * time.Second)
				n := k.count(began, time.Now(), isFetch)
				verdict.Want(n >= 2, "%d fetches in 4 s of RATE_LIMITED, want some repetitions", n)
				verdict.Want(n <= 12, "%d fetches in 4 s of RATE_LIMITED: no growing wait between them", n)
			},
		},
		{
			Name: "fetch/large-reply", Rule: "20: accept a reply of 16 MiB",
			config: func(c *clientConfig) { c.Slots = 60 },
			script: func(k *kit) {
				ids := k.add(many(60, work{Padding: strings.Repeat("x", 200<<10)})...)
				k.start()
				k.settled(10*time.Second, ids...)
			},
		},
	}
}

// empty is an answer to a fetch without tasks.
func empty(reason wagglev1.EmptyReason, retry time.Duration) func(*call) (*wagglev1.FetchTaskResponse, error) {
	return func(*call) (*wagglev1.FetchTaskResponse, error) {
		return &wagglev1.FetchTaskResponse{EmptyReason: reason, RetryAfter: durationpb.New(retry)}, nil
	}
}

// grantAndLose grants, and loses the reply.
func (k *kit) grantAndLose(c *call) (*wagglev1.FetchTaskResponse, error) {
	if _, err := k.serveFetch(c); err != nil {
		return nil, err
	}
	return nil, errLost
}

// wantGap fails unless the fetch after fetch i, counted from 0, came no sooner than the dispatcher asked.
func (k *kit) wantGap(i int, least time.Duration, why string) {
	fetches := k.seen(isFetch)
	gap := fetches[i+1].at.Sub(fetches[i].at)
	verdict.Want(gap >= least-slack/10, "a fetch came %s after the last, but %s", gap.Round(time.Millisecond), why)
}
