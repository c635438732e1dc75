package client

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// completeTimeout is how long a shell waits for what it may complete.
	completeTimeout = time.Second
	// completeMost ids are offered.
	completeMost = 100
)

// Lister finds ids that begin with a text, and may find others.
type Lister func(ctx context.Context, c *Client, prefix string) ([]string, error)

// SourceIDs are the ids of sources.
func SourceIDs(ctx context.Context, c *Client, prefix string) ([]string, error) {
	sources, _, err := ReadPages(ctx, completeMost, c.Sources.ListSources, &pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: prefix}}, (*pb.ListSourcesResponse).GetSources)
	return names(sources, (*pb.Source).GetId), err
}

// QueueNames are the names of queues.
func QueueNames(ctx context.Context, c *Client, _ string) ([]string, error) {
	queues, _, err := ReadPages(ctx, PageSize, c.Queues.ListQueues, &pb.ListQueuesRequest{}, (*pb.ListQueuesResponse).GetQueues)
	return names(queues, (*pb.Queue).GetName), err
}

// PoolNames are the names of pools.
func PoolNames(ctx context.Context, c *Client, _ string) ([]string, error) {
	pools, _, err := ReadPages(ctx, PageSize, c.Admin.ListPools, &pb.ListPoolsRequest{}, (*pb.ListPoolsResponse).GetPools)
	return names(pools, (*pb.Pool).GetName), err
}

// CollectorIDs are the ids of collectors.
func CollectorIDs(ctx context.Context, c *Client, _ string) ([]string, error) {
	all, _, err := ReadPages(ctx, PageSize, c.Admin.ListCollectors, &pb.ListCollectorsRequest{}, (*pb.ListCollectorsResponse).GetCollectors)
	return names(all, func(k *pb.Collector) string { return k.GetInfo().GetId() }), err
}

// TaskIDs are the ids of leased tasks: of the others there are too many.
func TaskIDs(ctx context.Context, c *Client, _ string) ([]string, error) {
	leases, _, err := ReadPages(ctx, PageSize, c.Admin.ListLeases, &pb.ListLeasesRequest{}, (*pb.ListLeasesResponse).GetLeases)
	return names(leases, (*pb.HeldLease).GetTaskId), err
}

func names[T any](items []T, name func(T) string) (all []string) {
	for _, item := range items {
		all = append(all, name(item))
	}
	return all
}

// ofFlag finds the values of flags that mean the same in every command.
func ofFlag(name string) Lister {
	return map[string]Lister{
		"source": SourceIDs, "prefix": SourceIDs, "queue": QueueNames, "suffix": QueueNames, "pool": PoolNames, "collector": CollectorIDs,
	}[name]
}

// Complete makes shells complete the flags of cmd and of the commands below it: with the few values that a flag takes, or
// with ids that the dispatcher knows.
func (o *Options) Complete(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		var err error
		if choices := cli.Choices(f); choices != nil {
			err = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
		} else if list := ofFlag(f.Name); list != nil && cmd.GroupID != "run" {
			err = cmd.RegisterFlagCompletionFunc(f.Name, o.offer(list))
		}
		if err != nil {
			panic(err) // the tree of commands names a flag twice
		}
	})
	for _, sub := range cmd.Commands() {
		o.Complete(sub)
	}
}

// Offer completes the arguments of a command, or its only one, with what the dispatcher lists.
func (o *Options) Offer(list Lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !strings.Contains(cmd.Use, "...") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.offer(list)(cmd, args, prefix)
	}
}

// offer completes with what the dispatcher lists and no argument names yet. It offers nothing if none answers soon.
func (o *Options) offer(list Lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		if err := cmd.Root().PersistentPreRunE(cmd, nil); err != nil { // the environment sets flags
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		conn, err := o.dial()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer conn.Close()
		found, _ := list(ctx, o.client(conn), prefix) // nobody reads why there is nothing
		found = slices.DeleteFunc(found, func(id string) bool { return !strings.HasPrefix(id, prefix) || slices.Contains(args, id) })
		return found[:min(len(found), completeMost)], cobra.ShellCompDirectiveNoFileComp
	}
}
