package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	// submitBytes of items, and client.MaxBulk of them, go in one call.
	submitBytes = 3 << 20
	// maxLine bounds a line of --file: a payload of 256 KiB in base64 and what is around it.
	maxLine = 1 << 20
	// urlWidth bounds a URL in a note.
	urlWidth = 72
)

// submission is what became of the tasks so far. All before them in the file is settled, in the order of the file.
type submission struct {
	client   *client.Client
	file     *cli.Input // nil: arguments name the tasks
	patience client.Patience

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

// submit sends the lines of the file, in calls as large as they may be, and after each wait those that are there.
func (s *submission) submit(ctx context.Context, wait time.Duration, complete func(*pb.SubmitItem) *pb.SubmitItem) error {
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
	late := time.NewTicker(wait)
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
	err := error(nil)
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
			Line: e.line, SourceID: e.item.GetSourceId(), URL: e.item.GetUrl(), Key: e.item.GetKey(), Code: r.GetCode().String(),
			TaskID: r.GetTaskId(), State: r.GetState().String(), ErrorReason: r.GetErrorReason().String(), Message: r.GetMessage(),
		})
	}
}

func (s *submission) noteRefused(e *entry, r *pb.SubmitResult) {
	text := r.GetMessage()
	if name := cmp.Or(e.item.GetUrl(), e.item.GetKey()); name != "" {
		text = human.Brief(name, urlWidth) + ": " + text
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
		rows := human.NewTable("RESULT", "TASK", "STATE/1", "URL~12")
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
