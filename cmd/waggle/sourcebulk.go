package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newSourceDelete(o *clientOptions) *cobra.Command {
	return changeSources(o, "deleted", &cobra.Command{
		Use:     "delete ID...",
		Short:   "Delete sources; their tasks end CANCELED",
		Example: "  waggle source delete news.example\n  waggle source delete --prefix test. --dry-run",
	}, func(ctx context.Context, c *client, b *bulk) (sourcesReply, error) {
		return c.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{
			Ids: b.ids, Filter: b.filter, ValidateOnly: b.dryRun, PageToken: b.token, By: b.by, Reason: b.reason,
		})
	})
}

func newSourcePause(o *clientOptions) *cobra.Command {
	var until *timestamppb.Timestamp
	cmd := changeSources(o, "paused", &cobra.Command{
		Use:     "pause ID...",
		Short:   "Hand out none of the sources' tasks; leases that stand go on",
		Example: "  waggle source pause news.example --until 2h --reason 'site moves'",
	}, func(ctx context.Context, c *client, b *bulk) (sourcesReply, error) {
		reply, err := c.sources.PauseSources(ctx, &pb.PauseSourcesRequest{
			Ids: b.ids, Filter: b.filter, ValidateOnly: b.dryRun, PageToken: b.token, By: b.by, Reason: b.reason, Until: until,
		})
		for _, pause := range reply.GetReplaced() {
			c.noteReplaced("source "+pause.GetSourceId(), pause.GetGate(), b.dryRun)
		}
		return reply, err
	})
	timeVar(cmd.Flags(), &until, "until", "resume by itself")
	return cmd
}

func newSourceResume(o *clientOptions) *cobra.Command {
	return changeSources(o, "resumed", &cobra.Command{
		Use:   "resume ID...",
		Short: "Hand out tasks of paused sources again",
	}, func(ctx context.Context, c *client, b *bulk) (sourcesReply, error) {
		return c.sources.ResumeSources(ctx, &pb.ResumeSourcesRequest{
			Ids: b.ids, Filter: b.filter, ValidateOnly: b.dryRun, PageToken: b.token, By: b.by, Reason: b.reason,
		})
	})
}

// sourcesReply is what all bulk calls on sources answer.
type sourcesReply interface {
	proto.Message
	GetMatched() int32
	GetChanged() int32
	GetNextPageToken() string
	GetMissingIds() []string
	GetSampleIds() []string
}

// changeSources completes a command that acts on sources, by their ids or by flags, in as many calls as that needs, and
// shows what was done (did is a past participle). Ids that do not exist make it fail, though the others are done.
func changeSources(o *clientOptions, did string, cmd *cobra.Command,
	call func(ctx context.Context, c *client, b *bulk) (sourcesReply, error),
) *cobra.Command {
	var b bulk
	var filter pb.Filter
	flags := cmd.Flags()
	flags.StringVar(&filter.SourceIdPrefix, "prefix", "", "sources whose id begins with this `prefix`, as news.")
	flags.StringVar(&filter.Pool, "pool", "", "sources of this `pool`")
	pairsVar(flags, &filter.Labels, "label", "sources with this label")
	flags.BoolVar(&filter.All, "all", false, "all sources")
	b.register(cmd, o.console, "ids")
	cmd.RunE = o.call(func(ctx context.Context, c *client, ids []string) error {
		chosen := &filter
		switch given := filter.GetSourceIdPrefix() != "" || filter.GetPool() != "" || len(filter.GetLabels()) > 0 || filter.GetAll(); {
		case given && len(ids) > 0:
			return usagef("say ids, or --prefix, --pool, --label or --all, not both")
		case !given && len(ids) == 0:
			return usagef("which sources? say ids, or --prefix, --pool, --label or --all")
		case !given:
			chosen = nil
		}
		var total sourcesReply
		err := b.run(ids, chosen, func() (string, error) {
			reply, err := call(ctx, c, &b)
			if err != nil {
				return "", err
			}
			if total == nil {
				total = reply.ProtoReflect().New().Interface().(sourcesReply)
			}
			addReply(total, reply)
			return reply.GetNextPageToken(), nil
		})
		if err != nil {
			if total != nil && total.GetChanged() > 0 && !b.dryRun {
				c.note("stopped after %s %s; the same command again does the rest", plural(total.GetChanged(), "source"), did)
			}
			return err
		}
		if err := c.show(total, nil, func() {
			writeChanged(c.out, did, b.dryRun, total)
			if trigger, is := total.(*pb.TriggerSourcesResponse); is {
				c.writeTriggered(ctx, ids, &filter, b.dryRun, trigger)
			}
		}); err != nil {
			return err
		}
		for _, id := range total.GetMissingIds() {
			c.note("source not found: %s", plain(id))
			err = errReported
		}
		return err
	})
	return cmd
}

func writeChanged(out io.Writer, did string, dryRun bool, total sourcesReply) {
	if dryRun {
		did = "would be " + did
	}
	text := plural(total.GetChanged(), "source") + " " + did
	if total.GetMatched() == 0 && len(total.GetMissingIds()) == 0 {
		text = "no sources match"
	}
	switch rest := total.GetMatched() - total.GetChanged(); {
	case rest == 0:
	case dryRun:
		text += "; " + count(rest) + " would stay as now"
	case rest == 1:
		text += "; 1 as it was"
	default:
		text += "; " + count(rest) + " as they were"
	}
	writeSample(out, text, total.GetSampleIds(), int(total.GetChanged()))
}
