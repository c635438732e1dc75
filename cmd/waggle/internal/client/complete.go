package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// completeTimeout is how long a shell waits for what it may complete.
	completeTimeout = time.Second
	// completeMost ids are offered.
	completeMost = 100
)

// lister finds ids that begin with a text, and may find others.
type lister func(ctx context.Context, c *Client, prefix string) ([]string, error)

// listerOf finds what arguments and flags of a name take: it means the same in every command. Of tasks the leased ones are
// found, as of the others there are too many.
func listerOf(name string) lister {
	switch name {
	case "source", "prefix", "source-prefix":
		return func(ctx context.Context, c *Client, prefix string) ([]string, error) {
			return firstPage(ctx, c.Sources.ListSources, &pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: prefix}}, (*pb.ListSourcesResponse).GetSources, (*pb.Source).GetId)
		}
	case "queue", "suffix", "queue-suffix":
		return func(ctx context.Context, c *Client, _ string) ([]string, error) {
			return firstPage(ctx, c.Queues.ListQueues, &pb.ListQueuesRequest{}, (*pb.ListQueuesResponse).GetQueues, (*pb.Queue).GetName)
		}
	case "pool":
		return func(ctx context.Context, c *Client, _ string) ([]string, error) {
			return firstPage(ctx, c.Admin.ListPools, &pb.ListPoolsRequest{}, (*pb.ListPoolsResponse).GetPools, (*pb.Pool).GetName)
		}
	case "collector":
		return func(ctx context.Context, c *Client, _ string) ([]string, error) {
			id := func(k *pb.Collector) string { return k.GetInfo().GetId() }
			return firstPage(ctx, c.Admin.ListCollectors, &pb.ListCollectorsRequest{}, (*pb.ListCollectorsResponse).GetCollectors, id)
		}
	case "task":
		return func(ctx context.Context, c *Client, _ string) ([]string, error) {
			return firstPage(ctx, c.Admin.ListLeases, &pb.ListLeasesRequest{}, (*pb.ListLeasesResponse).GetLeases, (*pb.HeldLease).GetTaskId)
		}
	default:
		return nil
	}
}

func firstPage[Q proto.Message, P Page, T any](
	ctx context.Context, list func(context.Context, Q, ...grpc.CallOption) (P, error), request Q, items func(P) []T, id func(T) string,
) (ids []string, err error) {
	found, _, err := ReadPages(ctx, PageSize, list, request, items)
	for _, item := range found {
		ids = append(ids, id(item))
	}
	return ids, err
}

// Complete makes shells complete the flags of cmd and of the commands below it: with the few values that a flag takes, or
// with ids that the dispatcher knows.
func (o *Options) Complete(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		complete := o.offer(listerOf(f.Name))
		if choices := cli.Choices(f); choices != nil {
			complete = cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
		} else if listerOf(f.Name) == nil || cmd.GroupID == "run" {
			return
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // the tree of commands names a flag twice
		}
	})
	for _, sub := range cmd.Commands() {
		o.Complete(sub)
	}
}

// Offer completes the arguments of a command, or its only one: they name a source, queue, pool, collector or task.
func (o *Options) Offer(name string) cobra.CompletionFunc {
	offer := o.offer(listerOf(name))
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !strings.Contains(cmd.Use, "...") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return offer(cmd, args, prefix)
	}
}

// offer completes with what the dispatcher lists and no argument names yet. It offers nothing if none answers soon.
func (o *Options) offer(list lister) cobra.CompletionFunc {
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
		found, err := list(ctx, o.client(conn), prefix)
		if errors.Join(err, conn.Close()) != nil { // nobody reads why there is nothing
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found = slices.DeleteFunc(found, func(id string) bool { return !strings.HasPrefix(id, prefix) || slices.Contains(args, id) })
		return found[:min(len(found), completeMost)], cobra.ShellCompDirectiveNoFileComp
	}
}
