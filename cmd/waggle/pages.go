package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// pageSize of lists that are read page by page.
const pageSize = 500

// page is a reply that holds part of a list.
type page interface{ GetNextPageToken() string }

// readPages reads a list until it has limit items, or all of them when limit is 0. ask reads a page of at most size, and
// items gives what is wanted of one. more reports whether others follow.
func readPages[P page, T any](limit int, ask func(size int32, token string) (P, error), items func(P) []T) (all []T, more bool, err error) {
	for token := ""; ; {
		size := pageSize
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

// hasAny reports whether a list has an item, and reads no more of it than that takes.
func hasAny[P page, T any](ask func(size int32, token string) (P, error), items func(P) []T) (bool, error) {
	found, _, err := readPages(1, ask, items)
	return len(found) > 0, err
}

// list makes cmd one that lists at most --limit items. read gives the reply with all of them, reports whether more
// follow, and how people see it.
func (o *clientOptions) list(cmd *cobra.Command, read func(ctx context.Context, c *client, limit int) (reply proto.Message, more bool, people func(), err error)) *cobra.Command {
	cmd.Args = exactly()
	limit := cmd.Flags().Int("limit", 200, "`number` to list at most; 0: all")
	cmd.RunE = o.call(func(ctx context.Context, c *client, _ []string) error {
		if *limit < 0 {
			return usagef("--limit %d: say how many, or 0 for all", *limit)
		}
		reply, more, people, err := read(ctx, c, *limit)
		if err == nil && more {
			fmt.Fprintf(c.err, "more follow after these %s; --limit 0 lists all\n", count(*limit))
		}
		return c.show(reply, err, people)
	})
	return cmd
}
