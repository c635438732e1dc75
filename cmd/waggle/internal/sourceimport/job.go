package sourceimport

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// maxApply specs and applyBytes of them go in one call.
	maxApply   = 500
	applyBytes = 3 << 20
)

// importJob brings the entries of a file to a dispatcher: one goroutine reads
// and packs them, some call, and the last takes what came of them
// (sourceimportsettle.go) in the order of the file, so that at each moment a beginning of the file is done.
type importJob struct {
	client   *client.Client
	flags    *importFlags
	in       *cli.Input
	format   sourcefile.Format
	entries  sourcefile.Reader
	state    *importState
	report   *cli.Report
	progress *importProgress

	// known are the ids that came by, as hashes: some 40 bytes an entry.
	known map[uint64]knownID
	pages seenPages
	shown int // of what is told of entry by entry

	// pruned is what --prune deletes, once the file is read.
	pruned pruneScope
}

// knownID is where an id came by, and a hash of its spec.
type knownID struct {
	line int
	spec uint64
}

// importItem is an entry on its way, and what became of it.
type importItem struct {
	line    int
	id      string
	result  string // as the report has it
	err     string
	changed []string // the fields of a source that were updated
	lost    []string // those of them that lose what they had
	warned  []string // what the dispatcher doubts
	twin    string   // of another source before it, which crawls one of its pages
	once    bool     // it has no schedule
	idle    bool     // it has no seeds and no schedule; of one that has a schedule the dispatcher warns
	pending bool     // it is among the specs of its batch
	again   bool     // a call for it, which was not answered, may have been taken
}

// importBatch is what one call takes, with the entries in between that none
// needs to be made for.
type importBatch struct {
	items   []importItem
	specs   []*pb.SourceSpec
	bytes   int
	unheard bool // a call for it was not answered, and may have done it
	// end is why the file cannot be read further, with the last batch.
	end  error
	done chan error // has the answer of the call
}

func (j *importJob) run(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	// What is under way, in order; its size bounds what is in memory.
	order := make(chan *importBatch, 2*j.flags.parallel)
	calls := make(chan *importBatch)
	group.Go(func() error {
		defer close(calls)
		defer close(order)
		return j.read(groupCtx, order, calls)
	})
	for range j.flags.parallel {
		group.Go(func() error {
			for batch := range calls {
				batch.done <- j.apply(groupCtx, batch)
			}
			return nil
		})
	}
	group.Go(func() error { return j.settle(groupCtx, order) })
	err := group.Wait()
	if err == nil {
		err = j.prune(ctx)
	}
	j.progress.screen.Show()
	if err != nil {
		return j.stopped(err)
	}
	if err := j.state.remove(); err != nil {
		return err
	}
	if j.state.Total.entries() == 0 && j.flags.prune.prefix == "" {
		return j.in.ErrNothing()
	}
	if err := j.showTotal(); err != nil {
		return err
	}
	if j.progress.screen.Live {
		fmt.Fprintf(j.client.Err, "%s in %s\n", j.format, human.Span(time.Since(j.progress.began)))
	}
	if j.state.Total.Refused > 0 {
		return j.refused()
	}
	return j.pruned.failed
}

// stopped ends an import that err has interrupted, and says how far it came.
func (j *importJob) stopped(err error) error {
	err = errors.Join(err, j.save())
	atLeast := "at least " // of a call that failed some may be done
	if errors.Is(err, cli.ErrBroken) {
		atLeast = ""
	}
	deleted := ""
	if n := j.state.Total.Deleted; n > 0 {
		deleted = ", and " + human.Count(n) + " deleted"
	}
	fmt.Fprintf(j.client.Err, "waggle: stopped after %s%s%s%s\n", atLeast, human.Plural(j.state.Done, "source"), deleted, j.resumeAdvice(err))
	return err
}

// refused ends an import of which some entries were not taken.
func (j *importJob) refused() error {
	if more := j.state.Total.Refused - j.shown; more > 0 && j.flags.report == "" {
		fmt.Fprintf(j.client.Err, "waggle: and %s more; --report FILE has all of them\n", human.Count(more))
	}
	return cli.ErrReported
}

