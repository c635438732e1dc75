package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// checkMapping refuses to send the hosts of pattern to the queue will instead of
// was ("" = each to the queue of its own name) while a queue that they would
// leave holds tasks: those would be crawled beside the new ones, at the pace of
// two queues.
func (d *Dispatcher) checkMapping(ctx context.Context, book *ruleBook, pattern, was, will string) error {
	if !strings.HasPrefix(pattern, "*") && strings.Contains(pattern, ":") { // one host with its port, and no other
		was, will = cmp.Or(was, pattern), cmp.Or(will, pattern)
	}
	if was == will {
		return nil
	}
	if was != "" {
		return d.checkEmpty(ctx, was)
	}
	return d.eachBelow(ctx, pattern, func(queue *Queue) error {
		if queue.Name == will || !book.matchedBy(queue.Name, pattern) {
			return nil
		}
		return emptyOr(queue)
	})
}

// eachBelow visits the queues of the hosts that pattern matches, and some others:
// the hosts themselves, and those of the same names with a port, which the order
// by labels has elsewhere ("a.example:81" stands among what ends in "example:81").
func (d *Dispatcher) eachBelow(ctx context.Context, pattern string, visit func(*Queue) error) error {
	if pattern == "*" {
		return d.eachQueue(ctx, "", "", visit)
	}
	name := strings.TrimPrefix(pattern, "*.")
	if name == pattern { // a single host
		queue, err := d.store.Queue(ctx, name)
		if err == nil {
			err = visit(queue)
		}
		if err != nil && !errors.Is(err, ErrQueueNotFound) {
			return fmt.Errorf("queue %q: %w", name, err)
		}
	} else if err := d.eachQueue(ctx, name, "", visit); err != nil {
		return err
	}
	ported := lastLabel(name) + ":"
	err := d.eachQueue(ctx, "", ported, func(queue *Queue) error {
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
func (d *Dispatcher) eachQueue(ctx context.Context, suffix, after string, visit func(*Queue) error) error {
	for {
		queues, next, err := d.ListQueues(ctx, suffix, after, queuePage)
		if err != nil {
			return err
		}
		for _, queue := range queues {
			if err := visit(queue); err != nil {
				return err
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// emptyOr is ErrQueueNotEmpty for a queue that holds tasks.
func emptyOr(queue *Queue) error {
	if n := queue.Waiting + queue.Leased; n > 0 {
		return fmt.Errorf("queue %q holds tasks, %d: %w", queue.Name, n, ErrQueueNotEmpty)
	}
	return nil
}

func (d *Dispatcher) checkEmpty(ctx context.Context, name string) error {
	queue, err := d.store.Queue(ctx, name)
	switch {
	case errors.Is(err, ErrQueueNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("queue %q: %w", name, err)
	}
	return emptyOr(queue)
}

// matchedBy reports whether pattern is the longest that would match host.
func (b *ruleBook) matchedBy(host, pattern string) bool {
	for _, name := range SettingsNames(host) {
		if name == pattern {
			return true
		}
		if _, ok := b.byPattern[name]; ok {
			return false
		}
	}
	return false
}

// above is the queue that the hosts of pattern go to by the longest shorter
// rule that matches them; "" = each to the queue of its own name.
func (b *ruleBook) above(pattern string) string {
	for _, name := range SettingsNames(pattern) {
		if rule, ok := b.byPattern[name]; ok && name != pattern {
			return rule.Queue
		}
	}
	return ""
}
