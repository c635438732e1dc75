package server

import (
	"context"
	"errors"
	"time"

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
	queue, err := s.o.FindQueue(ctx, req.GetName())
	out, err := s.convert(ctx, req.GetName(), queue, err)
	return &pb.GetQueueResponse{Queue: out}, err
}

// ListQueues lists queues by the labels of their names.
func (s *queueService) ListQueues(ctx context.Context, req *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	if err := wire.ListQueues(req); err != nil {
		return nil, err
	}
	now, err := s.o.Now(ctx)
	if err != nil {
		return nil, err
	}
	queues, next, err := wire.List(req, func(after string, limit int) ([]*operate.QueueView, string, error) {
		return s.o.ListQueues(ctx, req.GetSuffix(), after, limit)
	}, func(q *operate.QueueView) *pb.Queue { return wire.Queue(q, now) })
	if err != nil {
		return nil, err
	}
	return &pb.ListQueuesResponse{Queues: queues, NextPageToken: next}, nil
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
	var rule dispatch.QueueRule
	var etag operate.RulesEtag
	if change.Lay == nil {
		rule, etag, err = s.o.SetQueueRule(ctx, change.Rule, change.Etag)
	} else {
		rule, etag, err = s.o.ChangeQueueRule(ctx, change.Rule.Pattern, change.Etag, change.Lay)
	}
	if err != nil {
		return nil, s.aboutRule(ctx, err, req.GetRule().GetPattern())
	}
	return &pb.SetQueueRuleResponse{Rule: wire.QueueRule(rule), Etag: wire.RulesEtag(etag)}, nil
}

// ListQueueRules lists rules by pattern.
func (s *queueService) ListQueueRules(ctx context.Context, req *pb.ListQueueRulesRequest) (*pb.ListQueueRulesResponse, error) {
	var etag operate.RulesEtag
	rules, next, err := wire.List(req, func(after string, limit int) ([]dispatch.QueueRule, string, error) {
		page, err := s.o.QueueRules(ctx, after, limit)
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
	rule, etag, err := s.o.DeleteQueueRule(ctx, req.GetPattern(), etag)
	if err != nil {
		return nil, s.aboutRule(ctx, err, req.GetPattern())
	}
	return &pb.DeleteQueueRuleResponse{Rule: wire.QueueRule(rule), Etag: wire.RulesEtag(etag)}, nil
}

// aboutRule names the rule that err is about, or the etag that the rules have.
func (s *queueService) aboutRule(ctx context.Context, err error, pattern string) error {
	if errors.Is(err, dispatch.ErrEtagMismatch) {
		if page, failed := s.o.QueueRules(ctx, "", 1); failed == nil {
			return wire.About(err, "pattern", pattern, "etag", wire.RulesEtag(page.Etag))
		}
	}
	return wire.AboutRule(err, pattern)
}

// BlockQueue holds grants of a queue.
func (s *queueService) BlockQueue(ctx context.Context, req *pb.BlockQueueRequest) (*pb.BlockQueueResponse, error) {
	out, replaced, err := s.hold(ctx, req, dispatch.HoldBlock)
	return &pb.BlockQueueResponse{Queue: out, Replaced: replaced}, err
}

// UnblockQueue opens a block.
func (s *queueService) UnblockQueue(ctx context.Context, req *pb.UnblockQueueRequest) (*pb.UnblockQueueResponse, error) {
	holds := []dispatch.HoldName{dispatch.HoldBlock}
	if req.GetIncludeAutomatic() {
		holds = append(holds, dispatch.HoldWaggle)
	}
	out, changed, err := s.release(ctx, req, holds...)
	return &pb.UnblockQueueResponse{Queue: out, Changed: changed}, err
}

// PauseQueue holds grants of a queue, beside a block.
func (s *queueService) PauseQueue(ctx context.Context, req *pb.PauseQueueRequest) (*pb.PauseQueueResponse, error) {
	out, replaced, err := s.hold(ctx, req, dispatch.HoldPause)
	return &pb.PauseQueueResponse{Queue: out, Replaced: replaced}, err
}

// ResumeQueue ends a pause.
func (s *queueService) ResumeQueue(ctx context.Context, req *pb.ResumeQueueRequest) (*pb.ResumeQueueResponse, error) {
	out, changed, err := s.release(ctx, req, dispatch.HoldPause)
	return &pb.ResumeQueueResponse{Queue: out, Changed: changed}, err
}

// hold closes an operator's gate of a queue, and tells of the one that it replaces.
func (s *queueService) hold(ctx context.Context, req wire.QueueHoldRequest, by dispatch.HoldName) (out *pb.Queue, replaced *pb.Gate, err error) {
	gate, err := wire.HoldQueue(req, time.Now())
	if err != nil {
		return nil, nil, err
	}
	gate.By = who(ctx, gate.By)
	queue, err := s.o.HoldQueue(ctx, req.GetName(), by, gate)
	if out, err = s.convert(ctx, req.GetName(), queue, err); err != nil {
		return nil, nil, err
	}
	return out, wire.Gate(queue.Replaced), nil
}

// release opens operators' gates of a queue.
func (s *queueService) release(ctx context.Context, req wire.QueueReleaseRequest, holds ...dispatch.HoldName) (*pb.Queue, bool, error) {
	if err := wire.ReleaseQueue(req); err != nil {
		return nil, false, err
	}
	queue, changed, err := s.o.ReleaseQueue(ctx, req.GetName(), holds...)
	out, err := s.convert(ctx, req.GetName(), queue, err)
	return out, changed, err
}

// convert converts the queue that the operator has answered with, or names the one that err is about.
func (s *queueService) convert(ctx context.Context, name string, queue *operate.QueueView, err error) (*pb.Queue, error) {
	if err != nil {
		return nil, wire.About(err, "queue", name)
	}
	now, err := s.o.Now(ctx)
	if err != nil {
		return nil, err
	}
	return wire.Queue(queue, now), nil
}
