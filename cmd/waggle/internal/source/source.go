// Package source has the commands that register sources and steer them.
package source

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourceimport"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "source", Short: "Register what is to be crawled, and steer it"},
		newSourceCreate(o), newSourceGet(o), newSourceList(o), newSourceUpdate(o),
		newSourceDelete(o), newSourcePause(o), newSourceResume(o), newSourceTrigger(o),
		sourceimport.New(o), newSourceExport(o), newSourceWait(o),
	)
}

func newSourceGet(o *client.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a source with its status",
		Args:  cli.Exactly("the source's ID"),
		RunE: o.Call(func(ctx context.Context, c *client.Client, args []string) error {
			reply, err := c.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: args[0]})
			return c.Show(reply.GetSource(), err, func() { writeSource(c.Out, c.Now, reply.GetSource()) })
		}),
	}
}

func newSourceList(o *client.Options) *cobra.Command {
	request := &pb.ListSourcesRequest{Gates: true}
	var health []string
	cmd := &cobra.Command{
		Use: "list", Short: "List sources",
		Long: `List sources: how their seeds do (HEALTH, and WHY it is not OK), how many of their
tasks are in each state, and how many links were not followed, and why (FILTERED): for
NO_RULE, as the source follows only items of feeds, for their DEPTH, HOST, or URL
(INCLUDE, EXCLUDE), or as a queue rule denies their queue (QUEUE_DENIED). HEALTH is

  OK          nothing to complain about
  LATE        a seed has been due for longer than its interval (without a schedule:
              1h) and has not been fetched
  FAILING     the last attempts of a seed failed, since its last success
  BACKED_OFF  its seeds failed cycle after cycle, so that the next is put off
  PAUSED      an operator paused it, or none of its seeds is crawled, as each is
              canceled or in a queue that a rule denies`,
	}
	flags := cmd.Flags()
	flags.StringVar(&request.IdPrefix, "prefix", "", "only ids that begin with this `prefix`, as news.")
	flags.StringVar(&request.Pool, "pool", "", "only sources of this `pool`")
	flags.StringSliceVar(&health, "health", nil, "only this `health`: ok, late, failing, backed_off, paused")
	cli.PairsVar(flags, &request.Labels, "label", "only sources with this label")
	return o.List(cmd, func(ctx context.Context, c *client.Client, limit int) (_ proto.Message, _ bool, _ func(), err error) {
		if request.Health, err = cli.Enums[pb.SourceHealth]("--health", health, "SOURCE_HEALTH_", pb.SourceHealth_value); err != nil {
			return nil, false, nil, err
		}
		all, more, err := client.ReadPages(limit, func(size int32, token string) (*pb.ListSourcesResponse, error) {
			request.PageSize, request.PageToken = size, token
			return c.Sources.ListSources(ctx, request)
		}, (*pb.ListSourcesResponse).GetSources)
		return &pb.ListSourcesResponse{Sources: all}, more, func() {
			none := "no sources; `waggle source create` makes one"
			if request.GetIdPrefix() != "" || request.GetPool() != "" || len(request.GetLabels())+len(request.GetHealth()) > 0 {
				none = "no such sources"
			}
			writeSources(c.Out, c.Now, all, none)
		}, err
	})
}
