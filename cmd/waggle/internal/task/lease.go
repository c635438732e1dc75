package task

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newLeaseRevoke(o *client.Options) *cobra.Command {
	return changeCommand(o, &taskChoice{}, &cobra.Command{
		Use:   "revoke [TASK[@FENCE]...]",
		Short: "Take tasks from their holders",
		Long: `Take tasks from their holders. They are due again at once, with no attempt spent. The holder learns of it with
its next heartbeat, and works on until then; what it reports changes nothing. To end the work for good, use waggle task cancel.

With the fence that waggle lease list shows, only that lease is revoked.`,
		Example: `  waggle lease revoke 2741-5kq3m7x2wnd4ylhz6tbrc3vjua --reason 'it hangs'
  waggle lease revoke --collector paris-1 --dry-run`,
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (*pb.RevokeLeasesResponse, error) {
		revoke := &pb.RevokeLeasesRequest{
			Filter: b.Filter, ValidateOnly: b.DryRun, PageToken: b.Token, By: b.By, Reason: b.Reason,
		}
		for _, lease := range b.IDs {
			id, fence, err := parseLease(lease)
			if err != nil {
				return nil, err
			}
			revoke.TaskIds, revoke.Fences = append(revoke.TaskIds, id), append(revoke.Fences, fence)
		}
		return c.Tasks.RevokeLeases(ctx, revoke)
	}, "collector")
}

// parseLease reads TASK or TASK@FENCE; 0: no fence.
func parseLease(lease string) (id string, fence int64, err error) {
	id, text, named := strings.Cut(lease, "@")
	if !named {
		return id, 0, nil
	}
	if fence, err = strconv.ParseInt(text, 10, 64); err != nil || fence <= 0 {
		return "", 0, cli.Usagef("lease %q: the fence after @ has to be a number above 0, as `waggle lease list` shows it", lease)
	}
	return id, fence, nil
}

func newLeaseList(o *client.Options) *cobra.Command {
	request := &pb.ListLeasesRequest{Filter: &pb.Filter{}}
	cmd := &cobra.Command{Use: "list", Short: "List leases, the nearest deadline first"}
	client.FilterVars(cmd.Flags(), request.GetFilter(), "leases", "source", "queue", "suffix", "prefix", "pool", "label", "collector")
	return o.List(cmd, func(ctx context.Context, c *client.Client, part client.Part) error {
		reply, err := client.ReadPart(ctx, part, c.Admin.ListLeases, request)
		slices.SortStableFunc(reply.GetLeases(), func(a, b *pb.HeldLease) int {
			return cmp.Compare(a.GetHolder().GetRemaining().AsDuration(), b.GetHolder().GetRemaining().AsDuration())
		})
		return c.ShowList(part, reply, err, func() { writeLeases(c.Out, reply.GetLeases()) })
	})
}

func writeLeases(out io.Writer, leases []*pb.HeldLease) {
	t := human.NewTable("TASK^11", "SOURCE/3^10", "QUEUE/4^10", "HOLDER^8", ">HELD FOR", "ENDS", ">FENCE/1", "URL/2^14")
	for _, l := range leases {
		h := l.GetHolder()
		left := h.GetRemaining().AsDuration()
		ends := "in " + human.Span(left)
		if left < 0 {
			ends = describe.LeaseLeft(left)
		}
		t.Row(l.GetTaskId(), l.GetSourceId(), l.GetQueue(), h.GetCollectorId(), human.Span(h.GetAge().AsDuration()), ends,
			strconv.FormatInt(h.GetFence(), 10), l.GetUrl())
	}
	t.Write(out, "no leases")
}
