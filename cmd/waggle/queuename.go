package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

// queueFlag is a flag for a queue.
type queueFlag string

var _ pflag.Value = (*queueFlag)(nil)

// Set takes a name, a host or a URL.
func (f *queueFlag) Set(text string) error {
	*f = queueFlag(queueName(text))
	return nil
}

// String is the queue's name.
func (f *queueFlag) String() string { return string(*f) }

// Type is what help calls it.
func (f *queueFlag) Type() string { return "name" }

// queueVar adds a flag for a queue that a request takes.
func queueVar(flags *pflag.FlagSet, p *string, name, usage string) {
	flags.Var((*queueFlag)(p), name, usage)
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
