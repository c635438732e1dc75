package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// submission is what became of the tasks so far. All before it in the file is settled, in
// the order of the file.
type submission struct {
	client *client.Client
	file   *cli.Input // nil: arguments name the tasks
	wait   time.Duration
	report *cli.Report

	batch []submitEntry // those with an error are only told of, in their turn
	items []*pb.SubmitItem
	bytes int

	total  int
	in     int // taken of them
	line   int // of the file, up to which all is settled
	codes  map[pb.SubmitCode]int
	told   int
	shown  []submitEntry
	result []*pb.SubmitResult // of shown
	all    submittedJSON
}

// submittedJSON is what programs are told.
type submittedJSON struct {
	Results []submittedItem `json:"results"`
}

// submittedItem is a SubmitResult with what it is of.
type submittedItem struct {
	Line        int    `json:"line"` // 0: an argument named it
	SourceID    string `json:"source_id"`
	URL         string `json:"url"`
	Key         string `json:"key"`
	Code        string `json:"code"`
	TaskID      string `json:"task_id"`
	State       string `json:"state"`
	ErrorReason string `json:"error_reason"`
	Message     string `json:"message"`
}

func newSubmittedItem(e submitEntry, r *pb.SubmitResult) submittedItem {
	return submittedItem{
		Line: e.line, SourceID: e.item.GetSourceId(), URL: e.item.GetUrl(), Key: e.item.GetKey(), Code: r.GetCode().String(),
		TaskID: r.GetTaskId(), State: r.GetState().String(), ErrorReason: r.GetErrorReason().String(), Message: r.GetMessage(),
	}
}

// run submits what next gives, in calls of their own size, and shows what became of it.
func (s *submission) run(ctx context.Context, reportFile string, next entryReader) (err error) {
	if s.report, err = cli.OpenReport(reportFile, 0, "line", "task", "result", "error", "url", "key"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.report.Close()) }()
	s.codes, s.all.Results = map[pb.SubmitCode]int{}, []submittedItem{}
	out := s.client.Out
	err = s.submit(ctx, next)
	switch {
	case err != nil && s.total == 0:
		return err
	case err == nil && s.total == 0:
		return s.file.ErrNothing()
	case err != nil:
		s.stopped()
		if s.client.JSON {
			err = errors.Join(client.WriteJSON(out, s.all), err)
		}
		return err
	case s.client.JSON:
		err = client.WriteJSON(out, s.all)
	default:
		s.write(out)
	}
	if err != nil {
		return err
	}
	return s.refused()
}

// submit sends what next gives, in calls as large as they may be, and at least so often that
// nothing of a slow producer waits.
func (s *submission) submit(ctx context.Context, next entryReader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	entries := readAhead(ctx, next)
	var late <-chan time.Time // of what is in the batch
	for {
		if len(s.batch) == 0 {
			late = nil
		} else if late == nil {
			late = time.After(s.wait)
		}
		select {
		case read := <-entries:
			if errors.Is(read.err, io.EOF) {
				return s.send(ctx)
			}
			if read.err != nil {
				return errors.Join(s.send(ctx), read.err)
			}
			if err := s.put(ctx, read.entry); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			if err := s.send(ctx); err != nil {
				return err
			}
		}
	}
}

// readEntry is what an entryReader gave.
type readEntry struct {
	entry submitEntry
	err   error
}

