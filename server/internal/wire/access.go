package wire

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
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
