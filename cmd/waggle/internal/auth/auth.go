// Package auth has the commands for who may do what: the tokens of a policy file, and questions to a dispatcher about it.
package auth

import (
	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "auth", Short: "Make tokens, and explain who may what",
		Long: `Make and revoke the tokens of a policy file, which waggle serve --auth reads, and ask a dispatcher why a call is
allowed or refused.`,
		Example: `  waggle auth token new eu-1 --role collector --out eu-1.token
  waggle auth explain FetchTask --as token:eu-1`,
	}
	cmd.AddGroup(&cobra.Group{ID: "run", Title: "Change the policy file:"}, &cobra.Group{ID: "operate", Title: "Ask a dispatcher:"})
	return o.Group(cmd, newToken(o), newExplain(o), newRelease(o))
}

// newToken makes the commands that work on the policy file.
func newToken(o *client.Options) *cobra.Command {
	return o.AddOffline(&cobra.Command{
		Use: "token", Short: "Make, list and revoke tokens",
		Long: `Make, list and revoke the tokens of a policy file. Dispatchers that have the file follow a change within a
second. The file keeps the SHA-256 of each token, never the token.`,
		// The variables of commands that ask a dispatcher are none of these commands'.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
	}, "Change the policy file:", newTokenNew(o.Console), newTokenList(o), newTokenRevoke(o.Console))
}

// registerFile adds the flag for the policy file.
func registerFile(cmd *cobra.Command, c cli.Console, into *string) {
	const variable = cli.EnvPrefix + "AUTH" // that of serve --auth
	value, _ := c.Env(variable)
	if value == "" {
		value = "auth.yaml"
	}
	cmd.Flags().StringVar(into, "file", value, "policy `file` ["+variable+"]")
}
