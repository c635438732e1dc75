package sourceimport

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// pruneFlags are which sources an import deletes when its file does not have them.
type pruneFlags struct {
	prefix string // empty: none
	yes    bool
	bound  cli.PruneBound
}

func (p *pruneFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&p.prefix, "prune", "", "delete the sources whose id begins with this `prefix`, as news., and which the file does not have")
	flags.BoolVar(&p.yes, "yes", false, "delete what --prune finds, without ids being named one by one")
	p.bound.Register(flags)
}

// check wants a prefix that ends where a part of an id ends: one letter too few would
// reach for other people's sources, and none for all there are.
func (p *pruneFlags) check(given, dryRun bool) error {
	switch {
	case !given && p.bound.Given:
		return cli.Usagef("--prune-max is the bound of --prune, which is missing")
	case !given:
		return nil
	case len(p.prefix) < 2 || !strings.ContainsRune("._-", rune(p.prefix[len(p.prefix)-1])):
		return cli.Usagef("--prune %q: say how the ids begin, up to a dot, _ or -, as news.", p.prefix)
	case !p.yes && !dryRun:
		return cli.Usagef("--prune deletes whatever the file does not have: look with --dry-run, then say --yes")
	}
	return nil
}

// pruneScope is what an import knows of the sources that --prune is about.
type pruneScope struct {
	inFile int   // entries with such an id
	failed error // why it could not delete any, told already
}

// meet notes an id of the file.
func (p *pruneScope) meet(id, prefix string) {
	if strings.HasPrefix(id, prefix) {
		p.inFile++
	}
}

// prune deletes the sources that the file, all of which is done, does not have. What a
// file lacks because it could not be read, or because it is another one, stays.
func (j *importJob) prune(ctx context.Context) error {
	switch prefix := j.flags.prune.prefix; {
	case prefix == "":
		return nil
	case j.state.Total.Refused > 0:
		j.progress.note("--prune deletes nothing, as not every entry was taken")
		return nil
	case j.pruned.inFile == 0:
		j.progress.note("--prune deletes nothing, as no id of the file begins with %s: is it the right one?", prefix)
		j.pruned.failed = cli.ErrReported
		return nil
	}
	ids, there, err := j.absent(ctx)
	if err != nil {
		return err
	}
	if refused := j.tooMany(ids, there); refused != "" {
		j.progress.note("%s", refused)
		j.pruned.failed = cli.ErrReported
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

// tooMany says why the sources with ids, of all that there are now, are too many to
// delete. What an interrupted prune has deleted counts, and what the import has made
// does not: a dry run before it, and a run that goes on, decide the same.
func (j *importJob) tooMany(ids []string, there int) string {
	p, deleted := &j.flags.prune, j.state.Total.Deleted
	all := max(there-j.state.CreatedInScope, len(ids)) + deleted
	return p.bound.Refusal(len(ids)+deleted, all, "source", ids)
}

// absent lists the sources that the file does not have, by id, and says how many there
// are with it.
func (j *importJob) absent(ctx context.Context) (ids []string, there int, err error) {
	sources, _, err := client.ReadPages(0, func(size int32, token string) (reply *pb.ListSourcesResponse, err error) {
		err = j.patiently(ctx, func() (err error) {
			reply, err = j.client.Sources.ListSources(ctx, &pb.ListSourcesRequest{IdPrefix: j.flags.prune.prefix, PageSize: size, PageToken: token})
			return err
		})
		return reply, err
	}, func(p *pb.ListSourcesResponse) []*pb.Source {
		there += len(p.GetSources())
		return slices.DeleteFunc(p.GetSources(), func(s *pb.Source) bool {
			_, has := j.known[hash64([]byte(s.GetId()))]
			return has
		})
	})
	for _, source := range sources {
		ids = append(ids, source.GetId())
	}
	return ids, there, err
}

// remove deletes sources, or counts them in a dry run, and reports each.
func (j *importJob) remove(ctx context.Context, ids []string) error {
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
		if err := (&importItem{id: id, result: cli.ResultDeleted}).report(j.report); err != nil {
			return err
		}
	}
	return j.save()
}

// deletedText is what the summary says of them.
func (j *importJob) deletedText() string {
	if j.flags.prune.prefix == "" {
		return ""
	}
	return ", " + human.Count(j.state.Total.Deleted) + " deleted"
}
