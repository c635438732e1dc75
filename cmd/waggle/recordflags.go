package main

import (
	"os"
	"os/user"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// recordFlags are who does something, and why.
type recordFlags struct{ by, reason string }

// register adds the flags; the name of the user is the default of --by.
func (r *recordFlags) register(cmd *cobra.Command, c console) {
	cmd.Flags().StringVar(&r.by, "by", operator(c), "`who` does it, for the record ["+envName("by")+"]")
	cmd.Flags().StringVar(&r.reason, "reason", "", "`why`, for the record")
}

// checkBy refuses an empty --by: the dispatcher would record the address of this machine.
func checkBy(cmd *cobra.Command) error {
	if f := cmd.Flags().Lookup("by"); f != nil && f.Changed && strings.TrimSpace(f.Value.String()) == "" {
		return usagef(cmd, "--by: %q: want who does it, or leave it out for %s", f.Value.String(), f.DefValue)
	}
	return nil
}

// operator is who runs this process: what the environment says, else, as in a container,
// user@host.
func operator(c console) string {
	for _, name := range []string{envName("by"), "USER", "LOGNAME"} {
		if value, ok := c.env(name); ok && value != "" {
			return value
		}
	}
	name, host := "", ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return operatorName(name, host)
}

// operatorName is user@host, or the one that is known, as a dispatcher takes it.
func operatorName(name, host string) string {
	text := name
	if host != "" {
		text = strings.TrimPrefix(name+"@"+host, "@")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if len(text) > bounds.MaxIDLength {
		text = strings.ToValidUTF8(text[:bounds.MaxIDLength], "")
	}
	return text
}
