package wire

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxMethod is the longest name of a method that is looked up.
const maxMethod = 256

// ListAuditEntries checks a ListAuditEntriesRequest.
func ListAuditEntries(req *pb.ListAuditEntriesRequest) error {
	var c checks
	c.text("by", req.GetBy(), bounds.MaxIdentityLength)
	return c.err()
}

// AuditEntry converts an entry of the audit log.
func AuditEntry(e dispatch.AuditEntry) *pb.AuditEntry {
	return &pb.AuditEntry{
		Time: toTime(e.Time), By: e.By, Said: e.Said, From: e.From, Method: e.Method, Target: e.Target,
		Before: e.Before, After: e.After, Reason: e.Reason,
	}
}

// ReleaseCollector checks a ReleaseCollectorRequest.
func ReleaseCollector(req *pb.ReleaseCollectorRequest) error {
	var c checks
	c.id("collector_id", req.GetCollectorId())
	c.note(req)
	return c.err()
}

// ExplainAccess checks an ExplainAccessRequest.
func ExplainAccess(req *pb.ExplainAccessRequest) error {
	var c checks
	if c.text("method", req.GetMethod(), maxMethod) == "" {
		c.fail("method", "", "must be set")
	}
	c.text("identity", req.GetIdentity(), bounds.MaxIdentityLength)
	return c.err()
}

// MoveOwner checks a MoveOwnerRequest.
func MoveOwner(req *pb.MoveOwnerRequest) error {
	var c checks
	c.text("owner", req.GetOwner(), bounds.MaxIDLength)
	c.note(req)
	return c.err()
}

// MoveOwnerResponse converts a move.
func MoveOwnerResponse(m *operate.OwnerMove) *pb.MoveOwnerResponse {
	return &pb.MoveOwnerResponse{Owner: m.From, Standby: m.To}
}
