package auth

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
)

func newExplain(o *client.Options) *cobra.Command {
	request := &pb.ExplainAccessRequest{}
	cmd := &cobra.Command{
		Use:   "explain METHOD",
		Short: "Explain why a call is allowed or refused",
		Long: `Explain whether an identity may call a method, and which rule decides. METHOD is as a refusal names it. What a
grant narrows, such as the sources, depends on each call.`,
		Example: `  waggle auth explain FetchTask --as token:eu-1
  waggle auth explain CancelTasks --as spiffe://example.org/feeds`,
		Args: cli.Exactly("METHOD"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return methods(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVar(&request.Identity, "as", "", "`identity` that makes the call, as token:NAME, spiffe://..., dns:NAME, jwt:SUBJECT, uid:1000")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		if request.GetIdentity() == "" {
			return cli.Usagef("who calls? say --as IDENTITY, for example token:eu-1")
		}
		request.Method = args[0]
		reply, err := c.Admin.ExplainAccess(ctx, request)
		return c.Show(reply, err, func() {
			decision, text := "refused", reply.GetText()
			if reply.GetAllowed() {
				decision, text = "allowed", strings.TrimPrefix(text, "allowed ")
			}
			fmt.Fprintf(c.Out, "%s: %s\n", decision, human.Plain(text))
		})
	})
	return o.Group(cmd)
}

// methods are the names of Waggle's methods, without their services.
func methods() (names []string) {
	for _, full := range auth.Methods() {
		if strings.HasPrefix(full, "/waggle.") {
			names = append(names, full[strings.LastIndexByte(full, '/')+1:])
		}
	}
	return names
}

func newRelease(o *client.Options) *cobra.Command {
	request, record := &pb.ReleaseCollectorRequest{}, cli.Record{}
	cmd := &cobra.Command{
		Use:   "release COLLECTOR",
		Short: "Let another identity use a collector id",
		Long: `Let another identity use a collector id. An id belongs to the identity that used it first, until it was unused
for 30 days. After a release it belongs to the next one that uses it. Its leases go on.`,
		Example:           `  waggle auth release eu-1 --reason 'new certificate'`,
		Args:              cli.Exactly("COLLECTOR"),
		ValidArgsFunction: o.Offer("collector"),
	}
	record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		request.CollectorId, request.By, request.Reason = args[0], record.By, record.Reason
		reply, err := c.Admin.ReleaseCollector(ctx, request)
		return c.Show(reply, err, func() {
			if reply.GetIdentity() == "" {
				fmt.Fprintf(c.Out, "collector %s belonged to nobody\n", human.Plain(args[0]))
				return
			}
			fmt.Fprintf(c.Out, "collector %s belonged to %s; the next identity that uses it owns it\n", human.Plain(args[0]), human.Plain(reply.GetIdentity()))
		})
	})
	return o.Group(cmd)
}
