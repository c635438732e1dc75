package server

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// queueService is what operators call to steer politeness.
type queueService struct {
	pb.UnsafeQueueServiceServer

	*backend
}

// GetQueue shows a queue.
func (s *queueService) GetQueue(ctx context.Context, req *pb.GetQueueRequest) (*pb.GetQueueResponse, error) {
	if err := wire.GetQueue(req); err != nil {
		return nil, err
	}
	queue, err := s.o().FindQueue(ctx, req.GetName())
	if err != nil {
		return nil, wire.About(err, "queue", req.GetName())
	}
	now, err := s.o().Now(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.GetQueueResponse{Queue: wire.Queue(queue, now)}, nil
}

// ListQueues lists queues by the labels of their names.
func (s *queueService) ListQueues(ctx context.Context, req *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	if err := wire.ListQueues(req); err != nil {
		return nil, err
	}
	now, err := s.o().Now(ctx)
	if err != nil {
		return nil, err
	}
	queues, next, err := wire.List(req, func(after string, limit int) ([]*operate.QueueView, string, error) {
		return s.listQueues(ctx, req, after, limit)
	}, func(q *operate.QueueView) *pb.Queue { return wire.Queue(q, now) })
	if err != nil {
		return nil, err
	}
	return &pb.ListQueuesResponse{Queues: queues, NextPageToken: next}, nil
}

// listQueues lists the queues of a page that a request selects.
func (s *queueService) listQueues(ctx context.Context, req *pb.ListQueuesRequest, after string, limit int) ([]*operate.QueueView, string, error) {
	name, suffix := req.GetFilter().GetQueue(), req.GetFilter().GetQueueSuffix()
	pick := operate.QueuePick{
		Suffix: suffix, Held: req.GetHeld(), Blocked: req.GetBlocked(), Order: wire.FromQueueOrder(req.GetOrder()),
	}
	switch {
	case name == "" && (pick.Held || pick.Blocked || pick.Order != operate.QueuesByName):
		return s.o().PickQueues(ctx, pick, after, limit)
	case name == "":
		return s.o().ListQueues(ctx, suffix, after, limit)
	}
	if suffix != "" && name != suffix && !strings.HasSuffix(name, "."+suffix) {
		return nil, "", nil
	}
	queues, _, err := s.o().ListQueues(ctx, name, after, 1) // it is the first of its own suffix
	return slices.DeleteFunc(queues, func(q *operate.QueueView) bool { return q.Name != name }), "", err
}

// CheckQueueRule reports what SetQueueRule refuses of a rule whatever the store holds, for those who want to know before
// they call it: by, reason and update_time are not looked at.
func CheckQueueRule(rule *pb.QueueRule) error { return wire.CheckQueueRule(rule) }

// SetQueueRule lays the named settings over the rule of a pattern.
func (s *queueService) SetQueueRule(ctx context.Context, req *pb.SetQueueRuleRequest) (*pb.SetQueueRuleResponse, error) {
	change, err := wire.SetQueueRule(req, who(ctx, req.GetBy()))
	if err != nil {
		return nil, err
	}
	rule, etag, err := s.o().SetQueueRule(ctx, req.GetRule().GetPattern(), change.Etag, change.Change)
	if err != nil {
		return nil, s.aboutRule(ctx, err, req.GetRule().GetPattern())
	}
	return &pb.SetQueueRuleResponse{Rule: wire.QueueRule(rule), Etag: wire.RulesEtag(etag)}, nil
}

// ListQueueRules lists rules by pattern.
func (s *queueService) ListQueueRules(ctx context.Context, req *pb.ListQueueRulesRequest) (*pb.ListQueueRulesResponse, error) {
	var etag operate.RulesEtag
	rules, next, err := wire.List(req, func(after string, limit int) ([]dispatch.QueueRule, string, error) {
		page, err := s.o().QueueRules(ctx, after, limit)
		etag = page.Etag
		return page.Rules, page.Next, err
	}, wire.QueueRule)
	if err != nil {
		return nil, err
	}
	return &pb.ListQueueRulesResponse{Rules: rules, NextPageToken: next, Etag: wire.RulesEtag(etag)}, nil
}

// DeleteQueueRule removes the rule of a pattern.
func (s *queueService) DeleteQueueRule(ctx context.Context, req *pb.DeleteQueueRuleRequest) (*pb.DeleteQueueRuleResponse, error) {
	etag, err := wire.DeleteQueueRule(req)
	if err != nil {
		return nil, err
	}
	rule, etag, err := s.o().DeleteQueueRule(ctx, req.GetPattern(), etag)
	if err != nil {
		return nil, s.aboutRule(ctx, err, req.GetPattern())
	}
	return &pb.DeleteQueueRuleResponse{Rule: wire.QueueRule(rule), Etag: wire.RulesEtag(etag)}, nil
}

// aboutRule names the rule that err is about, or the etag that the rules have.
func (s *queueService) aboutRule(ctx context.Context, err error, pattern string) error {
	if errors.Is(err, dispatch.ErrEtagMismatch) {
		if page, failed := s.o().QueueRules(ctx, "", 1); failed == nil {
			return wire.About(err, "pattern", pattern, "etag", wire.RulesEtag(page.Etag))
		}
	}
	return wire.AboutRule(err, pattern)
}
