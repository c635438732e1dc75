package sourceimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
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

// job brings the entries of a file to a dispatcher: one goroutine reads and packs them, some call, and the last settles what
// came of them in the order of the file, so that at each moment a beginning of the file is done.
type job struct {
	client   *client.Client
	flags    *importFlags
	in       *cli.Input
	format   sourcefile.Format
	entries  sourcefile.Reader
	state    *state
	report   *cli.Report
	progress *progress
	patience *client.Patience
	seen     *seen
	shown    int // refused entries that were shown

	inScope  int  // entries that --prune is about
	unpruned bool // --prune could not delete any, and has noted why
}

func (j *job) run(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	// What is under way, in order; its size bounds what is in memory.
	order := make(chan *batch, 2*j.flags.parallel)
	calls := make(chan *batch)
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
	t := &j.state.Total
	if t.entries() == 0 && j.flags.prune == "" {
		return j.in.ErrNothing()
	}
	if !j.client.JSON {
		t.write(j.client, j.flags)
	} else if err := client.WriteJSON(j.client.Out, t); err != nil {
		return err
	}
	if j.progress.screen.Live {
		fmt.Fprintf(j.client.Err, "%s in %s\n", j.format, human.Span(time.Since(j.progress.began)))
	}
	if more := t.Refused - j.shown; more > 0 && j.flags.report == "" {
		fmt.Fprintf(j.client.Err, "waggle: and %s more; --report FILE has all of them\n", human.Count(more))
	}
	if t.Refused > 0 || j.unpruned {
		return cli.ErrReported
	}
	return nil
}

// stopped ends an import that err has interrupted, and says how far it came.
func (j *job) stopped(err error) error {
	err = errors.Join(err, j.save())
	broken := errors.Is(err, cli.ErrBroken)
	atLeast, deleted, advice := "at least ", "", "the same command again goes on from there" // of a call that failed some may be done
	if n := j.state.Total.Deleted; n > 0 {
		deleted = ", and " + human.Count(n) + " deleted"
	}
	if broken {
		atLeast = ""
	}
	switch {
	case broken && j.flags.resume != "":
		advice = "mend the file, remove " + j.flags.resume + " and begin anew: what is there already answers UNCHANGED"
	case broken:
		advice = "mend the file, and the same command again finishes it: what is there already answers UNCHANGED"
	case j.flags.resume == "":
		advice = "the same command again finishes it"
	}
	fmt.Fprintf(j.client.Err, "waggle: stopped after %s%s%s; %s\n", atLeast, human.Plural(j.state.Done, "source"), deleted, advice)
	return err
}

