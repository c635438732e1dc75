package client

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// PageSize of lists that are read page by page.
const PageSize = 500

// Page is a reply that holds part of a list.
type Page interface{ GetNextPageToken() string }

// ReadPages reads a list until it has limit items, or all of them when limit is 0. ask reads a page of at most size, and
// items gives what is wanted of one. more reports whether others follow.
func ReadPages[P Page, T any](limit int, ask func(size int32, token string) (P, error), items func(P) []T) (all []T, more bool, err error) {
	for token := ""; ; {
		size := PageSize
		if limit > 0 {
			size = min(size, limit-len(all))
		}
		reply, err := ask(int32(size), token)
		if err != nil {
			return all, false, err
		}
		all, token = append(all, items(reply)...), reply.GetNextPageToken()
		switch {
		case limit > 0 && len(all) > limit: // the page was larger than asked for
			return all[:limit], true, nil
		case token == "" || len(all) == limit && limit > 0:
			return all, token != "", nil
		}
	}
}

// HasAny reports whether a list has an item, and reads no more of it than that takes.
func HasAny[P Page, T any](ask func(size int32, token string) (P, error), items func(P) []T) (bool, error) {
	found, _, err := ReadPages(1, ask, items)
	return len(found) > 0, err
}

// List makes cmd one that lists at most --limit items. read gives the reply with all of them, reports whether more
// follow, and how people see it.
func (o *Options) List(cmd *cobra.Command, read func(ctx context.Context, c *Client, limit int) (reply proto.Message, more bool, people func(), err error)) *cobra.Command {
	cmd.Args = cli.Exactly()
	limit := cmd.Flags().Int("limit", 200, "`number` to list at most; 0: all")
	cmd.RunE = o.Call(func(ctx context.Context, c *Client, _ []string) error {
		if *limit < 0 {
			return cli.Usagef("--limit %d: say how many, or 0 for all", *limit)
		}
		reply, more, people, err := read(ctx, c, *limit)
		if err == nil && more {
			fmt.Fprintf(c.Err, "more follow after these %s; --limit 0 lists all\n", human.Count(*limit))
		}
		return c.Show(reply, err, people)
	})
	return cmd
}
