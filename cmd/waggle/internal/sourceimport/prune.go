package sourceimport

import (
	"context"
	"slices"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// prune deletes the sources that the file, all of which is done, does not have. What a file lacks because it could not be
// read, or because it is another one, stays.
func (j *job) prune(ctx context.Context) error {
	switch prefix := j.flags.prune.prefix; {
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
	if refused := j.flags.prune.bound.Refusal(len(ids)+deleted, all, "source", ids); refused != "" {
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
	sources, _, err := client.ReadPages(0, func(size int32, token string) (reply *pb.ListSourcesResponse, err error) {
		err = j.patiently(ctx, func() (err error) {
			reply, err = j.client.Sources.ListSources(ctx, &pb.ListSourcesRequest{IdPrefix: j.flags.prune.prefix, PageSize: size, PageToken: token})
			return err
		})
		return reply, err
	}, func(p *pb.ListSourcesResponse) []*pb.Source {
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
		if err := j.patiently(ctx, func() error {
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
