package task

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// submitFlags are what holds for items that do not say it themselves.
type submitFlags struct {
	item                                pb.SubmitItem
	ifExists, file, payloadFile, report string
	priority                            int32
}

func newTaskSubmit(o *client.Options) *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit --source ID URL...",
		Short: "Submit tasks",
		Long: `Submit tasks. A task that is known already answers EXISTS; --if-exists says what
else to do.

--file reads one task a line: a URL, or a SubmitItem in JSON; empty lines and those
that begin with # are left out. Flags say what holds for lines that say nothing
themselves, as --source for URLs. Lines go to the dispatcher a thousand at a time,
of a slow producer once a second; a dispatcher that is away, or takes no more now, is
waited for until an interrupt. A line that is wrong keeps no other from being
submitted: it is told with its number, the exit code is 1, and --report has all of
them. The same file again, mended, does no harm to what is in.`,
		Example: `  waggle task submit --source news.example https://example.com/a --priority 7
  waggle task submit --source news.example --file urls.txt.gz --report report.csv
  waggle task submit --source api.example --key item-17 --queue api.example.com --payload-file item.json`,
		Args: cobra.ArbitraryArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.item.SourceId, "source", "", "the `source` that the tasks belong to")
	flags.StringVar(&f.item.Key, "key", "", "`key` that identifies the task (default its canonical URL); for one task only")
	cli.QueueVar(flags, &f.item.Queue, "queue", "its `queue` (default by the queue rules, from the URL's host)")
	flags.StringVar(&f.item.Kind, "kind", "", "what `kind` of task it is, for the collector")
	flags.Int32Var(&f.priority, "priority", 5, "`0 to 9`, higher first")
	cli.TimeVar(flags, &f.item.DueTime, "due", "`when`, if not now")
	flags.StringVar(&f.ifExists, "if-exists", "keep", "`what` to do when it is known already: keep, sooner or again")
	cli.PairsVar(flags, &f.item.Metadata, "metadata", "laid over the source's metadata; may be repeated")
	flags.StringVar(&f.payloadFile, "payload-file", "", "`file` with the payload, instead of the source's")
	flags.StringVarP(&f.file, "file", "f", "", "`file` with one task a line; - for standard input")
	flags.StringVar(&f.report, "report", "", "`file` that gets a line for each task: CSV when its name ends in .csv, else JSON lines")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, urls []string) error {
		pattern, err := f.pattern(cmd)
		if err != nil {
			return err
		}
		if err := f.check(urls); err != nil {
			return err
		}
		s := &submission{client: c, wait: cmp.Or(o.Console.SubmitWait, submitWait), patience: client.Patience{Note: c.Note}}
		if f.file == "" {
			return s.run(ctx, f.report, ofArguments(urls, pattern))
		}
		if s.file, err = cli.OpenInput(ctx, f.file, cmd.InOrStdin()); err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		defer s.file.Close()
		all, err := ofFile(s.file, pattern)
		if err != nil {
			return err
		}
		return s.run(ctx, f.report, all)
	})
	return cmd
}

// check refuses flags and arguments that do not go together.
func (f *submitFlags) check(urls []string) error {
	switch {
	case f.file != "" && (len(urls) > 0 || f.item.GetKey() != ""):
		return cli.Usagef("say URLs or --key, or --file, not both")
	case f.file == "" && len(urls) == 0 && f.item.GetKey() == "":
		return cli.Usagef("which tasks? say URLs, --key or --file")
	case f.item.GetKey() != "" && len(urls) > 1:
		return cli.Usagef("--key names one task; %d URLs were given", len(urls))
	case f.file == "" && f.item.GetSourceId() == "":
		return cli.Usagef("--source is missing: which source do the tasks belong to?")
	case cli.SameFile(f.file, f.report):
		return cli.Usagef("--report and --file are the same file, %q; choose another", f.file)
	}
	return nil
}

// pattern completes an item by the flags.
func (f *submitFlags) pattern(cmd *cobra.Command) (itemPattern, error) {
	whole := &f.item
	value, err := cli.Enum[pb.IfExists]("--if-exists", f.ifExists, "IF_EXISTS_", pb.IfExists_value)
	if err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("if-exists") {
		whole.IfExists = value
	}
	if f.priority < 0 || f.priority > 9 {
		return nil, cli.Usagef("--priority %d: say 0 to 9", f.priority)
	}
	if cmd.Flags().Changed("priority") {
		whole.Priority = &f.priority
	}
	if f.payloadFile != "" {
		if whole.Payload, err = os.ReadFile(f.payloadFile); err != nil {
			return nil, fmt.Errorf("--payload-file: %w", err)
		}
	}
	return func(item *pb.SubmitItem) *pb.SubmitItem {
		merged := proto.CloneOf(whole)
		if item.GetDueTime() != nil {
			merged.DueTime = nil // else one would be laid over the other field by field
		}
		proto.Merge(merged, item)
		return merged
	}, nil
}