func (j *importJob) resumeAdvice(err error) string {
	switch {
	case errors.Is(err, cli.ErrBroken) && j.flags.resume != "":
		return "; mend the file, remove " + j.flags.resume + " and begin anew: what is there already answers UNCHANGED"
	case errors.Is(err, cli.ErrBroken):
		return "; mend the file, and the same command again finishes it: what is there already answers UNCHANGED"
	case j.flags.resume == "":
		return "; the same command again finishes it"
	}
	return "; the same command again goes on from there"
}

// read packs entries into batches and sends each to be called, and to settle in
// its turn.
func (j *importJob) read(ctx context.Context, order, calls chan<- *importBatch) error {
	for number := 0; ; {
		batch := &importBatch{done: make(chan error, 1)}
		for len(batch.specs) < maxApply && batch.bytes < applyBytes && len(batch.items) < 4*maxApply && batch.end == nil {
			entry, err := j.entries.Next()
			if err != nil {
				batch.end = err
				break
			}
			number++
			j.add(batch, entry, number <= j.state.skip)
		}
		select {
		case order <- batch:
		case <-ctx.Done():
			return ctx.Err()
		}
		if len(batch.specs) == 0 {
			batch.done <- nil
		} else {
			select {
			case calls <- batch:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if batch.end != nil {
			return nil
		}
	}
}

// add takes an entry into a batch; done entries only make their ids known.
func (j *importJob) add(batch *importBatch, entry sourcefile.Entry, done bool) {
	item := importItem{line: entry.Line}
	err := entry.Err
	spec, completeErr := j.flags.complete(entry.Spec)
	if err == nil {
		err = completeErr
	}
	item.id = spec.GetId()
	if err == nil {
		err = j.meet(&item, spec)
		j.pruned.meet(item.id, j.flags.prune.prefix)
	}
	if done {
		return
	}
	switch {
	case err != nil:
		item.result, item.err = cli.ResultInvalid, err.Error()
	case item.result == "":
		item.pending = true
		item.twin = j.pages.meet(item.line, spec)
		seedless, unscheduled := len(spec.GetSeeds()) == 0, spec.GetSchedule().GetRule() == nil
		item.idle, item.once = seedless && unscheduled, unscheduled && !seedless
		batch.specs, batch.bytes = append(batch.specs, spec), batch.bytes+proto.Size(spec)
	}
	batch.items = append(batch.items, item)
}

// meet notes an id. One that came by before is a duplicate when its spec is the
// same, and wrong when it is another.
func (j *importJob) meet(item *importItem, spec *pb.SourceSpec) error {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		return fmt.Errorf("cannot be sent: %w", err)
	}
	id, is := hash64([]byte(item.id)), knownID{line: item.line, spec: hash64(text)}
	before, met := j.known[id]
	switch {
	case !met:
		j.known[id] = is
		return nil
	case before.spec != is.spec:
		return fmt.Errorf("line %d has the same id, and says something else", before.line)
	}
	item.result, item.err = cli.ResultDuplicate, fmt.Sprintf("the same as line %d", before.line)
	return nil
}

func hash64(text []byte) uint64 {
	h := fnv.New64a()
	h.Write(text)
	return h.Sum64()
}

// apply makes the call of a batch: it can be repeated without harm.
func (j *importJob) apply(ctx context.Context, batch *importBatch) error {
	request := &pb.ApplySourcesRequest{
		Specs: batch.specs, ValidateOnly: j.flags.dryRun, KeepAbsent: !j.flags.replace,
		By: j.flags.record.By, Reason: j.flags.record.Reason,
	}
	var reply *pb.ApplySourcesResponse
	if err := j.patiently(ctx, func() (err error) {
		reply, err = j.client.Sources.ApplySources(ctx, request)
		batch.unheard = batch.unheard || err != nil && status.Code(err) != codes.ResourceExhausted // which is before anything
		return err
	}); err != nil {
		return err
	}
	return batch.answer(reply.GetResults())
}

// patiently makes a call, again while it may still be taken.
func (j *importJob) patiently(ctx context.Context, call func() error) error {
	err := client.Patiently(ctx, client.RestartPatience, call, j.progress.unanswered)
	if err == nil {
		j.progress.answered()
	}
	return err
}
