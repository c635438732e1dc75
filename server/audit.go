package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// maxLoggedRequest is how many bytes of an operator's request are recorded.
const maxLoggedRequest = 500

// operatorRequest is a request by which an operator changes something.
type operatorRequest interface {
	proto.Message
	GetBy() string
	GetReason() string
}

// changing is a request by which an operator changes something, unless it only asks what would be.
func changing(req any) (change operatorRequest, ok bool) {
	if only, can := req.(interface{ GetValidateOnly() bool }); can && only.GetValidateOnly() {
		return nil, false
	}
	change, ok = req.(operatorRequest)
	return change, ok
}

// audited is a handler whose changes are recorded: who, from where, what, before, after, why. The line in the log has
// each of them. The store keeps the last ones; if it does not take one, the change stands, and the line has the error.
func (c *chain) audited(method string, req operatorRequest, handler grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, _ any) (any, error) {
		before := c.backend.before(ctx, req)
		entry := dispatch.AuditEntry{
			By: cmp.Or(identityOf(ctx), who(ctx, req.GetBy())), Said: req.GetBy(), From: addressOf(ctx), Reason: req.GetReason(),
			Method: method[strings.LastIndexByte(method, '/')+1:], Target: targetOf(req),
		}
		if move, ok := before.(*pb.MoveOwnerResponse); ok { // first, since this dispatcher writes nothing more once it has begun
			entry.Before, entry.After = move.GetOwner(), move.GetStandby()
			c.record(ctx, entry, textOf(req, maxLoggedRequest), true)
			resp, err := handler(ctx, req)
			if err != nil {
				entry.After = failedCall
				c.record(ctx, entry, textOf(req, maxLoggedRequest), true)
			}
			return resp, err
		}
		resp, err := handler(ctx, req)
		if err != nil && !mayHaveChanged(ctx, err) {
			return nil, err
		}
		changed := true
		if err != nil {
			entry.After = failedCall
		} else {
			answer := resp.(proto.Message) //nolint:forcetypeassert // handlers answer with messages
			changed = changes(before, answer)
			entry.Before, entry.After = changeOf(before, answer)
		}
		c.record(ctx, entry, textOf(withoutSecrets(req), maxLoggedRequest), changed)
		return resp, err
	}
}

const failedCall = "the call failed, perhaps when a part of it was done"

// mayHaveChanged reports whether a call that failed may have done a part of its work: it was not refused.
func mayHaveChanged(ctx context.Context, err error) bool {
	st, known := wire.Status(ctx.Err(), err, "")
	switch st.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return !known || errors.Is(err, dispatch.ErrStoreFull)
	}
}

// changes reports whether an answer says that something was changed, compared with what was there before.
func changes(before, resp proto.Message) bool {
	switch r := resp.(type) {
	case *pb.UpdateSourceResponse:
		return r.GetChanged()
	case *pb.SetQueueRuleResponse:
		return !proto.Equal(before, r.GetRule())
	case *pb.ApplySourcesResponse:
		return applied(r) != ""
	case *pb.ReleaseCollectorResponse:
		return r.GetIdentity() != ""
	case *pb.MoveOwnerResponse: // else it was recorded before
		return false
	case *pb.SetHoldsResponse:
		return r.GetChanged() > 0 || r.GetEndedLeases() > 0
	case interface{ GetChanged() int32 }:
		return r.GetChanged() > 0
	}
	return true
}

// auditTimeout is how long the store may take for an entry.
const auditTimeout = 5 * time.Second

// record writes an entry to the log, with the line of the call, and to the store if something was changed: who may change little
// could else drive the entries of others out.
func (c *chain) record(ctx context.Context, entry dispatch.AuditEntry, request string, changed bool) {
	addFields(ctx, zap.String("by", who(ctx, entry.Said)), zap.String("reason", entry.Reason), zap.String("request", request),
		zap.String("before", entry.Before), zap.String("after", entry.After))
	note(ctx, func(notes *callNotes) { notes.operator = true })
	if !changed {
		return
	}
	// The change is made: that its caller goes away keeps nobody from recording it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	if err := c.backend.o().Audit(ctx, entry); err != nil {
		addFields(ctx, zap.NamedError("not_in_audit_list", err))
	}
}

// before is what a request is about to change, if that is one thing; nil if it cannot be read. Of a move of the owner it is the answer;
// nil if there is nothing to move.
func (b *backend) before(ctx context.Context, req operatorRequest) proto.Message {
	switch r := req.(type) {
	case *pb.UpdateSourceRequest:
		return b.specOf(ctx, r.GetSpec().GetId())
	case *pb.DeleteSourcesRequest:
		if len(r.GetIds()) == 1 {
			return b.specOf(ctx, r.GetIds()[0])
		}
	case *pb.SetQueueRuleRequest:
		all, err := b.o().QueueRules(ctx, "", math.MaxInt)
		if i := slices.IndexFunc(all.Rules, func(rule dispatch.QueueRule) bool { return rule.Pattern == r.GetRule().GetPattern() }); err == nil && i >= 0 {
			return wire.QueueRule(all.Rules[i])
		}
	case *pb.MoveOwnerRequest:
		if move, err := b.o().OwnerMove(ctx, r.GetOwner()); err == nil && !move.Done && wire.MoveOwner(r) == nil {
			return wire.MoveOwnerResponse(&move)
		}
	}
	return nil
}

