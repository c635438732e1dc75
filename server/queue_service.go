package server

import (
	"context"
	"errors"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// queueService is what operators call to steer politeness.
type queueService struct {
	pb.UnsafeQueueServiceServer

	*backend
}

// GetQueue shows a queue.
func (s *queueService) GetQueue(ctx context.Context, req *pb.GetQueueRequest) (*pb.GetQueueResponse, error) {
	if err := validateQueueName("name", req.GetName()); err != nil {
		return nil, err
	}
	queue, err := s.o.FindQueue(ctx, req.GetName())
	if err != nil {
		return nil, about(err, "queue", req.GetName())
	}
	out, err := s.convert(ctx, queue)
	return &pb.GetQueueResponse{Queue: out}, err
}

// ListQueues lists queues by the labels of their names.
func (s *queueService) ListQueues(ctx context.Context, req *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	if err := validateListQueues(req); err != nil {
		return nil, err
	}
	tokens, err := pagesOf("ListQueues", req)
	if err != nil {
		return nil, err
	}
	after, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	now, err := s.o.Now(ctx)
	if err != nil {
		return nil, err
	}
	queues, next, err := fitting(pageSize(req.GetPageSize()), func(limit int) ([]*pb.Queue, string, error) {
		found, next, err := s.o.ListQueues(ctx, req.GetSuffix(), after, limit)
		return each(found, func(q *operate.QueueView) *pb.Queue { return toQueue(q, now) }), next, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListQueuesResponse{Queues: queues, NextPageToken: tokens.token(next)}, nil
}

// CheckQueueRule reports what SetQueueRule refuses of a rule whatever the store holds, for
// those who want to know before they call it: by, reason and update_time are not looked at.
func CheckQueueRule(rule *pb.QueueRule) error {
	if err := validateSetQueueRule(&pb.SetQueueRuleRequest{Rule: rule}); err != nil {
		return err
	}
	checked := fromRule(rule, "", "")
	return inside("rule", checked.Validate())
}

// SetQueueRule lays the named settings over the rule of a pattern.
func (s *queueService) SetQueueRule(ctx context.Context, req *pb.SetQueueRuleRequest) (*pb.SetQueueRuleResponse, error) {
	if err := validateSetQueueRule(req); err != nil {
		return nil, err
	}
	rule, etag, err := s.setRule(ctx, req)
	if err != nil {
		return nil, s.aboutRule(ctx, inside("rule", err), req.GetRule().GetPattern())
	}
	return &pb.SetQueueRuleResponse{Rule: toRule(rule), Etag: ruleEtag(etag)}, nil
}

func (s *queueService) setRule(ctx context.Context, req *pb.SetQueueRuleRequest) (dispatch.QueueRule, operate.RulesEtag, error) {
	etag, _ := parseRuleEtag(req.GetEtag())
	by, paths := byOrPeer(ctx, req.GetBy()), req.GetUpdateMask().GetPaths()
	if len(paths) == 0 {
		return s.o.SetQueueRule(ctx, fromRule(req.GetRule(), by, req.GetReason()), etag)
	}
	return s.o.ChangeQueueRule(ctx, req.GetRule().GetPattern(), etag, func(rule *dispatch.QueueRule) error {
		merged := toRule(*rule)
		overlay(merged.ProtoReflect(), req.GetRule().ProtoReflect(), paths)
		*rule = fromRule(merged, by, req.GetReason())
		return nil
	})
}

// ListQueueRules lists rules by pattern.
func (s *queueService) ListQueueRules(ctx context.Context, req *pb.ListQueueRulesRequest) (*pb.ListQueueRulesResponse, error) {
	if err := validatePage(req.GetPageSize()); err != nil {
		return nil, err
	}
	tokens, err := pagesOf("ListQueueRules", req)
	if err != nil {
		return nil, err
	}
	after, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	var page operate.RulePage
	rules, next, err := fitting(pageSize(req.GetPageSize()), func(limit int) ([]*pb.QueueRule, string, error) {
		page, err = s.o.QueueRules(ctx, after, limit)
		return each(page.Rules, toRule), page.Next, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListQueueRulesResponse{Rules: rules, NextPageToken: tokens.token(next), Etag: ruleEtag(page.Etag)}, nil
}

// DeleteQueueRule removes the rule of a pattern.
func (s *queueService) DeleteQueueRule(ctx context.Context, req *pb.DeleteQueueRuleRequest) (*pb.DeleteQueueRuleResponse, error) {
	if err := validatePattern(req); err != nil {
		return nil, err
	}
	etag, _ := parseRuleEtag(req.GetEtag())
	rule, etag, err := s.o.DeleteQueueRule(ctx, req.GetPattern(), etag)
	if err != nil {
		return nil, s.aboutRule(ctx, err, req.GetPattern())
	}
	return &pb.DeleteQueueRuleResponse{Rule: toRule(rule), Etag: ruleEtag(etag)}, nil
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
	out, changed, err := s.letGo(ctx, req, holds...)
	return &pb.UnblockQueueResponse{Queue: out, Changed: changed}, err
}

// PauseQueue holds grants of a queue, beside a block.
func (s *queueService) PauseQueue(ctx context.Context, req *pb.PauseQueueRequest) (*pb.PauseQueueResponse, error) {
	out, replaced, err := s.hold(ctx, req, dispatch.HoldPause)
	return &pb.PauseQueueResponse{Queue: out, Replaced: replaced}, err
}

// ResumeQueue ends a pause.
func (s *queueService) ResumeQueue(ctx context.Context, req *pb.ResumeQueueRequest) (*pb.ResumeQueueResponse, error) {
	out, changed, err := s.letGo(ctx, req, dispatch.HoldPause)
	return &pb.ResumeQueueResponse{Queue: out, Changed: changed}, err
}

// hold closes an operator's gate of a queue, and tells of the one that it replaces.
func (s *queueService) hold(ctx context.Context, req holdRequest, by dispatch.HoldName) (out *pb.Queue, replaced *pb.Gate, err error) {
	if err := validateHoldQueue(req, time.Now()); err != nil {
		return nil, nil, err
	}
	queue, err := s.o.HoldQueue(ctx, req.GetName(), by, dispatch.Gate{
		Until: fromTime(req.GetUntil()), By: byOrPeer(ctx, req.GetBy()), Reason: req.GetReason(),
	})
	if err != nil {
		return nil, nil, about(err, "queue", req.GetName())
	}
	out, err = s.convert(ctx, queue)
	return out, toGate(queue.Replaced), err
}

// letGo opens operators' gates of a queue.
func (s *queueService) letGo(ctx context.Context, req letGoRequest, holds ...dispatch.HoldName) (*pb.Queue, bool, error) {
	if err := validateLetGo(req, (*checks).queue); err != nil {
		return nil, false, err
	}
	queue, changed, err := s.o.ReleaseQueue(ctx, req.GetName(), holds...)
	if err != nil {
		return nil, false, about(err, "queue", req.GetName())
	}
	out, err := s.convert(ctx, queue)
	return out, changed, err
}

func (s *queueService) convert(ctx context.Context, queue *operate.QueueView) (*pb.Queue, error) {
	now, err := s.o.Now(ctx)
	if err != nil {
		return nil, err
	}
	return toQueue(queue, now), nil
}

// aboutRule names the rule, and the queues that a mapping would leave tasks in, the etag
// that the rules have, or who pauses or denies by it.
func (s *queueService) aboutRule(ctx context.Context, err error, pattern string) error {
	if errors.Is(err, dispatch.ErrEtagMismatch) {
		if page, readErr := s.o.QueueRules(ctx, "", 1); readErr == nil {
			return about(err, "pattern", pattern, "etag", ruleEtag(page.Etag))
		}
	}
	var left *operate.NotEmptyError
	if errors.As(err, &left) {
		return about(err, "pattern", pattern, "tasks_left_in", left.Names(maxShown-len(" and more")-2))
	}
	var holds *operate.RuleHoldsError
	if errors.As(err, &holds) {
		gate := &holds.Gate
		pairs := []string{"pattern", pattern, "kind", string(gate.Kind), "by", gate.By, "since", gate.Time.UTC().Format(time.RFC3339)}
		if gate.Reason != "" {
			pairs = append(pairs, "reason", gate.Reason)
		}
		return about(err, pairs...)
	}
	return about(err, "pattern", pattern)
}
