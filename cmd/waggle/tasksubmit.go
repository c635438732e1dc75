package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// maxSubmit items and submitBytes of them go in one call.
	maxSubmit   = 1000
	submitBytes = 3 << 20

	// maxLine bounds a line of --file: a payload of 256 KiB in base64 and what is around it.
	maxLine = 1 << 20

	// shownResults is up to how many results a table shows each; above it, only what was refused.
	shownResults = 20
)

// submitFlags are what all items of a call share, unless a line of the file says otherwise.
type submitFlags struct {
	source, key, queue, kind, ifExists, file, payloadFile string
	priority                                              int32
	due                                                   timeFlag
	metadata                                              map[string]string
}

func newTaskSubmit(o *clientOptions) *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit --source ID URL...",
		Short: "Submit tasks",
		Long: `Submit tasks. A task that is known already answers EXISTS; --if-exists says what
else to do. --file reads one task a line: a URL, or a SubmitItem in JSON, over
which the flags are laid.`,
		Example: `  waggle task submit --source news.example https://example.com/a --priority 7
  waggle task submit --source news.example --file urls.txt
  waggle task submit --source api.example --key item-17 --queue api.example.com --payload-file item.json`,
		Args: cobra.ArbitraryArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.source, "source", "", "the `source` that the tasks belong to")
	flags.StringVar(&f.key, "key", "", "`key` that identifies the task (default its canonical URL); for one task only")
	queueVar(flags, &f.queue, "queue", "its `queue` (default by the queue rules, from the URL's host)")
	flags.StringVar(&f.kind, "kind", "", "what `kind` of task it is, for the collector")
	flags.Int32Var(&f.priority, "priority", 5, "`0 to 9`, higher first")
	flags.Var(&f.due, "due", "`when`: 2h (from now) or 2026-01-31T18:00:00Z (default now)")
	flags.StringVar(&f.ifExists, "if-exists", "keep", "`what` to do when it is known already: keep, sooner or again")
	pairsVar(flags, &f.metadata, "metadata", "laid over the source's metadata; may be repeated")
	flags.StringVar(&f.payloadFile, "payload-file", "", "`file` with the payload, instead of the source's")
	flags.StringVarP(&f.file, "file", "f", "", "`file` with one task a line; - for standard input")
	cmd.RunE = o.call(func(ctx context.Context, c *client, urls []string) error {
		items, closeItems, err := f.items(cmd, c, urls)
		if err != nil {
			return err
		}
		defer closeItems()
		return submit(ctx, c, items)
	})
	return cmd
}

// itemReader gives the next item, or nil at the end.
type itemReader func() (*pb.SubmitItem, error)

// items gives what the arguments and the file name, one by one.
func (f *submitFlags) items(cmd *cobra.Command, c *client, urls []string) (next itemReader, closeFile func(), err error) {
	pattern, err := f.pattern(cmd, c)
	if err != nil {
		return nil, nil, err
	}
	nothing := func() {}
	switch {
	case f.file != "" && (len(urls) > 0 || f.key != ""):
		return nil, nil, usagef(nil, "say URLs or --key, or --file, not both")
	case f.file == "" && len(urls) == 0 && f.key == "":
		return nil, nil, usagef(nil, "which tasks? say URLs, --key or --file")
	case f.key != "" && len(urls) > 1:
		return nil, nil, usagef(nil, "--key names one task; %d URLs were given", len(urls))
	case f.file == "" && f.source == "":
		return nil, nil, usagef(nil, "--source is missing: which source do the tasks belong to?")
	case f.file == "" && len(urls) == 0:
		urls = []string{""}
	case f.file == "-":
		return lines(f.file, cmd.InOrStdin(), pattern), nothing, nil
	case f.file != "":
		file, err := os.Open(f.file)
		if err != nil {
			return nil, nil, fmt.Errorf("--file: %w", err)
		}
		return lines(f.file, file, pattern), func() { file.Close() }, nil //nolint:errcheck // it was only read
	}
	return func() (*pb.SubmitItem, error) {
		if len(urls) == 0 {
			return nil, nil //nolint:nilnil // the end
		}
		item := pattern(&pb.SubmitItem{Url: urls[0]})
		urls = urls[1:]
		return item, nil
	}, nothing, nil
}

// pattern lays the flags over an item.
func (f *submitFlags) pattern(cmd *cobra.Command, c *client) (func(*pb.SubmitItem) *pb.SubmitItem, error) {
	over := &pb.SubmitItem{SourceId: f.source, Key: f.key, Queue: f.queue, Kind: f.kind, Metadata: f.metadata}
	value, err := enumValue("--if-exists", f.ifExists, "IF_EXISTS_", pb.IfExists_value)
	if err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("if-exists") {
		over.IfExists = pb.IfExists(value)
	}
	if f.priority < 0 || f.priority > 9 {
		return nil, usagef(nil, "--priority %d: say 0 to 9", f.priority)
	}
	if cmd.Flags().Changed("priority") {
		over.Priority = &f.priority
	}
	if over.DueTime, err = f.due.at(c.now); err != nil {
		return nil, err
	}
	if f.payloadFile != "" {
		if over.Payload, err = os.ReadFile(f.payloadFile); err != nil {
			return nil, fmt.Errorf("--payload-file: %w", err)
		}
	}
	return func(item *pb.SubmitItem) *pb.SubmitItem {
		proto.Merge(item, over)
		return item
	}, nil
}

