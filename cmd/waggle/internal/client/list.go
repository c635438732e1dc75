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
	proto.Message
	// GetNextPageToken is empty in the last one.
	GetNextPageToken() string
}

// EachPage reads a list page by page, each of PageSize unless the request has another size, while take wants more.
func EachPage[Q proto.Message, P Page](
	ctx context.Context, list func(context.Context, Q, ...grpc.CallOption) (P, error), request Q, take func(P) (more bool, err error),
) error {
	request = proto.CloneOf(request) // it may be read again, from its first page
	fields := request.ProtoReflect()
	if size := fieldOf(request, "page_size"); !fields.Has(size) {
		fields.Set(size, protoreflect.ValueOfInt32(PageSize))
	}
	for {
		reply, err := list(ctx, request)
		if err != nil {
			return err
		}
		if more, err := take(reply); err != nil || !more || reply.GetNextPageToken() == "" {
			return err
		}
		fields.Set(fieldOf(request, "page_token"), protoreflect.ValueOfString(reply.GetNextPageToken()))
	}
}

func fieldOf(m proto.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	return m.ProtoReflect().Descriptor().Fields().ByName(name)
}

// Part is what is wanted of a list.
type Part struct {
	Limit int    // 0: all
	Token string // of the page to begin with; empty: the first
}

// ReadPart reads a part of a list. The reply is the first page with the items of all of them, and the token of what follows.
func ReadPart[Q proto.Message, P Page](ctx context.Context, part Part, list func(context.Context, Q, ...grpc.CallOption) (P, error), request Q) (all P, err error) {
	request = proto.CloneOf(request)
	request.ProtoReflect().Set(fieldOf(request, "page_token"), protoreflect.ValueOfString(part.Token))
	var items protoreflect.List
	sized := func(ctx context.Context, request Q, _ ...grpc.CallOption) (P, error) {
		if left := part.Limit; left > 0 {
			if items != nil {
				left -= items.Len()
			}
			request.ProtoReflect().Set(fieldOf(request, "page_size"), protoreflect.ValueOfInt32(int32(min(left, PageSize))))
		}
		return list(ctx, request)
	}
	err = EachPage(ctx, sized, request, func(page P) (bool, error) {
		fields := page.ProtoReflect().Descriptor().Fields()
		at := 0
		for !fields.Get(at).IsList() {
			at++
		}
		if more := page.ProtoReflect().Mutable(fields.Get(at)).List(); items == nil {
			all, items = page, more
		} else {
			for i := range more.Len() {
				items.Append(more.Get(i))
			}
			all.ProtoReflect().Set(fieldOf(all, "next_page_token"), protoreflect.ValueOfString(page.GetNextPageToken()))
		}
		return part.Limit == 0 || items.Len() < part.Limit, nil
	})
	return all, err
}

// listed is how many items a table has, unless --limit says another number.
const listed = 200

// List makes cmd one that lists at most --limit items: read reads them, and shows them.
func (o *Options) List(cmd *cobra.Command, read func(ctx context.Context, c *Client, part Part) error) *cobra.Command {
	var part Part
	cmd.Args = cli.Exactly()
	cmd.Flags().IntVar(&part.Limit, "limit", 0, fmt.Sprintf("`number` to list at most; 0: all (default %d in a table, all with --output json)", listed))
	cmd.Flags().StringVar(&part.Token, "page-token", "", "list what follows the page with this next_page_token, of --output json with --limit")
	return o.Look(cmd, func(ctx context.Context, c *Client, _ []string) error {
		if part.Limit < 0 {
			return cli.Usagef("--limit %d: want 0 or more", part.Limit)
		}
		if !c.JSON && !cmd.Flags().Changed("limit") {
			part.Limit = listed
		}
		return read(ctx, c, part)
	})
}

// ShowList is Show for what was read of a list. It notes that more follows.
func (c *Client) ShowList(part Part, reply Page, err error, people func()) error {
	if err == nil && reply.GetNextPageToken() != "" {
		fmt.Fprintf(c.Err, "more follow after these %s; --limit 0 lists all\n", human.Count(part.Limit))
	}
	return c.Show(reply, err, people)
}
