package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// maxSubmit items and submitBytes of them go in one call.
	maxSubmit   = 1000
	submitBytes = 3 << 20

	// submitWait is how long items wait for others to go with.
	submitWait = time.Second
)

// submission is what became of the tasks so far. All before it in the file is settled, in the order of the file.
type submission struct {
	client *client.Client
	file   *cli.Input // nil: arguments name the tasks
	wait   time.Duration

	patience client.Patience

	batch []*entry // those with an error are only reported, in their turn
	bytes int

	total, in int // in: taken of them
	line      int // of the file, up to which all is settled
	codes     map[pb.SubmitCode]int
	noted     int
	rows      *human.Table
	results   []submittedItem // for programs
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

// run submits the entries and shows what became of them. Those that were refused make it fail, though the others are in.
func (s *submission) run(ctx context.Context, read reader) error {
	s.codes, s.results = map[pb.SubmitCode]int{}, []submittedItem{}
	s.rows = human.NewTable("RESULT", "TASK", "STATE/1", "URL~12", "WHY~20")
	err := s.submit(ctx, read)
	switch {
	case err == nil && s.total == 0:
		return s.file.ErrNothing()
	case s.total == 0:
		return err
	case err != nil:
		where := ""
		if s.line > 0 {
			where = fmt.Sprintf(" (up to line %s)", human.Count(s.line))
		}
		s.client.Note("stopped: at least %s submitted%s; repeating the command does no harm", human.PluralVerb(s.in, "task", "was", "were"), where)
	case !s.client.JSON:
		s.write(s.client.Out)
	}
	if s.client.JSON {
		err = errors.Join(client.WriteJSON(s.client.Out, map[string]any{"results": s.results}), err)
	}
	if err != nil {
		return err
	}
	return s.refused()
}

// submit sends entries, in calls as large as they may be, and at least so often that nothing of a slow producer waits.
func (s *submission) submit(ctx context.Context, read reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ahead, ended := make(chan *entry), make(chan error, 1)
	go func() {
		ended <- read(func(e *entry) error {
			select {
			case ahead <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		close(ahead)
	}()
	var late <-chan time.Time // of what is in the batch
	for {
		if len(s.batch) == 0 {
			late = nil
		} else if late == nil {
			late = time.After(s.wait)
		}
		var err error
		select {
		case e, more := <-ahead:
			if !more {
				return errors.Join(s.send(ctx), <-ended)
			}
			err = s.put(ctx, e)
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			err = s.send(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// put adds an entry to the batch, which is sent before when it would become too large.
func (s *submission) put(ctx context.Context, e *entry) error {
	size := proto.Size(e.item)
	if len(s.batch) == maxSubmit || s.bytes+size > submitBytes {
		if err := s.send(ctx); err != nil {
			return err
		}
	}
	s.batch, s.bytes = append(s.batch, e), s.bytes+size
	return nil
}

// send makes the call of a batch and takes what came of it. Items of a file are sent again until they are taken: what was
// taken before answers EXISTS.
func (s *submission) send(ctx context.Context) (err error) {
	request, reply := &pb.SubmitTasksRequest{}, &pb.SubmitTasksResponse{}
	for _, e := range s.batch {
		if e.err == nil {
			request.Items = append(request.Items, e.item)
		}
	}
	call := func() (err error) {
		reply, err = s.client.Tasks.SubmitTasks(ctx, request)
		return err
	}
	switch {
	case len(request.GetItems()) == 0:
	case s.file == nil:
		err = call()
	default:
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
		if e.err == nil {
			e.result, results = results[0], results[1:]
		} else {
			e.result = &pb.SubmitResult{
				Code: pb.SubmitCode_SUBMIT_CODE_INVALID, ErrorReason: pb.ErrorReason_ERROR_REASON_INVALID_FIELD, Message: e.err.Error(),
			}
		}
		s.settle(e)
	}
	s.batch, s.bytes = nil, 0
	return nil
}

// settle counts what became of a task. One of a file that was refused is noted by its line; the results of the others are
// shown while they are few.
func (s *submission) settle(e *entry) {
	r := e.result
	s.total, s.line = s.total+1, max(s.line, e.line)
	s.codes[r.GetCode()]++
	if e.taken() {
		s.in++
	}
	if s.client.JSON {
		s.results = append(s.results, submittedItem{
			Line: e.line, SourceID: e.item.GetSourceId(), URL: e.item.GetUrl(), Key: e.item.GetKey(), Code: r.GetCode().String(),
			TaskID: r.GetTaskId(), State: r.GetState().String(), ErrorReason: r.GetErrorReason().String(), Message: r.GetMessage(),
		})
	}
	code := human.Word(r.GetCode(), "SUBMIT_CODE_")
	switch {
	case e.taken() || s.file == nil:
		if s.total <= client.ShownResults || !e.taken() && len(s.rows.Rows) < 5*client.ShownResults {
			s.rows.Row(code, r.GetTaskId(), human.Word(r.GetState(), "TASK_STATE_"), e.name(), r.GetMessage())
		}
	case s.noted < cli.ShownRefusals:
		s.noted++
		text := r.GetMessage()
		if name := e.name(); name != "" {
			text = human.Brief(name, urlWidth) + ": " + text
		}
		if r.GetCode() != pb.SubmitCode_SUBMIT_CODE_INVALID {
			text = code + ": " + text
		}
		s.client.Note("%s, line %d: %s", human.Plain(s.file.Name()), e.line, human.Plain(text))
	}
}

// urlWidth bounds a URL in a note.
const urlWidth = 72

// refused fails a submission of which some tasks were not taken.
func (s *submission) refused() error {
	refused := s.total - s.in
	if more := refused - s.noted; s.file != nil && more > 0 && !s.client.JSON {
		s.client.Note("and %s more; --output json has all of them", human.Count(more))
	}
	switch {
	case refused == 0:
		return nil
	case s.client.JSON:
		return cli.ErrReported
	}
	return fmt.Errorf("%s not submitted", human.Plural(refused, "task"))
}

// write shows the results of a few tasks, of many those that were refused, and how many there are of each.
func (s *submission) write(out io.Writer) {
	if s.total > client.ShownResults {
		s.rows.Rows = slices.DeleteFunc(s.rows.Rows, func(row []string) bool { return row[0] != "LIMITED" && row[0] != "INVALID" })
	}
	s.rows.Write(out, "")
	if s.total > 1 {
		fmt.Fprintf(out, "%s: %s created, %s existed, %s due again, %s limited, %s invalid\n", human.Plural(s.total, "task"),
			human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_CREATED]), human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_EXISTS]),
			human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_REVISIT]), human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_LIMITED]),
			human.Count(s.codes[pb.SubmitCode_SUBMIT_CODE_INVALID]))
	}
}

// maxLine bounds a line of --file: a payload of 256 KiB in base64 and what is around it.
const maxLine = 1 << 20

// entry is one task to submit, or what is wrong with the line that should be one, and what became of it.
type entry struct {
	line   int // of --file, from 1; 0: an argument named it
	item   *pb.SubmitItem
	err    error
	result *pb.SubmitResult
}

// name is what people know the task by.
func (e *entry) name() string { return cmp.Or(e.item.GetUrl(), e.item.GetKey()) }

// taken reports whether the task is in.
func (e *entry) taken() bool {
	switch e.result.GetCode() {
	case pb.SubmitCode_SUBMIT_CODE_CREATED, pb.SubmitCode_SUBMIT_CODE_EXISTS, pb.SubmitCode_SUBMIT_CODE_REVISIT:
		return true
	default:
		return false
	}
}

// reader gives entries to take, until it fails or all are read.
type reader func(take func(*entry) error) error

// readFile gives the tasks of the file; empty lines and those that begin with # are left out.
func (s *submission) readFile(complete func(*pb.SubmitItem) *pb.SubmitItem, take func(*entry) error) error {
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