// lines reads items from a file, one a line; empty lines and those that begin with # are left out.
func lines(name string, in io.Reader, pattern func(*pb.SubmitItem) *pb.SubmitItem) itemReader {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, maxLine)
	number := 0
	return func() (*pb.SubmitItem, error) {
		for scanner.Scan() {
			number++
			line := strings.TrimSpace(scanner.Text())
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if !utf8.ValidString(line) {
				return nil, fmt.Errorf("--file %s, line %d is not in UTF-8", name, number)
			}
			item := &pb.SubmitItem{Url: line}
			if strings.HasPrefix(line, "{") {
				item = &pb.SubmitItem{}
				if err := unmarshalJSON([]byte(line), item); err != nil {
					return nil, fmt.Errorf("--file %s, line %d is no SubmitItem: %w", name, number, err)
				}
			}
			if pattern(item).GetSourceId() == "" {
				return nil, usagef(nil, "--file %s, line %d names no source_id, and --source is missing", name, number)
			}
			return item, nil
		}
		if err := scanner.Err(); err != nil {
			return nil, fmt.Errorf("--file %s, line %d: %w (longest line: %s)", name, number+1, err, bytesText(maxLine))
		}
		return nil, nil //nolint:nilnil // the end
	}
}

// submission is what became of the items so far.
type submission struct {
	total    int
	codes    map[pb.SubmitCode]int
	shown    []*pb.SubmitItem
	results  []*pb.SubmitResult // of shown
	all      *pb.SubmitTasksResponse
	keepJSON bool
}

// submit sends the items in calls of their own size and shows what became of them.
func submit(ctx context.Context, c *client, next itemReader) error {
	s := &submission{codes: map[pb.SubmitCode]int{}, all: &pb.SubmitTasksResponse{}, keepJSON: c.options.output == "json"}
	var batch []*pb.SubmitItem
	bytes := 0
	send := func() error {
		if len(batch) == 0 {
			return nil
		}
		reply, err := c.tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: batch})
		if err != nil {
			if s.total > 0 {
				fmt.Fprintf(c.err, "at least %s were submitted; repeating the command does them no harm\n", plural(s.total, "task"))
			}
			return err
		}
		s.add(batch, reply)
		batch, bytes = nil, 0
		return nil
	}
	for {
		item, err := next()
		if err != nil {
			return err
		}
		if item == nil {
			break
		}
		size := proto.Size(item)
		if len(batch) == maxSubmit || bytes+size > submitBytes {
			if err := send(); err != nil {
				return err
			}
		}
		batch, bytes = append(batch, item), bytes+size
	}
	if err := send(); err != nil {
		return err
	}
	if err := c.show(s.all, func() { s.write(c.out) }); err != nil {
		return err
	}
	if s.refused() > 0 {
		if s.keepJSON {
			return errReported
		}
		return fmt.Errorf("%s not submitted", plural(s.refused(), "task"))
	}
	return nil
}

func (s *submission) add(items []*pb.SubmitItem, reply *pb.SubmitTasksResponse) {
	if s.keepJSON {
		s.all.Results = append(s.all.Results, reply.GetResults()...)
	}
	for i, result := range reply.GetResults() {
		s.total++
		s.codes[result.GetCode()]++
		if s.total <= shownResults || !taken(result) && len(s.shown) < 5*shownResults {
			s.shown = append(s.shown, items[i])
			s.results = append(s.results, result)
		}
	}
}

// taken reports whether the task is in.
func taken(r *pb.SubmitResult) bool {
	switch r.GetCode() {
	case pb.SubmitCode_SUBMIT_CODE_CREATED, pb.SubmitCode_SUBMIT_CODE_EXISTS, pb.SubmitCode_SUBMIT_CODE_REVISIT:
		return true
	default:
		return false
	}
}

func (s *submission) refused() int {
	taken := s.codes[pb.SubmitCode_SUBMIT_CODE_CREATED] + s.codes[pb.SubmitCode_SUBMIT_CODE_EXISTS] + s.codes[pb.SubmitCode_SUBMIT_CODE_REVISIT]
	return s.total - taken
}

// write shows each result of a few tasks, of many those that were refused.
func (s *submission) write(out io.Writer) {
	if s.total == 0 {
		fmt.Fprintln(out, "no tasks in the file")
		return
	}
	t := newTable("RESULT", "TASK", "STATE", "URL", "WHY")
	for i, result := range s.results {
		if s.total > shownResults && taken(result) {
			continue
		}
		t.row(word(result.GetCode(), "SUBMIT_CODE_"), result.GetTaskId(), word(result.GetState(), "TASK_STATE_"),
			brief(or(s.shown[i].GetUrl(), s.shown[i].GetKey()), urlWidth), result.GetMessage())
	}
	if len(t.rows) > 0 {
		t.write(out)
	}
	if s.total > 1 {
		fmt.Fprintf(out, "%s: %s created, %s existed, %s due again, %s limited, %s invalid\n", plural(s.total, "task"),
			count(s.codes[pb.SubmitCode_SUBMIT_CODE_CREATED]), count(s.codes[pb.SubmitCode_SUBMIT_CODE_EXISTS]),
			count(s.codes[pb.SubmitCode_SUBMIT_CODE_REVISIT]), count(s.codes[pb.SubmitCode_SUBMIT_CODE_LIMITED]),
			count(s.codes[pb.SubmitCode_SUBMIT_CODE_INVALID]))
	}
}
