package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// queueName is the queue that people mean by text: its name, a host in whatever case
// and script, or a URL.
func queueName(text string) string { return canonical.QueueName(text) }

// queuePattern is a pattern of queue names as rules have it.
func queuePattern(text string) string {
	if name, suffix := strings.CutPrefix(text, "*."); suffix {
		return "*." + queueName(name)
	}
	return queueName(text)
}

// oneQueue wants one argument, a queue, and gives it as queues are named.
func oneQueue(_ *cobra.Command, args []string) error {
	if err := exactly("the queue's name")(nil, args); err != nil {
		return err
	}
	args[0] = queueName(args[0])
	return nil
}

// onePattern wants one argument, a pattern of queues, and gives it as rules have it.
func onePattern(_ *cobra.Command, args []string) error {
	if err := exactly("the pattern")(nil, args); err != nil {
		return err
	}
	args[0] = queuePattern(args[0])
	return nil
}
