package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// submitWait is how long tasks wait for others to go with.
	submitWait = time.Second
	// submitBytes of items, and client.MaxBulk of them, go in one call.
	submitBytes = 3 << 20
	// maxLine bounds a line of --file: a payload of 256 KiB in base64 and what is around it.
	maxLine = 1 << 20
	// urlWidth bounds a URL in a note.
	urlWidth = 72
)

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
		Long: `Submit tasks. A task that is known already answers EXISTS; --if-exists decides what else happens.

--file reads one task a line: a URL, or a SubmitItem in JSON; empty lines and those that begin with # are skipped. Flags hold
for lines that leave a field out, as --source for URLs. Lines are sent a thousand at a time, those of a slow producer once a
second. If a dispatcher is away, or takes no more now, submit waits for it until an interrupt. A line that is wrong is reported
with its number and makes the exit code 1; the others are submitted. The same file can be submitted again once it is mended.`,
		Example: `  waggle task submit --source news.example https://example.com/a --priority 7
  waggle task submit --source news.example --file urls.txt.gz
  waggle task submit --source api --key i7 --queue api.example --payload-file f`,
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
		s.file, s.patience.Note, s.progress = file, c.Note, c.Progress("task")
		return s.end(s.submit(ctx, f.complete))
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

// submission is what became of the tasks so far. All before them in the file is settled, in the order of the file.
type submission struct {
	client   *client.Client
	file     *cli.Input // nil: arguments name the tasks
	patience client.Patience
	progress *human.Progress

	batch []*entry // those with an error are only reported, in their turn
	bytes int

	codes   map[pb.SubmitCode]int
	results []result // all for programs, else the first that were taken
	taken   int
	refused int
	line    int // of the file, up to which all is settled
}

// entry is a task to submit, or what is wrong with the line that should name one.
type entry struct {
	line int // of --file, from 1; 0: an argument named it
	item *pb.SubmitItem
	err  error
}

// result is what became of a task, for programs.
type result struct {
	Line        int    `json:"line"`
	SourceID    string `json:"source_id"`
	URL         string `json:"url"`
	Key         string `json:"key"`
	Code        string `json:"code"`
	TaskID      string `json:"task_id"`
	State       string `json:"state"`
	ErrorReason string `json:"error_reason"`
	Message     string `json:"message"`
}

