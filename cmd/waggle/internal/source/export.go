package source

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newSourceExport(o *client.Options) *cobra.Command {
	request := &pb.ListSourcesRequest{WholeSpecs: true, PageSize: client.PageSize}
	var format string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write sources as 'source import' reads them",
		Long: `Write sources to standard output, by id, as 'source import' reads them. JSON lines
hold all of a source; CSV and OPML all but payloads, keys of seeds and what
holds the separators of their lists; a URL list nothing but the URLs of seeds.
What the format could not hold is told on standard error, with which source first
and how many it concerns. Status is not written: a source that is paused here is not paused
where the file is imported.`,
		Example: `  waggle source export --format csv > sources.csv
  waggle source export --format opml --prefix feeds. > feeds.opml`,
		Args: cli.Exactly(),
	}
	flags := cmd.Flags()
	flags.StringVar(&format, "format", string(sourcefile.JSONL), "`format` to write: csv, jsonl, opml or urls")
	flags.StringVar(&request.IdPrefix, "prefix", "", "only ids that begin with this `prefix`, as news.")
	flags.StringVar(&request.Pool, "pool", "", "only sources of this `pool`")
	cli.PairsVar(flags, &request.Labels, "label", "only sources with this label")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, _ []string) error {
		if !slices.Contains(sourcefile.WriteFormats(), sourcefile.Format(format)) {
			return cli.Usagef("--format %q: say csv, jsonl, opml or urls", format)
		}
		return export(ctx, c, request, sourcefile.Format(format))
	})
	return cmd
}

func export(ctx context.Context, c *client.Client, request *pb.ListSourcesRequest, format sourcefile.Format) error {
	out := bufio.NewWriter(c.Out)
	w, err := sourcefile.Create(out, format)
	if err != nil {
		return err
	}
	found, lost := 0, map[string][]string{} // ids by field
	for more := true; more; more = request.GetPageToken() != "" {
		reply, err := c.Sources.ListSources(ctx, request)
		if err != nil {
			return err
		}
		for _, source := range reply.GetSources() {
			found++
			fields, err := w.Write(source.GetSpec())
			if err != nil {
				return err
			}
			for _, field := range fields {
				lost[field] = append(lost[field], source.GetId())
			}
		}
		request.PageToken = reply.GetNextPageToken()
	}
	if err := errors.Join(w.Close(), out.Flush()); err != nil {
		return err
	}
	if found == 0 {
		c.Note("no sources match: nothing is exported")
	}
	for _, field := range slices.Sorted(maps.Keys(lost)) {
		sources := human.Named(len(lost[field]), "source", lost[field][0])
		if field == sourcefile.Everything {
			c.Note("%s left out: %s holds URLs, and they have none", sources, format)
		} else {
			c.Note("%s cannot hold all of %s, of %s", format, field, sources)
		}
	}
	return nil
}
