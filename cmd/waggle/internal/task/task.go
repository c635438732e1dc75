// Package task has the commands for tasks and for their leases.
package task

import (
	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "task", Short: "Submit, show, cancel and retry tasks"},
		newTaskSubmit(o), newTaskGet(o), newTaskList(o), newTaskCancel(o), newTaskRetry(o))
}

// NewLease makes the commands for leases.
func NewLease(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "lease", Short: "List and revoke leases"}, newLeaseList(o), newLeaseRevoke(o))
}
