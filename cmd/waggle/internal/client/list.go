package client

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// PageSize of lists that are read page by page.
const PageSize = 500

// Page is a reply that holds part of a list.
type Page interface {
	// GetNextPageToken is empty in the last one.
	GetNextPageToken() string
}

// EachPage reads a list page by page, each of PageSize unless the request has another size, while take wants more.
func EachPage[Q proto.Message, P Page](
	ctx context.Context, list func(context.Context, Q, ...grpc.CallOption) (P, error), request Q, take func(P) (more bool, err error),
) error {
	request = proto.CloneOf(request) // it may be read again, from its first page
	setPageSize(request, PageSize)
	fields := request.ProtoReflect()
	for {
		reply, err := list(ctx, request)
		if err != nil {
			return err
		}
		if more, err := take(reply); err != nil || !more || reply.GetNextPageToken() == "" {
			return err
		}
		fields.Set(fields.Descriptor().Fields().ByName("page_token"), protoreflect.ValueOfString(reply.GetNextPageToken()))
	}
}

// setPageSize sets the size of a page unless the request has one.
func setPageSize(request proto.Message, size int) {
	fields := request.ProtoReflect()
	if field := fields.Descriptor().Fields().ByName("page_size"); !fields.Has(field) {
		fields.Set(field, protoreflect.ValueOfInt32(int32(size)))
	}
}

// ReadPages reads a list until it has limit items, or all of them when limit is 0; items gives what is wanted of a page.
// more reports whether others follow.
func ReadPages[Q proto.Message, P Page, T any](
	ctx context.Context, limit int, list func(context.Context, Q, ...grpc.CallOption) (P, error), request Q, items func(P) []T,
) (all []T, more bool, err error) {
	if limit > 0 {
		setPageSize(request, min(limit, PageSize))
	}
	err = EachPage(ctx, list, request, func(page P) (bool, error) {
		all = append(all, items(page)...)
		more = limit > 0 && (len(all) > limit || len(all) == limit && page.GetNextPageToken() != "")
		return limit == 0 || len(all) < limit, nil
	})
	if limit > 0 {
		all = all[:min(len(all), limit)]
	}
	return all, more, err
}

// List makes cmd one that lists at most --limit items. read gives the reply with all of them, reports whether more
// follow, and how people see it.
func (o *Options) List(cmd *cobra.Command, read func(ctx context.Context, c *Client, limit int) (reply proto.Message, more bool, people func(), err error)) *cobra.Command {
	cmd.Args = cli.Exactly()
	limit := cmd.Flags().Int("limit", 200, "`number` to list at most; 0: all")
	return o.Look(cmd, func(ctx context.Context, c *Client, _ []string) error {
		if *limit < 0 {
			return cli.Usagef("--limit %d: want 0 or more", *limit)
		}
		reply, more, people, err := read(ctx, c, *limit)
		if err == nil && more {
			fmt.Fprintf(c.Err, "more follow after these %s; --limit 0 lists all\n", human.Count(*limit))
		}
		return c.Show(reply, err, people)
	})
}
