package cli

import (
	"fmt"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Record are who does something, why, and until when.
type Record struct {
	By, Reason string
	Until      *timestamppb.Timestamp // nil: for ever
}

// Register adds the flags; the name of the user is the default of --by.
func (r *Record) Register(cmd *cobra.Command, c Console) {
	cmd.Flags().StringVar(&r.By, "by", operator(c), "`who` does it, for the record ["+envName("by")+"]")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "`why`, for the record")
}

// RegisterUntil adds the flags of what ends by itself; ends says how.
func (r *Record) RegisterUntil(cmd *cobra.Command, c Console, ends string) {
	r.Register(cmd, c)
	TimeVar(cmd.Flags(), &r.Until, "until", ends)
}

// CheckBy refuses an empty --by: the dispatcher would record the address of this machine.
func CheckBy(cmd *cobra.Command) error {
	if f := cmd.Flags().Lookup("by"); f != nil && f.Changed && strings.TrimSpace(f.Value.String()) == "" {
		return Usagef("--by: %q: want who does it, or leave it out for %s", f.Value.String(), f.DefValue)
	}
	return nil
}

// operator is who runs this process: what the environment names, else, as in a container, user@host.
func operator(c Console) string {
	for _, name := range []string{envName("by"), "USER", "LOGNAME"} {
		if value, ok := c.Env(name); ok && value != "" {
			return value
		}
	}
	if u, err := user.Current(); err == nil {
		return fmt.Sprintf("%.60s@%.60s", u.Username, Hostname()) // within what a dispatcher takes
	}
	return Hostname()
}
