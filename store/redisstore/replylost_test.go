package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// behindProxy is a store that is open to all, behind a proxy that can lose replies.
func behindProxy(t *testing.T) (*redisstore.Store, *redistest.Proxy, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := open(t, redisstore.Config{URL: proxy.URL()})
	openRule(t, s)
	return s, proxy, server
}

// TestStore_Claim_ReplyLost loses the reply of a claim: it is repeated under the
// same client token and has taken effect once (T8).
func TestStore_Claim_ReplyLost(t *testing.T) {
	t.Parallel()
	s, proxy, _ := behindProxy(t)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 10)...)
	proxy.ResetAfter(0)
	grants := claim(t, s, want(3))
	if proxy.Faults() == 0 {
		t.Fatal("no reply was lost")
	}
	if len(grants) != 3 || grants[0].Task.Counters.Attempt != 1 {
		t.Errorf("granted %d tasks, attempt %d, want 3 in their first attempt", len(grants), grants[0].Task.Counters.Attempt)
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Granted != 3 || stats.Counts.Leased != 3 {
		t.Errorf("Stats: granted %d, leased %d, %v, want 3 and 3", stats.Granted, stats.Counts.Leased, err)
	}
}

// TestStore_RepliesLost loses the reply of each kind of change once (P7).
func TestStore_RepliesLost(t *testing.T) {
	t.Parallel()
	s, proxy, _ := behindProxy(t)
	gate := sourceGate("source")

	proxy.ResetAfter(0)
	results, err := s.Submit(t.Context(), 1, []dispatch.SourceGate{gate}, submissions(&gate, "host.example", 2))
	if err != nil || results[0].Code != dispatch.SubmitExists {
		t.Errorf("Submit: %+v, %v, want EXISTS", results, err)
	}
	g := claimOne(t, s)
	proxy.ResetAfter(0)
	renewed, err := s.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token}})
	if err != nil || renewed[0].Lost != dispatch.LostNone {
		t.Errorf("Renew: %+v, %v", renewed, err)
	}
	proxy.ResetAfter(0)
	applied, err := s.Apply(t.Context(), []dispatch.Transition{done(&g)})
	if err != nil || applied[0].Code != dispatch.ApplyAlready || applied[0].Prior != dispatch.ResultSucceeded {
		t.Errorf("Apply: %+v, %v, want ALREADY, succeeded", applied, err)
	}
	if proxy.Faults() != 3 {
		t.Errorf("%d replies were lost, not 3", proxy.Faults())
	}
}

// TestStore_Claim_CallerGone cancels the caller while the claim is under way: it
// takes effect, and its client token finds it (T9).
func TestStore_Claim_CallerGone(t *testing.T) {
	t.Parallel()
	s, proxy, server := behindProxy(t)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 2)...)

	proxy.Delay(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	w := want(1)
	var reply dispatch.ClaimReply
	var err error
	var wait sync.WaitGroup
	wait.Go(func() { reply, err = s.Claim(ctx, 0, pool, 0, []dispatch.Want{w}) })
	client := redisClient(t, server.URL())
	await(t, "the claim to run", func() bool {
		n, err := client.Exists(t.Context(), key.Prefix("waggle").Shard(0).Held(w.Collector)).Result()
		return err == nil && n == 1
	})
	cancel()
	proxy.Pass()
	wait.Wait()
	if err != nil || len(reply.Grants[0]) != 1 {
		t.Fatalf("Claim after its caller has gone: %+v, %v, want the grant", reply.Grants, err)
	}
	if _, err := s.Claim(ctx, 0, pool, 0, []dispatch.Want{want(1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("Claim of a caller that has gone before: %v, want context.Canceled", err)
	}
	states, err := s.BeginPolls(t.Context(), []dispatch.Poll{w.Poll})
	if err != nil || !states[0].Used || len(states[0].Replay) != 1 || states[0].Replay[0].Token != reply.Grants[0][0].Token {
		t.Errorf("BeginPolls: %+v, %v, want the grant", states, err)
	}
}
