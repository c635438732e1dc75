package task

import (
	"context"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// noteUnmatched says, where no task matches a filter, by which of its names nothing is
// known: one that is misspelled matches nothing either.
func noteUnmatched(ctx context.Context, c *client.Client, f *pb.Filter) error {
	if f.GetQueue() != "" {
		if err := noteEmptyQueue(ctx, c, f.GetQueue()); err != nil {
			return err
		}
	}
	if f.GetQueueSuffix() != "" {
		known, err := client.HasAny(func(size int32, token string) (*pb.ListQueuesResponse, error) {
			return c.Queues.ListQueues(ctx, &pb.ListQueuesRequest{Suffix: f.GetQueueSuffix(), PageSize: size, PageToken: token})
		}, (*pb.ListQueuesResponse).GetQueues)
		if err != nil {
			return err
		}
		if !known {
			c.Note("no queue %s, nor one below it, holds a task that waits or is leased", human.Plain(f.GetQueueSuffix()))
		}
	}
	if err := noteNoSource(ctx, c, f); err != nil || f.GetCollectorId() == "" {
		return err
	}
	known, err := client.HasAny(func(size int32, token string) (*pb.ListCollectorsResponse, error) {
		return c.Admin.ListCollectors(ctx, &pb.ListCollectorsRequest{PageSize: client.PageSize, PageToken: token})
	}, func(p *pb.ListCollectorsResponse) []*pb.Collector {
		return slices.DeleteFunc(p.GetCollectors(), func(k *pb.Collector) bool { return k.GetInfo().GetId() != f.GetCollectorId() })
	})
	if err == nil && !known {
		c.Note("no collector %s has been heard of in the last 24 h", human.Plain(f.GetCollectorId()))
	}
	return err
}

// noteEmptyQueue says of a queue without tasks that nothing is known of it, or where the
// tasks of its host are.
func noteEmptyQueue(ctx context.Context, c *client.Client, name string) error {
	reply, err := c.Queues.GetQueue(ctx, &pb.GetQueueRequest{Name: name})
	if err != nil {
		return err
	}
	switch queue := reply.GetQueue(); {
	case queue.GetMapsTo() != "":
		c.Note("new tasks of this host go to the queue %s, by a rule", human.Plain(queue.GetMapsTo()))
	case queue.GetUnknown():
		c.Note("%s", describe.UnknownQueue(name))
	}
	return nil
}

// noteNoSource says that there are no sources of which a filter wants tasks.
func noteNoSource(ctx context.Context, c *client.Client, f *pb.Filter) error {
	var wanted []string
	if f.GetSourceIdPrefix() != "" {
		wanted = append(wanted, "an id that begins with "+f.GetSourceIdPrefix())
	}
	if f.GetPool() != "" {
		wanted = append(wanted, "the pool "+f.GetPool())
	}
	if len(f.GetLabels()) > 0 {
		wanted = append(wanted, "the label "+human.Pairs(f.GetLabels()))
	}
	if wanted == nil {
		return nil
	}
	known, err := client.HasAny(sourcesOf(ctx, c, f), (*pb.ListSourcesResponse).GetSources)
	if err == nil && !known {
		c.Note("no source has %s", human.Plain(strings.Join(wanted, " and ")))
	}
	return err
}

// sourcesOf reads the sources that a filter matches.
func sourcesOf(ctx context.Context, c *client.Client, f *pb.Filter) func(size int32, token string) (*pb.ListSourcesResponse, error) {
	return func(size int32, token string) (*pb.ListSourcesResponse, error) {
		return c.Sources.ListSources(ctx, &pb.ListSourcesRequest{
			IdPrefix: f.GetSourceIdPrefix(), Pool: f.GetPool(), Labels: f.GetLabels(), PageSize: size, PageToken: token,
		})
	}
}
