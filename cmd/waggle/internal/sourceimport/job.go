package sourceimport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

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
	// maxApply specs and applyBytes of them go in one call, of which some are made at a time.
	maxApply   = 500
	applyBytes = 3 << 20
	callsAhead = 4
)

// job brings the entries of a file to a dispatcher. Nothing is kept of how far it came: an entry that is there already is
// UNCHANGED, so an import that failed is made again.
type job struct {
	client   *client.Client
	flags    *importFlags
	patience *client.Patience
	progress *human.Progress

	entries []*entry
	byID    map[string]*entry // the first of each id
	broken  error             // why the file could not be read further
	deleted []string
	prunes  bool // --prune did what it is for
	total   totals

	answered atomic.Int64 // entries
}

// take takes in the entries of the file.
func (j *job) take(entries []sourcefile.Entry) {
	for i := range entries {
		for _, m := range entries[i].Mended {
			j.total.Mended++
			j.total.mended.add("line %d: %s", m.Line, m.What)
		}
		if entries[i].Spec == nil && entries[i].Err == nil {
			continue
		}
		e := newEntry(&entries[i], j.flags.prefix)
		j.entries = append(j.entries, e)
		switch first := j.byID[e.id]; {
		case e.result != "":
		case first == nil:
			j.byID[e.id] = e
		default:
			first.merge(e)
		}
	}
}

// apply sends all that is to be sent.
func (j *job) apply(ctx context.Context) error {
	var batches [][]*entry
	size := applyBytes
	for _, e := range j.entries {
		if e.result != "" {
			continue
		}
		last := len(batches) - 1
		if size += proto.Size(e.spec); last < 0 || len(batches[last]) == maxApply || size > applyBytes {
			batches, size, last = append(batches, nil), proto.Size(e.spec), last+1
		}
		batches[last] = append(batches[last], e)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(callsAhead)
	for _, batch := range batches {
		group.Go(func() error { return j.call(ctx, batch, true) })
	}
	return group.Wait()
}

// call applies a batch. withFixed: with the scope and the rules that the import gives to new sources. A source that is there
// with others refuses them, and is applied again without.
func (j *job) call(ctx context.Context, batch []*entry, withFixed bool) error {
	request := &pb.ApplySourcesRequest{
		ValidateOnly: j.flags.dryRun, KeepAbsent: !j.flags.replace, By: j.flags.record.By, Reason: j.flags.record.Reason,
	}
	for _, e := range batch {
		request.Specs = append(request.Specs, j.flags.complete(e.spec, withFixed))
	}
	reply, err := patient(j.patience, j.client.Sources.ApplySources)(ctx, request)
	if err != nil {
		return err
	}
	if n := len(reply.GetResults()); n != len(batch) {
		return fmt.Errorf("the dispatcher answered %d of %d specs", n, len(batch))
	}
	var again []*entry
	for i, e := range batch {
		if e.take(reply.GetResults()[i]); withFixed && isFixed(e) {
			e.result = ""
			again = append(again, e)
		}
	}
	answered := j.answered.Add(int64(len(batch) - len(again)))
	j.progress.At("", answered, answered, int64(len(j.entries)))
	if len(again) == 0 {
		return nil
	}
	return j.call(ctx, again, false)
}

// patient is a call that is repeated while the dispatcher is away.
func patient[Q, R any](p *client.Patience, call func(context.Context, Q, ...grpc.CallOption) (R, error)) func(context.Context, Q, ...grpc.CallOption) (R, error) {
	return func(ctx context.Context, request Q, _ ...grpc.CallOption) (reply R, err error) {
		err = p.Call(ctx, func() (err error) {
			reply, err = call(ctx, request)
			return err
		})
		return reply, err
	}
}

// isFixed reports whether a source was refused for what the import gave it.
func isFixed(e *entry) bool {
	return e.refused() && e.spec.GetCanonicalRules() == 0 &&
		(strings.HasPrefix(e.message, "spec.canonical_rules") || e.spec.GetScope() == "" && strings.HasPrefix(e.message, "spec.scope"))
}

// prune deletes the sources that the file does not have. What a file lacks because it could not be read, or because it is
// another one, stays.
func (j *job) prune(ctx context.Context) error {
	inFile, made := 0, 0
	for id, e := range j.byID {
		if strings.HasPrefix(id, j.flags.prune) {
			inFile++
			if e.result == cli.ResultCreated && !j.flags.dryRun { // a dry run does not list them
				made++
			}
		}
	}
	switch refused := slices.ContainsFunc(j.entries, (*entry).refused); {
	case refused || j.broken != nil:
		j.client.Note("--prune deletes nothing, as not every entry was taken")
		return nil
	case inFile == 0:
		j.client.Note("--prune deletes nothing, as no id of the file begins with %s: is it the right one?", human.Plain(j.flags.prune))
		return nil
	}
	ids, there, err := j.absent(ctx)
	if err != nil {
		return err
	}
	// What the import has made does not count: a dry run before it decides the same.
	if refusal := j.flags.bound.Refusal(len(ids), max(there-made, len(ids)), "source", ids); refusal != "" {
		j.client.Note("%s", human.Plain(refusal))
		return nil
	}
	j.prunes = true
	if j.flags.dryRun {
		j.deleted = ids
		return nil
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
	list, request := patient(j.patience, j.client.Sources.ListSources), &pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: j.flags.prune}}
	err = client.EachPage(ctx, list, request, func(page *pb.ListSourcesResponse) (bool, error) {
		for _, source := range page.GetSources() {
			there++
			if j.byID[source.GetId()] == nil {
				ids = append(ids, source.GetId())
			}
		}
		return true, nil
	})
	return ids, there, err
}

