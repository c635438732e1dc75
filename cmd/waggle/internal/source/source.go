// Package source has the commands that register sources and steer them.
package source

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourceimport"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "source", Short: "Register, change and list sources"},
		newSourceCreate(o), newSourceGet(o), newSourceHistory(o), newSourceList(o), newSourceUpdate(o),
		newSourceDelete(o), newSourceTrigger(o),
		sourceimport.New(o), newSourceExport(o), newSourceWait(o),
	)
}

func newSourceGet(o *client.Options) *cobra.Command {
	return o.Look(&cobra.Command{
		Use:               "get ID",
		Short:             "Show a source with its status",
		Args:              cli.Exactly("the source's ID"),
		ValidArgsFunction: o.Offer("source"),
	}, func(ctx context.Context, c *client.Client, args []string) error {
		reply, err := c.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: args[0]})
		return c.Show(reply.GetSource(), err, func() { writeSource(c.Out, c.Now, reply.GetSource()) })
	})
}

func newSourceList(o *client.Options) *cobra.Command {
	request := &pb.ListSourcesRequest{Gates: true, Filter: &pb.Filter{}}
	filter := request.GetFilter()
	cmd := &cobra.Command{
		Use: "list", Short: "List sources",
		Long: `List sources: how their seeds do (HEALTH, and WHY it is not OK), how many of their tasks are in each state, and
how many links were not followed, and why (FILTERED): NO_RULE (the source follows only items of feeds), their DEPTH, HOST or URL
(INCLUDE, EXCLUDE). HEALTH is

  OK          no complaint
  LATE        a seed has been due for longer than its interval (1h without a schedule)
              and has not been fetched
  FAILING     the last attempts of a seed failed, since its last success
  BACKED_OFF  its seeds failed cycle after cycle, so the next cycle is delayed
  HELD        a hold stops it, or each of its seeds is canceled
  STUCK       a seed is due, and what keeps it does not end by itself
  EMPTY       the last two documents or more had no entries, or no bytes
  QUIET       it succeeds, and nothing was new for 5 of its usual gaps, 3 days and
              3 intervals, or for --quiet-after of it
  PAGES_FAIL  its seeds succeed, and most of the last pages failed, such as articles

NEW BY DAY draws the new entries of the last two weeks, today last: waggle source history shows more.`,
	}
	flags := cmd.Flags()
	client.FilterVars(flags, filter, "sources", "prefix", "pool", "label")
	cli.EnumsVar(flags, &request.Health, "health", "only this `health`", "SOURCE_HEALTH_", pb.SourceHealth_value)
	return o.List(cmd, func(ctx context.Context, c *client.Client, part client.Part) error {
		request.WholeSpecs = c.JSON
		reply, err := client.ReadPart(ctx, part, c.Sources.ListSources, request)
		return c.ShowList(part, reply, err, func() {
			none := "no sources; `waggle source create` makes one"
			if proto.Size(filter)+len(request.GetHealth()) > 0 {
				none = "no such sources"
			}
			writeSources(c.Out, c.Now, reply.GetSources(), none)
		})
	})
}

func newSourceExport(o *client.Options) *cobra.Command {
	request := &pb.ListSourcesRequest{WholeSpecs: true, Filter: &pb.Filter{}}
	filter := request.GetFilter()
	var format string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write sources as 'source import' reads them",
		Long: `Write sources to standard output, by id, as 'source import' reads them. JSON lines hold all of a source; CSV all
but payloads, keys of seeds and texts with the separators of their lists; OPML URLs, names and the label "category"; a URL list
only URLs. What the format cannot hold is reported on standard error, with the first source and how many there are. Status is
not written.`,
		Example: `  waggle source export --format csv > sources.csv
  waggle source export --format opml --prefix feeds. > feeds.opml`,
		Args: cli.Exactly(),
	}
	flags := cmd.Flags()
	var formats []string
	for _, f := range sourcefile.WriteFormats() {
		formats = append(formats, string(f))
	}
	cli.ChoiceVar(flags, &format, "format", "", string(sourcefile.JSONL), "`format` to write: "+strings.Join(formats, ", "), formats...)
	client.FilterVars(flags, filter, "sources", "prefix", "pool", "label")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, _ []string) error {
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
	if err := client.EachPage(ctx, c.Sources.ListSources, request, func(page *pb.ListSourcesResponse) (bool, error) {
		for _, source := range page.GetSources() {
			found++
			fields, err := w.Write(source.GetSpec())
			if err != nil {
				return false, err
			}
			for _, field := range fields {
				lost[field] = append(lost[field], source.GetId())
			}
		}
		return true, nil
	}); err != nil {
		return err
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