func (b *backend) specOf(ctx context.Context, id string) proto.Message {
	view, err := b.o().Source(ctx, id)
	if err != nil {
		return nil
	}
	return wire.Source(view).GetSpec()
}

// targetOf is what a request changes: one thing by its name, more by the request.
func targetOf(req operatorRequest) string {
	switch r := req.(type) {
	case interface{ GetSpec() *pb.SourceSpec }:
		return r.GetSpec().GetId()
	case *pb.SetQueueRuleRequest:
		return r.GetRule().GetPattern()
	case *pb.DeleteQueueRuleRequest:
		return r.GetPattern()
	case *pb.ReleaseCollectorRequest:
		return r.GetCollectorId()
	case *pb.MoveOwnerRequest:
		return "store"
	case *pb.DeleteSourcesRequest:
		if len(r.GetIds()) == 1 {
			return r.GetIds()[0]
		}
	}
	rest := withoutSecrets(req)
	for _, name := range []protoreflect.Name{"by", "reason", "page_token"} {
		if field := rest.ProtoReflect().Descriptor().Fields().ByName(name); field != nil {
			rest.ProtoReflect().Clear(field)
		}
	}
	return textOf(rest, maxLoggedRequest)
}

// changeOf is what was there before, and what is there since. Of something that was changed, it is what differs.
func changeOf(before, resp proto.Message) (was, is string) {
	switch r := resp.(type) {
	case *pb.CreateSourceResponse:
		return "", textOf(withoutSecrets(r.GetSource().GetSpec()), bounds.MaxAuditText)
	case *pb.UpdateSourceResponse:
		return differences(before, r.GetSource().GetSpec())
	case *pb.SetQueueRuleResponse:
		return differences(before, r.GetRule())
	case *pb.DeleteQueueRuleResponse:
		return textOf(r.GetRule(), bounds.MaxAuditText), ""
	case *pb.SetHoldsResponse:
		return textOf(&pb.SetHoldsResponse{Holds: r.GetReplaced()}, bounds.MaxAuditText), textOf(&pb.SetHoldsResponse{Holds: r.GetHolds()}, bounds.MaxAuditText)
	case *pb.LiftHoldsResponse:
		return textOf(&pb.LiftHoldsResponse{Lifted: r.GetLifted()}, bounds.MaxAuditText), textOf(&pb.LiftHoldsResponse{Remaining: r.GetRemaining()}, bounds.MaxAuditText)
	case *pb.ReleaseCollectorResponse:
		return r.GetIdentity(), ""
	case *pb.ApplySourcesResponse:
		return "", applied(r)
	case interface {
		GetMatched() int32
		GetChanged() int32
	}:
		if before != nil {
			was = textOf(withoutSecrets(before), bounds.MaxAuditText)
		}
		return was, fmt.Sprintf("matched %d, changed %d", r.GetMatched(), r.GetChanged())
	}
	return "", ""
}

// applied says what became of each source that was changed.
func applied(r *pb.ApplySourcesResponse) string {
	var done []string
	for _, result := range r.GetResults() {
		switch result.GetCode() {
		case pb.ApplyCode_APPLY_CODE_CREATED:
			done = append(done, result.GetSourceId()+" created")
		case pb.ApplyCode_APPLY_CODE_UPDATED:
			done = append(done, result.GetSourceId()+" updated: "+strings.Join(result.GetChangedFields(), " "))
		default:
		}
	}
	return cut(strings.Join(done, ", "), bounds.MaxAuditText)
}

// differences are the fields of two messages of one kind that differ. before may be nil.
func differences(before, after proto.Message) (was, is string) {
	b := after.ProtoReflect().New().Interface()
	if before != nil {
		b = withoutSecrets(before)
	}
	a := withoutSecrets(after)
	fields := a.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field, x, y := fields.Get(i), b.ProtoReflect(), a.ProtoReflect()
		if x.Has(field) == y.Has(field) && x.Get(field).Equal(y.Get(field)) {
			x.Clear(field)
			y.Clear(field)
		}
	}
	was, is = textOf(b, bounds.MaxAuditText), textOf(a, bounds.MaxAuditText)
	if x, ok := before.(*pb.SourceSpec); ok {
		y := after.(*pb.SourceSpec) //nolint:forcetypeassert // the messages are of one kind
		if !bytes.Equal(x.GetPayload(), y.GetPayload()) || !maps.Equal(x.GetMetadata(), y.GetMetadata()) {
			is = strings.TrimSpace(is + " (payload or metadata changed)")
		}
	}
	return was, is
}

// withoutSecrets is a copy without what is handed to collectors and may be a secret; of many specs it has the ids only.
func withoutSecrets(m proto.Message) proto.Message {
	clean := proto.CloneOf(m)
	switch c := clean.(type) {
	case *pb.SourceSpec:
		c.Metadata, c.Payload = nil, nil
	case interface{ GetSpec() *pb.SourceSpec }:
		if spec := c.GetSpec(); spec != nil {
			spec.Metadata, spec.Payload = nil, nil
		}
	case *pb.ApplySourcesRequest:
		for i, spec := range c.GetSpecs() {
			c.Specs[i] = &pb.SourceSpec{Id: spec.GetId()}
		}
	}
	return clean
}

// textOf is a message in one line.
func textOf(m proto.Message, most int) string { return cut(prototext.MarshalOptions{}.Format(m), most) }

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}
