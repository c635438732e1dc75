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
	case "source", "prefix":
		return func(ctx context.Context, c *Client, prefix string) ([]string, error) {
			page, err := c.Sources.ListSources(ctx, &pb.ListSourcesRequest{PageSize: PageSize, Filter: &pb.Filter{SourceIdPrefix: prefix}})
			return idsOf(page.GetSources(), (*pb.Source).GetId), err
		}
	case "queue", "suffix":
		return func(ctx context.Context, c *Client, _ string) ([]string, error) {
			page, err := c.Queues.ListQueues(ctx, &pb.ListQueuesRequest{PageSize: PageSize})
			return idsOf(page.GetQueues(), (*pb.Queue).GetName), err
		}
	case "pool":
		return func(ctx context.Context, c *Client, _ string) ([]string, error) {
			page, err := c.Admin.ListPools(ctx, &pb.ListPoolsRequest{PageSize: PageSize})
			return idsOf(page.GetPools(), (*pb.Pool).GetName), err
		}
	case "collector":
		return func(ctx context.Context, c *Client, _ string) ([]string, error) {
			page, err := c.Admin.ListCollectors(ctx, &pb.ListCollectorsRequest{PageSize: PageSize})
			return idsOf(page.GetCollectors(), func(k *pb.Collector) string { return k.GetInfo().GetId() }), err
		}
	case "task":
		return func(ctx context.Context, c *Client, _ string) ([]string, error) {
			page, err := c.Admin.ListLeases(ctx, &pb.ListLeasesRequest{PageSize: PageSize})
			return idsOf(page.GetLeases(), (*pb.HeldLease).GetTaskId), err
		}
	default:
		return nil
	}
}

func idsOf[T any](items []T, id func(T) string) (ids []string) {
	for _, item := range items {
		ids = append(ids, id(item))
	}
	return ids
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
	return func(cmd *cobra.Command, args []string, prefix string) (found []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		err := cmd.Root().PersistentPreRunE(cmd, nil)    // the environment sets flags
		if err == nil && o.connection.tokenFile != "-" { // standard input is the shell's
			var conn *grpc.ClientConn
			if conn, err = o.dial(cmd); err == nil {
				found, err = list(ctx, o.client(conn), prefix)
				err = errors.Join(err, conn.Close())
			}
		}
		if err != nil { // nobody reads why there is nothing
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found = slices.DeleteFunc(found, func(id string) bool { return !strings.HasPrefix(id, prefix) || slices.Contains(args, id) })
		return found[:min(len(found), completeMost)], cobra.ShellCompDirectiveNoFileComp
	}
}
