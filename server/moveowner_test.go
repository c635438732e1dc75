package server_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// A store that no standby has whole is not moved, and nothing of that is recorded.
func TestMoveOwner_noStandby(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for name, test := range map[string]struct {
		owned   *dispatch.Ownership
		request *pb.MoveOwnerRequest
		owner   string // in the metadata
	}{
		"of a store without an owner":  {nil, &pb.MoveOwnerRequest{}, ""},
		"and with one named":           {nil, &pb.MoveOwnerRequest{Owner: "d1"}, ""},
		"without a standby":            {&dispatch.Ownership{Owner: "d1", WithoutStandby: 2}, &pb.MoveOwnerRequest{}, "d1"},
		"with one of some shards only": {&dispatch.Ownership{Owner: "d1", Standby: "d2", WithoutStandby: 1}, &pb.MoveOwnerRequest{Owner: "d1"}, "d1"},
	} {
		b.store.own(test.owned)
		_, err := b.admin.MoveOwner(t.Context(), test.request)
		if f := wantFault(t, err, codes.FailedPrecondition, "NO_STANDBY"); f.metadata["owner"] != test.owner || f.retry != 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// The standby has gone since it was looked at.
	b.store.own(&dispatch.Ownership{Owner: "d1", Standby: "d2"})
	b.store.breakCall("MoveOwner", func() error { return dispatch.ErrNoStandby })
	_, err := b.admin.MoveOwner(t.Context(), &pb.MoveOwnerRequest{})
	wantFault(t, err, codes.FailedPrecondition, "NO_STANDBY")
	if got := audit(t, b); len(got) != 2 || !strings.Contains(got[0].GetAfter(), "failed") || b.store.moves != 0 {
		t.Errorf("moved %d times, recorded: %v", b.store.moves, got)
	}
}

// A move is recorded before it begins, since the owner writes nothing after that. Repeated with the name of the former owner, it is
// answered alike, and nothing is moved back.
func TestMoveOwner_repeated(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.store.own(&dispatch.Ownership{Owner: "d1", Standby: "d2"})
	want := &pb.MoveOwnerResponse{Owner: "d1", Standby: "d2"}
	for range 2 {
		got, err := b.admin.MoveOwner(t.Context(), &pb.MoveOwnerRequest{Owner: "d1", By: "ada", Reason: "new disk"})
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
		b.store.own(&dispatch.Ownership{Owner: "d2", Standby: "d1"})
	}
	entries := audit(t, b)
	if len(entries) != 1 || b.store.moves != 1 {
		t.Fatalf("moved %d times, recorded: %v", b.store.moves, entries)
	}
	if e := entries[0]; e.GetMethod() != "MoveOwner" || e.GetTarget() != "store" || e.GetBefore() != "d1" || e.GetAfter() != "d2" || e.GetReason() != "new disk" || e.GetSaid() != "ada" {
		t.Errorf("recorded: %v", e)
	}
	if got, err := b.admin.MoveOwner(t.Context(), &pb.MoveOwnerRequest{}); err != nil || got.GetOwner() != "d2" || got.GetStandby() != "d1" {
		t.Errorf("whoever owns it: %v, %v", got, err)
	}
}
