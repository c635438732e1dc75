package main_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// otherOperator stands before a dispatcher and changes its rules while somebody else looks
// at them.
type otherOperator struct {
	pb.UnimplementedQueueServiceServer

	queues pb.QueueServiceClient
	rules  chan *pb.QueueRule // one after each of the next looks
	always *pb.QueueRule      // after each further one; nil: none
	sets   chan *pb.QueueRule // one after each of the next changes
	looks  atomic.Int32
}

// besideOther is the environment of commands whose looks at the rules another operator follows.
func besideOther(t *testing.T, env map[string]string) (map[string]string, *otherOperator) {
	t.Helper()
	o := &otherOperator{queues: pb.NewQueueServiceClient(connect(t, env)), rules: make(chan *pb.QueueRule, 10), sets: make(chan *pb.QueueRule, 10)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterQueueServiceServer(s, o)
	go s.Serve(listener) //nolint:errcheck // it ends with Stop
	t.Cleanup(s.Stop)
	return map[string]string{"WAGGLE_SERVER": listener.Addr().String(), "USER": "ada"}, o
}

func (o *otherOperator) ListQueueRules(ctx context.Context, req *pb.ListQueueRulesRequest) (*pb.ListQueueRulesResponse, error) {
	o.looks.Add(1)
	reply, err := o.queues.ListQueueRules(ctx, req)
	rule := o.always
	select {
	case rule = <-o.rules:
	default:
	}
	return reply, errors.Join(err, o.set(ctx, rule))
}

func (o *otherOperator) set(ctx context.Context, rule *pb.QueueRule) error {
	if rule == nil {
		return nil
	}
	_, err := o.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: rule, By: "eve", Reason: "emergency"})
	return err
}

func (o *otherOperator) SetQueueRule(ctx context.Context, req *pb.SetQueueRuleRequest) (*pb.SetQueueRuleResponse, error) {
	reply, err := o.queues.SetQueueRule(ctx, req)
	var rule *pb.QueueRule
	select {
	case rule = <-o.sets:
	default:
	}
	if err == nil {
		err = o.set(ctx, rule)
	}
	return reply, err
}

func (o *otherOperator) DeleteQueueRule(ctx context.Context, req *pb.DeleteQueueRuleRequest) (*pb.DeleteQueueRuleResponse, error) {
	return o.queues.DeleteQueueRule(ctx, req)
}

// A pause that somebody sets between the look of a command at the rules and its change stands.
func TestQueueRule_changedMeanwhile(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	beside, other := besideOther(t, env)
	paused := true
	wantRules := func(want string) {
		t.Helper()
		if got := exportedRules(t, env); got != want {
			t.Errorf("there is\n%s\nwant\n%s", got, want)
		}
	}
	other.rules <- &pb.QueueRule{Pattern: "a.example", Paused: &paused}
	got := command(t, beside, "queue", "rule", "set", "a.example", "--max-in-flight", "4")
	if got.code != waggle.ExitOK || !strings.Contains(got.err, "a.example stays paused, as the rule a.example is: paused by eve, ") {
		t.Errorf("set: %d: %s", got.code, got.err)
	}
	wantRules(`{"pattern":"a.example","max_in_flight":4,"paused":true,"reason":"emergency"}` + "\n")

	other.rules <- &pb.QueueRule{Pattern: "b.example", Paused: &paused}
	file := `{"pattern":"a.example","max_in_flight":2}` + "\n" + `{"pattern":"b.example","max_in_flight":3}` + "\n"
	got = commandWith(t, beside, file, "queue", "rule", "apply", "-")
	if got.code != waggle.ExitOK || !strings.Contains(got.out, "max_in_flight 4 -> 2") || !strings.Contains(got.out, "max_in_flight 1 -> 3") {
		t.Errorf("apply: %d: %s%s", got.code, got.out, got.err)
	}
	wantRules(`{"pattern":"a.example","max_in_flight":2,"paused":true,"reason":"emergency"}
{"pattern":"b.example","max_in_flight":3,"paused":true,"reason":"emergency"}
`)

	other.always = &pb.QueueRule{Pattern: "c.example", Paused: &paused}
	other.looks.Store(0)
	wantFailure(t, command(t, beside, "queue", "rule", "set", "a.example", "--max-in-flight", "9"), waggle.ExitFailed, "etag does not match", "waggle queue rule list")
	if looks := other.looks.Load(); looks != 5 {
		t.Errorf("it looked %d times, want 5", looks)
	}
}

// An apply that has to look again tells what it did before as what that was.
func TestQueueRule_appliedMeanwhile(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	beside, other := besideOther(t, env)
	command(t, env, "queue", "rule", "set", "a.example", "--replace")
	command(t, env, "queue", "rule", "set", "d.example", "--replace")
	paused := true
	other.sets <- &pb.QueueRule{Pattern: "c.example", Paused: &paused}
	file := `{"pattern":"a.example","max_in_flight":2}` + "\n" + `{"pattern":"b.example"}` + "\n" + `{"pattern":"d.example"}` + "\n"
	got := commandWith(t, beside, file, "queue", "rule", "apply", "-", "-o", "json")
	if looks := other.looks.Load(); got.code != waggle.ExitOK || looks != 2 {
		t.Fatalf("%d after %d looks: %s", got.code, looks, got.err)
	}
	wantOutput(t, got, `{
  "created": 1,
  "deleted": 0,
  "refused": 0,
  "rules": [
    {
      "line": 1,
      "pattern": "a.example",
      "result": "UPDATED",
      "changed": [
        "max_in_flight 1 -> 2"
      ],
      "last_set": {
        "by": "ada",
        "time": "TIME"
      }
    },
    {
      "line": 2,
      "pattern": "b.example",
      "result": "CREATED"
    },
    {
      "line": 3,
      "pattern": "d.example",
      "result": "UNCHANGED"
    }
  ],
  "unchanged": 1,
  "updated": 1
}
`)
}

// A rule that somebody makes an emergency stop while it is being deleted stays; a change of
// another one is in nobody's way.
func TestQueueRule_deletedMeanwhile(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	beside, other := besideOther(t, env)
	paused := true
	command(t, env, "queue", "rule", "set", "a.example", "--max-in-flight", "4")

	other.rules <- &pb.QueueRule{Pattern: "a.example", Paused: &paused}
	wantFailure(t, command(t, beside, "queue", "rule", "delete", "a.example"), waggle.ExitFailed,
		"waggle: the rule a.example was changed meanwhile: ", ", PAUSED by eve, ", " (emergency); it stays\n")
	if got := exportedRules(t, env); got != `{"pattern":"a.example","paused":true,"reason":"emergency"}`+"\n" {
		t.Errorf("there is\n%s", got)
	}

	wantFailure(t, command(t, env, "queue", "rule", "delete", "a.example"), waggle.ExitFailed,
		"waggle: the rule a.example is paused by eve, ", ": emergency; --lift deletes it all the same\n")
	other.rules <- &pb.QueueRule{Pattern: "b.example", Paused: &paused}
	other.looks.Store(0)
	wantOutput(t, command(t, beside, "queue", "rule", "delete", "a.example", "--lift"), "deleted the rule a.example: 1s apart, 1 at a time, blocked at most 1d, PAUSED\n")
	if looks := other.looks.Load(); looks != 2 {
		t.Errorf("it looked %d times, want 2", looks)
	}
	wantFailure(t, command(t, beside, "queue", "rule", "delete", "a.example"), waggle.ExitFailed, "a.example")
}
