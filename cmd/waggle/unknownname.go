package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// noteHeld says where a queue that was held may not be the one that was meant.
func (c *client) noteHeld(cmd *cobra.Command, queue *pb.Queue) {
	if queue.GetMapsTo() == "" && queue.GetUnknown() {
		c.note("%s; the %s is kept for tasks that come", unknownQueue(queue.GetName()), cmd.Name())
	}
	c.noteMapped(cmd, queue)
}

// noteUnmatched says, where no task matches a filter, by which of its names nothing is
// known: one that is misspelled matches nothing either.
func (c *client) noteUnmatched(ctx context.Context, f *pb.Filter) error {
	if f.GetQueue() != "" {
		if err := c.noteEmptyQueue(ctx, f.GetQueue()); err != nil {
			return err
		}
	}
	if f.GetQueueSuffix() != "" {
		known, err := hasAny(func(size int32, token string) (*pb.ListQueuesResponse, error) {
			return c.queues.ListQueues(ctx, &pb.ListQueuesRequest{Suffix: f.GetQueueSuffix(), PageSize: size, PageToken: token})
		}, (*pb.ListQueuesResponse).GetQueues)
		if err != nil {
			return err
		}
		if !known {
			c.note("no queue %s, nor one below it, holds a task that waits or is leased", plain(f.GetQueueSuffix()))
		}
	}
	if err := c.noteNoSource(ctx, f); err != nil || f.GetCollectorId() == "" {
		return err
	}
	known, err := hasAny(func(size int32, token string) (*pb.ListCollectorsResponse, error) {
		return c.admin.ListCollectors(ctx, &pb.ListCollectorsRequest{PageSize: pageSize, PageToken: token})
	}, func(p *pb.ListCollectorsResponse) []*pb.Collector {
		return slices.DeleteFunc(p.GetCollectors(), func(k *pb.Collector) bool { return k.GetInfo().GetId() != f.GetCollectorId() })
	})
	if err == nil && !known {
		c.note("no collector %s has been heard of in the last 24 h", plain(f.GetCollectorId()))
	}
	return err
}

// noteEmptyQueue says of a queue without tasks that nothing is known of it, or where the
// tasks of its host are.
func (c *client) noteEmptyQueue(ctx context.Context, name string) error {
	reply, err := c.queues.GetQueue(ctx, &pb.GetQueueRequest{Name: name})
	if err != nil {
		return err
	}
	switch queue := reply.GetQueue(); {
	case queue.GetMapsTo() != "":
		c.note("new tasks of this host go to the queue %s, by a rule", plain(queue.GetMapsTo()))
	case queue.GetUnknown():
		c.note("%s", unknownQueue(name))
	}
	return nil
}

// noteNoSource says that there are no sources of which a filter wants tasks.
func (c *client) noteNoSource(ctx context.Context, f *pb.Filter) error {
	var wanted []string
	if f.GetSourceIdPrefix() != "" {
		wanted = append(wanted, "an id that begins with "+f.GetSourceIdPrefix())
	}
	if f.GetPool() != "" {
		wanted = append(wanted, "the pool "+f.GetPool())
	}
	if len(f.GetLabels()) > 0 {
		wanted = append(wanted, "the label "+pairs(f.GetLabels()))
	}
	if wanted == nil {
		return nil
	}
	known, err := hasAny(c.sourcesOf(ctx, f), (*pb.ListSourcesResponse).GetSources)
	if err == nil && !known {
		c.note("no source has %s", plain(strings.Join(wanted, " and ")))
	}
	return err
}

// sourcesOf reads the sources that a filter matches.
func (c *client) sourcesOf(ctx context.Context, f *pb.Filter) func(size int32, token string) (*pb.ListSourcesResponse, error) {
	return func(size int32, token string) (*pb.ListSourcesResponse, error) {
		return c.sources.ListSources(ctx, &pb.ListSourcesRequest{
			IdPrefix: f.GetSourceIdPrefix(), Pool: f.GetPool(), Labels: f.GetLabels(), PageSize: size, PageToken: token,
		})
	}
}