// read packs entries into batches and sends each to be called, and to settle in its turn.
func (j *job) read(ctx context.Context, order, calls chan<- *batch) error {
	for number := 0; ; {
		b := &batch{done: make(chan error, 1)}
		for len(b.specs) < maxApply && b.bytes < applyBytes && len(b.items) < 4*maxApply {
			entry, err := j.entries.Next()
			if err != nil {
				b.end = err
				break
			}
			number++
			j.add(b, entry, number <= j.state.skip)
		}
		to := calls
		if len(b.specs) == 0 {
			b.done <- nil
			to = nil
		}
		for _, queue := range []chan<- *batch{order, to} {
			if queue == nil {
				continue
			}
			select {
			case queue <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if b.end != nil {
			return nil
		}
	}
}

// add takes an entry into a batch; done entries only make their ids known.
func (j *job) add(b *batch, entry sourcefile.Entry, done bool) {
	spec, err := j.flags.complete(entry.Spec)
	if entry.Err != nil {
		err = entry.Err
	}
	it := item{line: entry.Line, id: spec.GetId()}
	before := 0
	if err == nil {
		before, err = j.seen.add(it.line, spec)
		if strings.HasPrefix(it.id, j.flags.prune) {
			j.inScope++
		}
	}
	if done {
		return
	}
	switch {
	case err != nil:
		it.result, it.err = cli.ResultInvalid, err.Error()
	case before > 0:
		it.result, it.err = cli.ResultDuplicate, fmt.Sprintf("the same as line %d", before)
	default:
		it.pending = true
		it.twin = j.seen.twin(it.line, spec)
		seedless, unscheduled := len(spec.GetSeeds()) == 0, spec.GetSchedule().GetRule() == nil
		it.idle, it.once = seedless && unscheduled, unscheduled && !seedless
		b.specs, b.bytes = append(b.specs, spec), b.bytes+proto.Size(spec)
	}
	b.items = append(b.items, it)
}

// apply makes the call of a batch: it can be repeated without harm.
func (j *job) apply(ctx context.Context, b *batch) error {
	request := &pb.ApplySourcesRequest{
		Specs: b.specs, ValidateOnly: j.flags.dryRun, KeepAbsent: !j.flags.replace,
		By: j.flags.record.By, Reason: j.flags.record.Reason,
	}
	var reply *pb.ApplySourcesResponse
	if err := j.patience.Call(ctx, func() (err error) {
		reply, err = j.client.Sources.ApplySources(ctx, request)
		b.unheard = b.unheard || err != nil && status.Code(err) != codes.ResourceExhausted // which is before anything
		return err
	}); err != nil {
		return err
	}
	return b.answer(reply.GetResults())
}

// settle takes the batches in the order of the file.
func (j *job) settle(ctx context.Context, order <-chan *batch) error {
	for b := range order {
		if err := b.wait(ctx); err != nil {
			return err
		}
		for i := range b.items {
			if err := j.take(&b.items[i]); err != nil {
				return err
			}
		}
		if j.state.path != "" && time.Since(j.state.saved) >= saveEvery {
			if err := j.save(); err != nil {
				return err
			}
		}
		j.progress.show(&j.state.Total)
		switch {
		case b.end == nil || errors.Is(b.end, io.EOF):
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			return fmt.Errorf("%s: %w: %w", j.in.Path, cli.ErrBroken, b.end)
		}
	}
	return nil
}

// take counts an entry and reports it.
func (j *job) take(it *item) error {
	t := &j.state.Total
	refused, twins := t.Refused, t.Twins
	t.take(it, j.flags)
	if t.Refused > refused && j.shown < cli.ShownRefusals {
		j.shown++
		j.progress.note("line %d: %s", it.line, strings.TrimPrefix(it.id+": "+it.err, ": "))
	}
	if t.Twins > twins && t.Twins <= shownTwins {
		j.progress.note("line %d: %s: %s", it.line, it.id, it.twin)
	}
	if it.result == cli.ResultCreated && !j.flags.dryRun && strings.HasPrefix(it.id, j.flags.prune) {
		j.state.CreatedInScope++ // a dry run does not list them
	}
	if err := it.report(j.report); err != nil {
		return err // not done before it is reported
	}
	j.state.Done++
	return nil
}

// save keeps how far the import came, once the report has as much.
func (j *job) save() (err error) {
	if j.state.path == "" {
		return nil
	}
	if j.state.Report, err = j.report.Sync(); err != nil {
		return err
	}
	return j.state.save()
}

// prune deletes the sources that the file, all of which is done, does not have. What a file lacks because it could not be
// read, or because it is another one, stays.
func (j *job) prune(ctx context.Context) error {
	switch prefix := j.flags.prune; {
	case prefix == "":
		return nil
	case j.state.Total.Refused > 0:
		j.progress.note("--prune deletes nothing, as not every entry was taken")
		return nil
	case j.inScope == 0:
		j.progress.note("--prune deletes nothing, as no id of the file begins with %s: is it the right one?", prefix)
		j.unpruned = true
		return nil
	}
	ids, there, err := j.absent(ctx)
	if err != nil {
		return err
	}
	// What an interrupted prune has deleted counts, and what the import has made does not: a dry run before it, and a run
	// that goes on, decide the same.
	deleted := j.state.Total.Deleted
	all := max(there-j.state.CreatedInScope, len(ids)) + deleted
	if refused := j.flags.bound.Refusal(len(ids)+deleted, all, "source", ids); refused != "" {
		j.progress.note("%s", refused)
		j.unpruned = true
		return nil
	}
	if j.flags.dryRun {
		j.state.Total.SampleIDs = ids[:min(len(ids), client.ShownResults)]
	}
	for some := range slices.Chunk(ids, client.MaxBulk) {
		if err := j.remove(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// absent lists the sources that the file does not have, by id; there are so many with those that it has.
func (j *job) absent(ctx context.Context) (ids []string, there int, err error) {
	list := func(ctx context.Context, request *pb.ListSourcesRequest, _ ...grpc.CallOption) (reply *pb.ListSourcesResponse, err error) {
		err = j.patience.Call(ctx, func() (err error) {
			reply, err = j.client.Sources.ListSources(ctx, request)
			return err
		})
		return reply, err
	}
	sources, _, err := client.ReadPages(ctx, 0, list, &pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: j.flags.prune}}, func(p *pb.ListSourcesResponse) []*pb.Source {
		there += len(p.GetSources())
		return slices.DeleteFunc(p.GetSources(), func(s *pb.Source) bool { return j.seen.has(s.GetId()) })
	})
	for _, source := range sources {
		ids = append(ids, source.GetId())
	}
	return ids, there, err
}

// remove deletes sources, or counts them in a dry run, and reports each.
func (j *job) remove(ctx context.Context, ids []string) error {
	deleted, calls := len(ids), 0
	var gone []string // somebody else deleted them
	if !j.flags.dryRun {
		if err := j.patience.Call(ctx, func() error {
			calls++
			reply, err := j.client.Sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: ids, By: j.flags.record.By, Reason: j.flags.record.Reason})
			if deleted = int(reply.GetChanged()); calls > 1 {
				// The call whose answer was lost may have deleted them.
				deleted += len(reply.GetMissingIds())
			} else {
				gone = reply.GetMissingIds()
			}
			return err
		}); err != nil {
			return err
		}
	}
	j.state.Total.Deleted += deleted
	for _, id := range ids {
		if slices.Contains(gone, id) {
			continue
		}
		if err := (&item{id: id, result: cli.ResultDeleted}).report(j.report); err != nil {
			return err
		}
	}
	return j.save()
}