// remove deletes sources.
func (j *job) remove(ctx context.Context, ids []string) error {
	calls := 0
	return j.patience.Call(ctx, func() error {
		calls++
		reply, err := j.client.Sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: ids, By: j.flags.record.By, Reason: j.flags.record.Reason})
		if err != nil {
			return err
		}
		for _, id := range ids {
			// Of a call that was repeated, the one before may have deleted them; else it was somebody else.
			if calls > 1 || !slices.Contains(reply.GetMissingIds(), id) {
				j.deleted = append(j.deleted, id)
			}
		}
		return nil
	})
}

// finish reports and counts what became of the entries, and shows it. err is why the import did not come to its end.
func (j *job) finish(in *cli.Input, report *cli.Report, err error) error {
	j.progress.Show()
	for _, e := range j.entries {
		if e.result == "" {
			continue
		}
		j.total.take(e, j.flags)
		if err := e.report(report); err != nil {
			return err
		}
	}
	for _, id := range j.deleted {
		if err := (&entry{id: id, result: cli.ResultDeleted}).report(report); err != nil {
			return err
		}
	}
	t := &j.total
	if t.Deleted = len(j.deleted); j.flags.dryRun {
		t.SampleIDs = j.deleted[:min(len(j.deleted), client.ShownResults)]
	}
	if j.broken != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w: %w", in.Path, cli.ErrBroken, j.broken))
	}
	reportName := human.Plain(cmp.Or(j.flags.report, "--report FILE"))
	t.details(j.client, reportName)
	if err != nil {
		next := "the same command again finishes it"
		if status.Code(cli.UnwrapStatus(err)) == codes.PermissionDenied {
			next = fmt.Sprintf("it was made under --prefix %q, with which new ids and scopes begin", j.flags.prefix)
		}
		j.client.Note("stopped after %s; %s", human.Plural(t.entries(), "source"), next)
		return err
	}
	if !j.client.JSON {
		t.write(j.client, j.flags, reportName)
	} else if err := client.WriteJSON(j.client.Out, t); err != nil {
		return err
	}
	if t.Refused > 0 || j.flags.prune != "" && !j.prunes {
		return cli.ErrReported
	}
	return nil
}
