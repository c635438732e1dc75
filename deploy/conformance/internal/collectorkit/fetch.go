package collectorkit

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// empty is an answer to a fetch without tasks.
func empty(reason wagglev1.EmptyReason, retry time.Duration) func(*call) (*wagglev1.FetchTaskResponse, error) {
	return func(*call) (*wagglev1.FetchTaskResponse, error) {
		return &wagglev1.FetchTaskResponse{EmptyReason: reason, RetryAfter: durationpb.New(retry)}, nil
	}
}

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
				want(done.GetHttpStatus() == 200 && done.GetBytes() == 10 && string(done.GetMemo()) == "etag",
					"the report has status %d, %d bytes and memo %q, want 200, 10 and \"etag\"", done.GetHttpStatus(), done.GetBytes(), done.GetMemo())
			},
		},
		{
			Name: "fetch/free-slots", Rule: "6: ask only for what you can start now",
			script: func(k *kit) {
				ids := k.add(many(12, work{WorkMS: 400})...)
				k.start()
				k.settled(10*time.Second, ids...)
				k.check(func() {
					most := 0
					for _, c := range k.calls {
						most = max(most, int(c.fetch.GetMaxTasks()))
					}
					want(most == 4, "the largest fetch asked for %d tasks with 4 free slots, want 4", most)
				})
			},
		},
		{
			Name: "fetch/slow-handler", Rule: "6: a slow handler holds only its own slot",
			script: func(k *kit) {
				slow := k.add(work{WorkMS: 4000})
				quick := k.add(many(9, work{WorkMS: 100})...)
				k.start()
				k.settled(soon, quick...)
				k.check(func() {
					want(k.lease(slow[0]).result == nil, "the slow task was reported before the quick ones were done")
				})
				k.settled(6*time.Second, slow...)
			},
		},
		{
			Name: "fetch/lost-reply", Rule: "6: after an error or no reply, repeat with the same client token",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 100})
				k.on(func(h *hooks) { h.fetch = once(k.grantAndLose) })
				k.start()
				k.settled(soon, ids...)
				k.check(func() {
					want(len(k.leases) == 1, "the repeated fetch got another lease: its client token differed")
					want(len(k.reportsLocked(ids[0])) == 1, "the task was reported twice")
				})
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
				k.check(func() {
					fetches := k.callsLocked(isFetch)
					want(fetches[0].fetch.GetClientToken() == fetches[1].fetch.GetClientToken(), "the repeated fetch had another client token")
					for i := range 2 {
						gap := fetches[i+1].at.Sub(fetches[i].at)
						want(gap >= 1450*time.Millisecond, "a fetch was repeated after %s, but RetryInfo asked for 1.5 s", gap.Round(time.Millisecond))
					}
				})
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
				want(n >= 2, "only %d fetches in 4 s of RATE_LIMITED, want some repetitions", n)
				want(n <= 10, "%d fetches in 4 s of RATE_LIMITED: no growing wait between them", n)
			},
		},
	}
}

// grantAndLose grants, and loses the reply.
func (k *kit) grantAndLose(c *call) (*wagglev1.FetchTaskResponse, error) {
	if _, err := k.serveFetch(c); err != nil {
		return nil, err
	}
	return nil, errLost
}
