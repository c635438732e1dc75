// Package contexts has the commands that keep how dispatchers are reached, each by a name.
package contexts

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/contextfile"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	c := o.Console
	return o.AddOffline(&cobra.Command{
		Use: "context", Short: "Keep servers and credentials by name",
		Long: `Keep servers and credentials by name. Client commands and waggle collect use the current context unless --server
names a dispatcher, or the one that --context names. A flag counts before its variable, and that before the context.

Contexts are in contexts.yaml in the user's directory of configurations, or in the file that WAGGLE_CONFIG names. They keep
paths of secrets, and no secret.`,
		Example: `  waggle context add prod --server a:7070 --tls-ca ca.pem --token-file token
  waggle context list
  waggle stats --context prod`,
	}, "Run, without a dispatcher:", newAdd(c), newUse(c), newList(o), newRemove(c))
}

// offer completes the names of contexts.
func offer(c cli.Console) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, prefix string) (found []string, _ cobra.ShellCompDirective) {
		path, err := contextfile.Path(c)
		if err == nil && len(args) == 0 {
			if f, err := contextfile.Read(path); err == nil {
				found = slices.DeleteFunc(slices.Sorted(maps.Keys(f.Contexts)), func(name string) bool { return !strings.HasPrefix(name, prefix) })
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp // nobody reads why there is nothing
	}
}

// change changes the file of contexts.
func change(c cli.Console, how func(f *contextfile.File) error) error {
	path, err := contextfile.Path(c)
	if err != nil {
		return cli.Advise(err, contextfile.Variable+" names a file for contexts")
	}
	f, err := contextfile.Read(path)
	if err != nil {
		return err
	}
	if err := how(f); err != nil {
		return err
	}
	return f.Write()
}

func newAdd(c cli.Console) *cobra.Command {
	var n client.Connection
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a context",
		Long: `Add a context. It becomes the current one if there is none. Paths of files are kept as absolute ones; the files
are read when the context is used.`,
		Example: `  waggle context add home
  waggle context add prod --server a:7070,b:7070 --tls-ca ca.pem --token-file t
  waggle context add lab --server c:7070 --client-cert me.pem --client-key me.k`,
		Args: cli.Exactly("the context's NAME"),
	}
	n.RegisterSettings(cmd.Flags(), "dispatchers, each `host:port`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := args[0]
		if err := contextfile.CheckName(name); err != nil {
			return err
		}
		kept, err := n.Context(filepath.Abs)
		if err != nil {
			return err
		}
		return change(c, func(f *contextfile.File) error {
			if _, exists := f.Contexts[name]; exists {
				return cli.Advise(fmt.Errorf("there is a context %q already", name), "`waggle context remove "+name+"` removes it")
			}
			f.Contexts[name] = kept
			current := ""
			if f.Current == "" {
				f.Current, current = name, "; it is the current one"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "added %s%s\n", name, current)
			return nil
		})
	}
	return cmd
}

func newUse(c cli.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one",
		Args:  cli.Exactly("the context's NAME"),

		ValidArgsFunction: offer(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change(c, func(f *contextfile.File) error {
				if _, err := f.Get(args[0]); err != nil {
					return err
				}
				f.Current = args[0]
				fmt.Fprintf(cmd.OutOrStdout(), "%s is the current one\n", args[0])
				return nil
			})
		},
	}
}

func newRemove(c cli.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a context",
		Long:  `Remove a context. The files that it names stay. If it is the current one, there is none then.`,
		Args:  cli.Exactly("the context's NAME"),

		ValidArgsFunction: offer(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change(c, func(f *contextfile.File) error {
				if _, err := f.Get(args[0]); err != nil {
					return err
				}
				delete(f.Contexts, args[0])
				if f.Current == args[0] {
					f.Current = ""
				}
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", args[0])
				return nil
			})
		},
	}
}

// listed is a context as --output json has it.
type listed struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	contextfile.Context
}

func newList(o *client.Options) *cobra.Command {
	return o.Local(&cobra.Command{
		Use:   "list",
		Short: "List contexts",
		Long:  `List contexts. The star marks the current one. Tokens are not shown, only their files.`,
		Args:  cli.Exactly(),
	}, func(_ context.Context, c *client.Client, _ []string) error {
		path, err := contextfile.Path(o.Console)
		if err != nil {
			return cli.Advise(err, contextfile.Variable+" names a file for contexts")
		}
		f, err := contextfile.Read(path)
		if err != nil {
			return err
		}
		all := []listed{}
		for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
			all = append(all, listed{Name: name, Current: name == f.Current, Context: f.Contexts[name]})
		}
		return c.Show(map[string]any{"contexts": all}, nil, func() { writeList(c.Out, all) })
	})
}

func writeList(out human.Output, all []listed) {
	t := human.NewTable("CURRENT", "NAME^10", "SERVER^16", "TLS", "CERTIFICATE/1^12", "TOKEN FILE/2^12")
	for _, one := range all {
		mark, tls := "", "no"
		if one.Current {
			mark = "*"
		}
		if one.TLS || one.TLSCA+one.ClientCert+one.TLSServerName != "" {
			tls = "yes"
		}
		t.Row(mark, one.Name, strings.Join(one.Server, ","), tls, one.ClientCert, one.TokenFile)
	}
	t.Write(out, "no contexts: `waggle context add NAME` adds one")
}
