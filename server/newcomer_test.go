package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// comes makes a call of a collector by each method that makes an id known, and returns what each of them answers.
func (b *bed) comes(ctx context.Context, id string) error {
	info := &pb.CollectorInfo{Id: id, Session: "s1"}
	_, fetched := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: id, Session: "s1", ClientToken: uuid.NewString(), Wait: durationpb.New(0)})
	_, renewed := b.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{Collector: info})
	stream, err := b.dispatch.Heartbeat(ctx)
	if err == nil {
		err = stream.Send(&pb.HeartbeatRequest{Collector: info})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil {
		err = stream.CloseSend()
	}
	return errors.Join(fetched, renewed, err)
}

// known are the ids of the collectors that the store has.
func (b *bed) known(ctx context.Context, t *testing.T) string {
	t.Helper()
	resp, err := b.admin.ListCollectors(ctx, &pb.ListCollectorsRequest{PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range resp.GetCollectors() {
		ids = append(ids, c.GetInfo().GetId())
	}
	return strings.Join(ids, " ")
}

// refused wants each part of an error to refuse a newcomer.
func refused(t *testing.T, err error, limit string) {
	t.Helper()
	parts, ok := err.(interface{ Unwrap() []error })
	if !ok || len(parts.Unwrap()) != 3 {
		t.Fatalf("%v, want three refusals", err)
	}
	for _, part := range parts.Unwrap() {
		if f := wantFault(t, part, codes.ResourceExhausted, "RATE_LIMITED"); f.metadata["limit"] != limit || f.metadata["collector_id"] == "" {
			t.Errorf("the refusal has %v, want the limit %s and the collector", f.metadata, limit)
		}
	}
}

// Collectors that were granted nothing are bounded by address. What is over the limit leaves nothing in the store; who is
// granted a task makes room.
func TestServer_newcomers(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{MaxNewCollectors: 3})
	for _, id := range []string{"c1", "c2", "c3", "c1"} {
		if err := b.comes(t.Context(), id); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	refused(t, b.comes(t.Context(), "c4"), "3")
	if known := b.known(t.Context(), t); known != "c1 c2 c3" {
		t.Errorf("the store knows %s", known)
	}
	b.leased(t) // c1 is granted it
	if err := b.comes(t.Context(), "c4"); err != nil {
		t.Errorf("c4 once c1 was granted a task: %v", err)
	}
	refused(t, b.comes(t.Context(), "c5"), "3")
}

// One that sends much about itself takes the place of several.
func TestServer_newcomers_large(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{MaxNewCollectors: 8})
	labels := make(map[string]string)
	for i := range 64 {
		labels[fmt.Sprintf("%0128d", i)] = strings.Repeat("v", 128)
	}
	beat := func(id string, labels map[string]string) error {
		_, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: id, Session: "s1", Labels: labels}})
		return err
	}
	for range 2 {
		if err := beat("small", nil); err != nil {
			t.Fatal(err)
		}
		wantFault(t, beat("small", labels), codes.ResourceExhausted, "RATE_LIMITED")
		wantFault(t, beat("large", labels), codes.ResourceExhausted, "RATE_LIMITED")
	}
	if known := b.known(t.Context(), t); known != "small" {
		t.Errorf("the store knows %s", known)
	}
}

// A collector that holds a lease of another dispatcher may call, however many newcomers there are; one that makes a lease up
// may not.
func TestServer_newcomers_leases(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	a, b := newBedOn(t, store, "d1", server.Config{}), newBedOn(t, store, "d2", server.Config{MaxNewCollectors: 1})
	held := a.leased(t)
	if err := b.comes(t.Context(), "c2"); err != nil {
		t.Fatal(err)
	}
	refused(t, b.comes(t.Context(), "c1"), "1")
	renew := func(id string, token string) error {
		_, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{
			Collector: &pb.CollectorInfo{Id: id, Session: "s1"},
			Leases:    []*pb.LeaseBeat{{TaskId: held.GetTask().GetId(), LeaseToken: token}},
		})
		return err
	}
	token := held.GetLease().GetLeaseToken()
	wantFault(t, renew("c3", token), codes.ResourceExhausted, "RATE_LIMITED")
	wantFault(t, renew("c3", strings.Replace(token, "c1/", "c3/", 1)), codes.ResourceExhausted, "RATE_LIMITED")
	if err := renew("c1", token); err != nil {
		t.Errorf("its holder: %v", err)
	}
	if err := b.comes(t.Context(), "c1"); err != nil {
		t.Errorf("its holder then: %v", err)
	}
}

// Newcomers that fall silent are forgotten, with whose they were; all others are remembered. Those that go on calling stay,
// also if they are granted nothing for hours.
func TestServer_newcomers_forgotten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(path, []byte(accessPolicy(time.Now())), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		cfg := server.Config{PolicyFile: path, MaxNewCollectors: 4}
		a, b := newBedOn(t, store, "d1", cfg), newBedOn(t, store, "d2", cfg)
		mine, others := as(t.Context(), "collector"), as(t.Context(), "other-collector")
		if _, err := store.Beat(t.Context(), dispatch.CollectorInfo{ID: "c-known", Session: "s1"}); err != nil {
			t.Fatal(err) // before these dispatchers meet it
		}
		time.Sleep(150 * time.Second) // half as long as one is remembered
		if _, err := b.sources.CreateSource(as(t.Context(), "whole"), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
			Id: "news.a", Seeds: []*pb.Seed{{Url: "https://a.example/"}},
		}}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"c-granted", "c-silent", "c-idle", "c-moves"} { // the first one gets the seed
			if err := b.comes(mine, id); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
		}
		time.Sleep(20 * time.Second)
		for _, id := range []string{"c-known", "c-granted"} {
			if err := b.comes(mine, id); err != nil {
				t.Fatal(err)
			}
		}
		refused(t, b.comes(mine, "c-more"), "4")
		if err := b.comes(others, "d-more"); err != nil {
			t.Errorf("of another identity: %v", err)
		}
		for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(4 * time.Minute) {
			if err := b.comes(mine, "c-idle"); err != nil {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			if err := a.comes(mine, "c-moves"); err != nil {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
		}
		synctest.Wait()
		if known := b.known(as(t.Context(), "whole"), t); known != "c-granted c-idle c-known c-moves" {
			t.Errorf("the store knows %s", known)
		}
		for id, free := range map[string]bool{"c-silent": true, "c-idle": false, "c-granted": false} {
			if err := b.comes(others, id); (err == nil) != free {
				t.Errorf("%s used by another identity: %v", id, err)
			}
		}
	})
}
