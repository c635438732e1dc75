package auth

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/server/auth"
)

// listed is a token as it is shown.
type listed struct {
	Name     string        `json:"name"`
	Identity string        `json:"identity"`
	Grants   []listedGrant `json:"grants"`
	// Expires is left out if the token does not end.
	Expires *time.Time `json:"expires,omitempty"`
	Expired bool       `json:"expired"`
}

type listedGrant struct {
	Identity   string   `json:"identity"` // a pattern
	Role       string   `json:"role"`
	Collectors []string `json:"collectors"`
	Pools      []string `json:"pools"`
	Sources    []string `json:"sources"`
}

func newTokenList(o *client.Options) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens of a policy file",
		Long: `List the tokens of a policy file, with the roles that its grants give them, grants to patterns too. SCOPE is what
narrows the role.`,
		Args: cli.Exactly(),
	}
	registerFile(cmd, o.Console, &file)
	return o.Local(cmd, func(_ context.Context, c *client.Client, _ []string) error {
		policy, _, err := readPolicy(file)
		if err != nil {
			return err
		}
		tokens := tokensOf(policy, c.Now)
		return c.Show(map[string]any{"tokens": tokens}, nil, func() { writeTokens(c.Out, c.Now, tokens, file) })
	})
}

func tokensOf(policy *auth.Policy, now time.Time) []listed {
	tokens := []listed{}
	for _, t := range policy.Tokens {
		l := listed{Name: t.Name, Identity: identityOf(t.Name), Grants: []listedGrant{}}
		if !t.Expires.IsZero() {
			l.Expires, l.Expired = &t.Expires, !now.Before(t.Expires)
		}
		for _, g := range policy.GrantsTo(l.Identity) {
			l.Grants = append(l.Grants, listedGrant{
				Identity: g.Identity, Role: string(g.Role),
				Collectors: append([]string{}, g.Collectors...), Pools: append([]string{}, g.Pools...), Sources: append([]string{}, g.Sources...),
			})
		}
		tokens = append(tokens, l)
	}
	return tokens
}

func writeTokens(out io.Writer, now time.Time, tokens []listed, file string) {
	table := human.NewTable("NAME^10", "ROLE~8", "SCOPE~16", "EXPIRES")
	for _, t := range tokens {
		var roles, scopes []string
		for _, g := range t.Grants {
			if !slices.Contains(roles, g.Role) {
				roles = append(roles, g.Role)
			}
			if scope := g.scope(); scope != "" {
				scopes = append(scopes, scope)
			}
		}
		expires := "never"
		switch {
		case t.Expired:
			expires = "EXPIRED " + human.Since(now, human.Timestamp(*t.Expires))
		case t.Expires != nil:
			expires = human.Since(now, human.Timestamp(*t.Expires))
		}
		table.Row(t.Name, strings.Join(roles, ", "), strings.Join(scopes, "; "), expires)
	}
	table.Write(out, "no tokens in "+file+"; `waggle auth token new NAME --role ROLE` makes one")
}

// scope is what narrows a grant; empty: nothing.
func (g *listedGrant) scope() string {
	var parts human.Phrases
	parts.AddIf(len(g.Collectors) > 0, "collectors %s", strings.Join(g.Collectors, " "))
	parts.AddIf(len(g.Pools) > 0, "pools %s", strings.Join(g.Pools, " "))
	parts.AddIf(len(g.Sources) > 0, "sources %s", strings.Join(g.Sources, " "))
	return parts.Text()
}
