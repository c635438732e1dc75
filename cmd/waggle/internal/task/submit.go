package task

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// submitWait is how long tasks wait for others to go with.
const submitWait = time.Second

// submitFlags are what holds for items that do not say it themselves.
type submitFlags struct {
	item              pb.SubmitItem
	file, payloadFile string
	priority          int32
}

func newTaskSubmit(o *client.Options) *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit --source ID URL...",
		Short: "Submit tasks",
		Long: `Submit tasks. A task that is known already answers EXISTS; --if-exists decides what
else happens.

--file reads one task a line: a URL, or a SubmitItem in JSON; empty lines and those
that begin with # are skipped. Flags hold for lines that leave a field out, as --source
for URLs. Lines are sent a thousand at a time, those of a slow producer once a second.
If a dispatcher is away, or takes no more now, submit waits for it until an interrupt.
A line that is wrong is reported with its number and makes the exit code 1; the others
are submitted. The same file can be submitted again once it is mended.`,
		Example: `  waggle task submit --source news.example https://example.com/a --priority 7
  waggle task submit --source news.example --file urls.txt.gz
  waggle task submit --source api.example --key item-17 --queue api.example.com --payload-file item.json`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.item.SourceId, "source", "", "the `source` that the tasks belong to")
	flags.StringVar(&f.item.Key, "key", "", "`key` that identifies the task (default its canonical URL); for one task only")
	cli.QueueVar(flags, &f.item.Queue, "queue", "its `queue` (default by the queue rules, from the URL's host)")
	flags.StringVar(&f.item.Kind, "kind", "", "what `kind` of task it is, for the collector")
	flags.Int32Var(&f.priority, "priority", 5, "`0 to 9`, higher first")
	cli.TimeVar(flags, &f.item.DueTime, "due", "`when`, if not now")
	cli.EnumVar(flags, &f.item.IfExists, "if-exists", "`what` to do if it is known already (default keep)", "IF_EXISTS_", pb.IfExists_value)
	cli.PairsVar(flags, &f.item.Metadata, "metadata", "laid over the source's metadata; may be repeated")
	flags.StringVar(&f.payloadFile, "payload-file", "", "`file` with the payload, instead of the source's")
	flags.StringVarP(&f.file, "file", "f", "", "`file` with one task a line; - for standard input")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, urls []string) error {
		if err := f.check(cmd, urls); err != nil {
			return err
		}
		s := &submission{client: c, results: []result{}, codes: map[pb.SubmitCode]int{}}
		if f.file == "" {
			if len(urls) == 0 {
				urls = []string{""} // the one of --key
			}
			for _, url := range urls {
				if err := s.put(ctx, &entry{item: f.complete(&pb.SubmitItem{Url: url})}); err != nil {
					return s.end(err)
				}
			}
			return s.end(s.send(ctx))
		}
		file, err := cli.OpenInput(ctx, f.file, cmd.InOrStdin())
		if err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		defer file.Close()
		s.file, s.patience.Note = file, c.Note
		return s.end(s.submit(ctx, cmp.Or(o.Console.SubmitWait, submitWait), f.complete))
	})
	return cmd
}

// check refuses flags and arguments that do not go together, and completes the pattern of all items.
func (f *submitFlags) check(cmd *cobra.Command, urls []string) (err error) {
	switch {
	case f.file != "" && (len(urls) > 0 || f.item.GetKey() != ""):
		return cli.Usagef("say URLs or --key, or --file, not both")
	case f.file == "" && len(urls) == 0 && f.item.GetKey() == "":
		return cli.Usagef("which tasks? say URLs, --key or --file")
	case f.item.GetKey() != "" && len(urls) > 1:
		return cli.Usagef("--key names one task; %d URLs were given", len(urls))
	case f.file == "" && f.item.GetSourceId() == "":
		return cli.Usagef("--source is missing: which source do the tasks belong to?")
	case f.priority < 0 || f.priority > 9:
		return cli.Usagef("--priority %d: want 0 to 9", f.priority)
	}
	if cmd.Flags().Changed("priority") {
		f.item.Priority = &f.priority
	}
	if f.payloadFile != "" {
		if f.item.Payload, err = os.ReadFile(f.payloadFile); err != nil {
			return fmt.Errorf("--payload-file: %w", err)
		}
	}
	return nil
}

// complete lays an item over what flags give.
func (f *submitFlags) complete(item *pb.SubmitItem) *pb.SubmitItem {
	merged := proto.CloneOf(&f.item)
	if item.GetDueTime() != nil {
		merged.DueTime = nil // else one would be laid over the other field by field
	}
	proto.Merge(merged, item)
	return merged
}