// readAhead reads entries until there are no more, or ctx ends.
func readAhead(ctx context.Context, next entryReader) <-chan readEntry {
	entries := make(chan readEntry)
	go func() {
		for {
			entry, err := next()
			select {
			case entries <- readEntry{entry, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return entries
}

// put adds an entry to the batch, which is sent before when it would become too large.
func (s *submission) put(ctx context.Context, entry submitEntry) error {
	size := proto.Size(entry.item)
	if len(s.batch) == maxSubmit || s.bytes+size > submitBytes {
		if err := s.send(ctx); err != nil {
			return err
		}
	}
	s.batch = append(s.batch, entry)
	if entry.err == nil {
		s.items, s.bytes = append(s.items, entry.item), s.bytes+size
	}
	return nil
}

// send makes the call of a batch and takes what came of it.
func (s *submission) send(ctx context.Context) error {
	reply := &pb.SubmitTasksResponse{}
	if len(s.items) > 0 {
		var err error
		if reply, err = s.call(ctx); err != nil {
			return err
		}
	}
	results := reply.GetResults()
	if len(results) != len(s.items) {
		return fmt.Errorf("the dispatcher answered %d of %d tasks", len(results), len(s.items))
	}
	for _, entry := range s.batch {
		var result *pb.SubmitResult
		if entry.err != nil {
			result = entry.result()
		} else {
			result, results = results[0], results[1:]
		}
		if err := s.settle(entry, result); err != nil {
			return err
		}
	}
	s.batch, s.items, s.bytes = nil, nil, 0
	return nil
}

// call submits the items of a batch. Those of a file are sent again until they are taken:
// what was taken before answers EXISTS.
func (s *submission) call(ctx context.Context) (reply *pb.SubmitTasksResponse, err error) {
	call := func() error {
		reply, err = s.client.Tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: s.items})
		return err
	}
	if s.file == nil {
		return reply, call()
	}
	var away time.Time
	err = client.Patiently(ctx, 0, call, func(err error) {
		if away.IsZero() {
			away = time.Now()
			s.client.Note("no call is taken now (%s); waiting until one is, or an interrupt", human.Plain(status.Convert(err).Message()))
		}
	})
	if err == nil && !away.IsZero() {
		s.client.Note("calls are taken again, after %s; going on", human.Span(time.Since(away)))
	}
	return reply, err
}

// settle counts what became of a task, and tells of it.
func (s *submission) settle(entry submitEntry, result *pb.SubmitResult) error {
	s.total++
	s.line = max(s.line, entry.line)
	s.codes[result.GetCode()]++
	if taken(result) {
		s.in++
	}
	if s.client.JSON {
		s.all.Results = append(s.all.Results, newSubmittedItem(entry, result))
	}
	if s.total <= client.ShownResults || s.file == nil && !taken(result) && len(s.shown) < 5*client.ShownResults {
		s.shown, s.result = append(s.shown, entry), append(s.result, result)
	}
	if !taken(result) && s.file != nil && s.told < cli.ShownRefusals {
		s.told++
		s.client.Note("%s, line %d: %s", human.Plain(s.file.Name()), entry.line, human.Plain(refusedText(entry, result)))
	}
	code := human.Word(result.GetCode(), "SUBMIT_CODE_")
	return s.report.Put([]string{
		strconv.Itoa(entry.line), result.GetTaskId(), code, result.GetMessage(), entry.item.GetUrl(), entry.item.GetKey(),
	}, struct {
		Line   int    `json:"line,omitempty"`
		Task   string `json:"task,omitempty"`
		Result string `json:"result"`
		Error  string `json:"error,omitempty"`
		URL    string `json:"url,omitempty"`
		Key    string `json:"key,omitempty"`
	}{entry.line, result.GetTaskId(), code, result.GetMessage(), entry.item.GetUrl(), entry.item.GetKey()})
}

// refusedText says of which task, and why; of a line that is none only why.
func refusedText(entry submitEntry, result *pb.SubmitResult) string {
	text := result.GetMessage()
	if name := entry.name(); name != "" {
		text = human.Brief(name, human.URLWidth) + ": " + text
	}
	if result.GetCode() != pb.SubmitCode_SUBMIT_CODE_INVALID {
		text = human.Word(result.GetCode(), "SUBMIT_CODE_") + ": " + text
	}
	return text
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

// stopped says how far a submission came that an error has ended.
func (s *submission) stopped() {
	where := ""
	if s.line > 0 {
		where = fmt.Sprintf(" (up to line %s)", human.Count(s.line))
	}
	s.client.Note("stopped: at least %s submitted%s; repeating the command does no harm", human.PluralVerb(s.in, "task", "was", "were"), where)
}

// refused fails a submission of which some tasks were not taken.
func (s *submission) refused() error {
	refused := s.total - s.in
	if more := refused - s.told; s.file != nil && more > 0 && !s.report.Kept() {
		s.client.Note("and %s more; --report FILE has all of them", human.Count(more))
	}
	switch {
	case refused == 0:
		return nil
	case s.client.JSON:
		return cli.ErrReported
	}
	return fmt.Errorf("%s not submitted", human.Plural(refused, "task"))
}

// write shows each result of a few tasks; of many named by arguments those that were
// refused, which of a file are told by line.
func (s *submission) write(out io.Writer) {
	t := human.NewTable("RESULT", "TASK", "STATE", "URL", "WHY")
	for i, result := range s.result {
		if taken(result) && s.total > client.ShownResults || !taken(result) && s.file != nil {
			continue
		}
		t.Row(human.Word(result.GetCode(), "SUBMIT_CODE_"), result.GetTaskId(), human.Word(result.GetState(), "TASK_STATE_"),
			human.Brief(s.shown[i].name(), human.URLWidth), result.GetMessage())
	}
	t.Write(out, "")
	if s.total > 1 {
		fmt.Fprintf(out, "%s: %s created, %s existed, %s due again, %s limited, %s invalid\n", human.Plural(s.total, "task"),
			human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_CREATED]), human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_EXISTS]),
			human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_REVISIT]), human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_LIMITED]),
			human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_INVALID]))
	}
}
