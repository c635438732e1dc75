// Package task has the commands for tasks and for their leases.
package task

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
)

func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "task", Short: "Submit tasks, look at them, cancel or retry them"},
		newTaskSubmit(o), newTaskGet(o), newTaskList(o), newTaskCancel(o), newTaskRetry(o))
}

func newTaskGet(o *client.Options) *cobra.Command {
	var ref Ref
	cmd := &cobra.Command{
		Use:   "get [ID]",
		Short: "Show a task with its holder and its attempts",
		Example: `  waggle task get 2741-5kq3m7x2wnd4ylhz6tbrc3vjua
  waggle task get --source news.example --url https://example.com/a`,
		Args: cli.AtMostOne,
	}
	ref.Register(cmd)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		request, err := ref.request(args)
		if err != nil {
			return err
		}
		reply, err := c.Tasks.GetTask(ctx, request)
		return c.Show(reply.GetTask(), err, func() { writeTask(c.Out, c.Now, reply.GetTask()) })
	})
	return cmd
}