// submit sends the lines of the file, in calls as large as they may be, and after each submitWait those that are there.
func (s *submission) submit(ctx context.Context, complete func(*pb.SubmitItem) *pb.SubmitItem) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	entries, ended := make(chan *entry), make(chan error, 1)
	go func() {
		defer close(entries)
		ended <- s.read(complete, func(e *entry) error {
			select {
			case entries <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	late := time.NewTicker(submitWait)
	defer late.Stop()
	for {
		var err error
		select {
		case e, more := <-entries:
			if !more {
				return errors.Join(s.send(ctx), <-ended)
			}
			err = s.put(ctx, e)
		case <-late.C:
			err = s.send(ctx)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// put adds a task to the batch, and sends that before if it would become too large.
func (s *submission) put(ctx context.Context, e *entry) (err error) {
	size := proto.Size(e.item)
	if len(s.batch) == client.MaxBulk || s.bytes+size > submitBytes {
		err = s.send(ctx)
	}
	s.batch, s.bytes = append(s.batch, e), s.bytes+size
	return err
}

// read gives the tasks of the file; empty lines and those that begin with # are left out.
func (s *submission) read(complete func(*pb.SubmitItem) *pb.SubmitItem, take func(*entry) error) error {
	text, err := textfile.Decode(s.file)
	if err != nil {
		return fmt.Errorf("%s: %w", s.file.Name(), err)
	}
	for lines := textfile.NewLines(text); ; {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w: %w", s.file.Name(), cli.ErrBroken, err)
		}
		e := &entry{line: line.Line, err: line.Err}
		if text := strings.TrimSpace(string(line.Text)); e.err == nil {
			if text == "" || strings.HasPrefix(text, "#") {
				continue
			}
			e.item, e.err = parseItem(text, complete)
		}
		if err := take(e); err != nil {
			return err
		}
	}
}

// parseItem reads a line: a URL, or a SubmitItem in JSON.
func parseItem(text string, complete func(*pb.SubmitItem) *pb.SubmitItem) (*pb.SubmitItem, error) {
	if len(text) > maxLine {
		return nil, fmt.Errorf("is %d bytes long; the limit is %d", len(text), maxLine)
	}
	item := &pb.SubmitItem{Url: text}
	if strings.HasPrefix(text, "{") {
		item = &pb.SubmitItem{}
		if err := textfile.Unmarshal([]byte(text), item); err != nil {
			// Of a line the parser always reports that it is the first.
			return nil, fmt.Errorf("is no SubmitItem: %s", strings.Replace(err.Error(), "(line 1:", "(column ", 1))
		}
	}
	if item = complete(item); item.GetSourceId() == "" {
		return nil, errors.New("names no source_id, and --source is missing")
	}
	return item, nil
}

// send makes the call of a batch. Items of a file are sent again until they are taken: what was taken before answers EXISTS.
func (s *submission) send(ctx context.Context) error {
	request, reply := &pb.SubmitTasksRequest{}, &pb.SubmitTasksResponse{}
	for _, e := range s.batch {
		if e.err == nil {
			request.Items = append(request.Items, e.item)
		}
	}
	call := func() (err error) {
		if len(request.GetItems()) > 0 {
			reply, err = s.client.Tasks.SubmitTasks(ctx, request)
		}
		return err
	}
	var err error
	if s.file == nil {
		err = call()
	} else {
		err = s.patience.Call(ctx, call)
	}
	if err != nil {
		return err
	}
	results := reply.GetResults()
	if len(results) != len(request.GetItems()) {
		return fmt.Errorf("the dispatcher answered %d of %d tasks", len(results), len(request.GetItems()))
	}
	for _, e := range s.batch {
		r := &pb.SubmitResult{Code: pb.SubmitCode_SUBMIT_CODE_INVALID, ErrorReason: pb.ErrorReason_ERROR_REASON_INVALID_FIELD}
		if e.err == nil {
			r, results = results[0], results[1:]
		} else {
			r.Message = e.err.Error()
		}
		s.settle(e, r)
	}
	s.batch, s.bytes = nil, 0
	if s.file != nil {
		read, size := s.file.Done()
		s.progress.At("", int64(s.taken+s.refused), read, size)
	}
	return nil
}

// settle counts what became of a task. The first that were refused are noted.
func (s *submission) settle(e *entry, r *pb.SubmitResult) {
	s.line = max(s.line, e.line)
	s.codes[r.GetCode()]++
	refused := r.GetCode() == pb.SubmitCode_SUBMIT_CODE_INVALID || r.GetCode() == pb.SubmitCode_SUBMIT_CODE_LIMITED
	switch {
	case !refused:
		s.taken++
	case s.refused < cli.ShownRefusals:
		s.noteRefused(e, r)
		fallthrough
	default:
		s.refused++
	}
	if s.client.JSON || !refused && s.taken <= client.ShownResults {
		s.results = append(s.results, result{
			Line: e.line, SourceID: e.item.GetSourceId(), URL: canonical.RedactedURL(e.item.GetUrl()), Key: canonical.RedactedURL(e.item.GetKey()), Code: r.GetCode().String(),
			TaskID: r.GetTaskId(), State: r.GetState().String(), ErrorReason: r.GetErrorReason().String(), Message: r.GetMessage(),
		})
	}
}

func (s *submission) noteRefused(e *entry, r *pb.SubmitResult) {
	text := r.GetMessage()
	if name := cmp.Or(e.item.GetUrl(), e.item.GetKey()); name != "" {
		text = human.Brief(canonical.RedactedURL(name), urlWidth) + ": " + text
	}
	if r.GetCode() == pb.SubmitCode_SUBMIT_CODE_LIMITED {
		text = "LIMITED: " + text
	}
	if e.line > 0 {
		text = fmt.Sprintf("%s, line %d: %s", s.file.Name(), e.line, text)
	}
	s.client.Note("%s", human.Plain(text))
}

// end shows what became of the tasks; err is why not all were sent. If some were refused it fails, though the others are in.
func (s *submission) end(err error) error {
	total := s.taken + s.refused
	if s.progress != nil {
		s.progress.Show()
	}
	switch {
	case err == nil && total == 0:
		return s.file.ErrNothing()
	case total == 0:
		return err
	case err != nil:
		s.client.Note("stopped: at least %s submitted (up to line %s); repeating the command does no harm",
			human.PluralVerb(s.taken, "task", "was", "were"), human.Count(s.line))
	}
	if more := s.refused - cli.ShownRefusals; more > 0 {
		s.client.Note("and %s more; --output json has all of them", human.Count(more))
	}
	if s.client.JSON || err == nil {
		err = errors.Join(s.client.Show(map[string]any{"results": s.results}, nil, s.write), err)
	}
	if err == nil && s.refused > 0 {
		return fmt.Errorf("%s not submitted", human.Plural(s.refused, "task"))
	}
	return err
}

// write shows the results of a few tasks, and how many there are of each.
func (s *submission) write() {
	total := s.taken + s.refused
	if total <= client.ShownResults {
		rows := human.NewTable("RESULT", "TASK^11", "STATE/1", "URL^12")
		for _, r := range s.results {
			rows.Row(strings.TrimPrefix(r.Code, "SUBMIT_CODE_"), r.TaskID, strings.TrimPrefix(r.State, "TASK_STATE_"), cmp.Or(r.URL, r.Key))
		}
		rows.Write(s.client.Out, "")
	}
	if total > 1 {
		fmt.Fprintf(s.client.Out, "%s: %s created, %s existed, %s due again, %s limited, %s invalid\n", human.Plural(total, "task"),
			human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_CREATED]), human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_EXISTS]),
			human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_REVISIT]), human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_LIMITED]),
			human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_INVALID]))
	}
}
