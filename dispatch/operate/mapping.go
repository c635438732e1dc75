package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// checkMapping refuses to send the hosts of pattern to the queue will instead of
// was ("" = each to the queue of its own name) while a queue that they would
// leave holds tasks: those would be crawled beside the new ones, at the pace of
// two queues.
func (o *Operator) checkMapping(ctx context.Context, book *engine.RuleBook, pattern, was, will string) error {
	if !strings.HasPrefix(pattern, "*") && strings.Contains(pattern, ":") { // one host with its port, and no other
		was, will = cmp.Or(was, pattern), cmp.Or(will, pattern)
	}
	if was == will {
		return nil
	}
	var left NotEmptyError
	note := func(queue *dispatch.Queue) error {
		if queue.Name != will && queue.Waiting+queue.Leased > 0 {
			return left.add(queue)
		}
		return nil
	}
	var err error
	if was != "" {
		err = o.ifThere(ctx, was, note)
	} else {
		err = o.eachBelow(ctx, pattern, func(queue *dispatch.Queue) error {
			if !book.MatchedBy(queue.Name, pattern) {
				return nil
			}
			return note(queue)
		})
	}
	if err == nil && len(left.Queues) > 0 {
		err = &left
	}
	return err
}

// shownNotEmpty bounds the queues that a NotEmptyError names.
const shownNotEmpty = 5

// NotEmptyError is an [ErrQueueNotEmpty] with the first of the queues that would keep tasks.
type NotEmptyError struct {
	Queues []*dispatch.Queue
	More   bool
}

// add adds a queue. It returns e once that names enough.
func (e *NotEmptyError) add(queue *dispatch.Queue) error {
	if e.More = len(e.Queues) == shownNotEmpty; e.More {
		return e
	}
	e.Queues = append(e.Queues, queue)
	return nil
}

// Names are the first of the queues, with how many tasks each holds.
func (e *NotEmptyError) Names() string {
	var names []string
	for _, queue := range e.Queues {
		names = append(names, fmt.Sprintf("%s (%d)", queue.Name, queue.Waiting+queue.Leased))
	}
	text := strings.Join(names, ", ")
	if e.More {
		text += " and more"
	}
	return text
}

// Error names some of the queues.
func (e *NotEmptyError) Error() string { return "tasks would be left in " + e.Names() }

// Unwrap is [ErrQueueNotEmpty].
func (*NotEmptyError) Unwrap() error { return dispatch.ErrQueueNotEmpty }

// eachBelow visits the queues of the hosts that pattern matches, and some others:
// the hosts themselves, and those of the same names with a port, which the order
// by labels has elsewhere ("a.example:81" stands among what ends in "example:81").
func (o *Operator) eachBelow(ctx context.Context, pattern string, visit func(*dispatch.Queue) error) error {
	if pattern == "*" {
		return o.eachQueue(ctx, "", "", visit)
	}
	name := strings.TrimPrefix(pattern, "*.")
	if name == pattern { // a single host
		if err := o.ifThere(ctx, name, visit); err != nil {
			return err
		}
	} else if err := o.eachQueue(ctx, name, "", visit); err != nil {
		return err
	}
	ported := lastLabel(name) + ":"
	err := o.eachQueue(ctx, "", ported, func(queue *dispatch.Queue) error {
		if !strings.HasPrefix(lastLabel(queue.Name), ported) {
			return errPastPorts
		}
		return visit(queue)
	})
	if errors.Is(err, errPastPorts) {
		return nil
	}
	return err
}

// errPastPorts ends a walk over the queues with a port.
var errPastPorts = errors.New("no more queues with a port")

func lastLabel(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// eachQueue visits the queues of a suffix, from the first after after.
func (o *Operator) eachQueue(ctx context.Context, suffix, after string, visit func(*dispatch.Queue) error) error {
	for {
		queues, err := o.store.ListQueues(ctx, suffix, after, queuePage)
		if err != nil {
			return fmt.Errorf("list queues: %w", err)
		}
		for _, queue := range queues {
			if err := visit(queue); err != nil {
				return err
			}
			after = queue.Name
		}
		if len(queues) < queuePage {
			return nil
		}
	}
}

// ifThere visits a queue that exists.
func (o *Operator) ifThere(ctx context.Context, name string, visit func(*dispatch.Queue) error) error {
	queue, err := o.queue(ctx, name)
	if queue == nil || err != nil {
		return err
	}
	return visit(queue)
}
