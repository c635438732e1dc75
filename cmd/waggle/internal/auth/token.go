package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/server/auth"
)

// tokenMode is that of a file with a token.
const tokenMode = 0o600

// identityOf is what grants call the holder of a token.
func identityOf(name string) string { return "token:" + name }

// request is a token to be made.
type request struct {
	file, out string
	roles     []auth.Role
	grant     auth.Grant             // but for its role
	expires   *timestamppb.Timestamp // nil: never
	replace   bool
	overlap   time.Duration // for which a replaced token still counts
}

func newTokenNew(c cli.Console) *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Make a token, and grant it roles",
		Long: `Make a random token, and write its name, its SHA-256 and a grant for each role to the policy file. The token itself is printed
on standard output, or written to the file of --out, and is kept nowhere else.

--replace makes another token for a name: it has the grants of the old one, which is refused from then on, or after --overlap.`,
		Example: `  waggle auth token new ada --role operator --out ada.token
  waggle auth token new eu-1 --role collector --collectors 'eu-*' --expires 90d
  waggle auth token new feeds --role producer --sources news.,blogs.
  waggle auth token new spider --role collector,producer --sources shop
  waggle auth token new eu-1 --replace --overlap 1h --out eu-1.token`,
		Args: cli.Exactly("NAME"),
	}
	flags := cmd.Flags()
	registerFile(cmd, c, &r.file)
	cli.ChoicesVar(flags, func(role string) { r.roles = append(r.roles, auth.Role(role)) }, "role",
		"what it may do: collector, producer, operator, viewer, admin", roleNames()...)
	flags.StringSliceVar(&r.grant.Collectors, "collectors", nil, "collector ids that a collector may use, as `patterns` with *")
	flags.StringSliceVar(&r.grant.Pools, "pools", nil, "`pools` that a collector may fetch from")
	flags.StringSliceVar(&r.grant.Sources, "sources", nil, "what the ids of its sources begin with, as `prefixes`; for producers, operators and viewers")
	cli.TimeVar(flags, &r.expires, "expires", "when it ends")
	flags.StringVar(&r.out, "out", "", "write the token to this `file`, which only its owner can read")
	flags.BoolVar(&r.replace, "replace", false, "make another token for a name that has one")
	cli.SpanVar(flags, &r.overlap, "overlap", "how long the old token still counts, with --replace")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.grant.Identity = identityOf(args[0])
		if err := r.check(args[0], flags); err != nil {
			return err
		}
		token, err := r.make(args[0])
		if err != nil {
			return err
		}
		if r.out == "" {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), token); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "waggle: this is the token, shown only now; its holder is %s\n", r.grant.Identity)
			return nil
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "waggle: the token is in %s; its holder is %s and gives it by --token-file %[1]s\n", r.out, r.grant.Identity)
		return nil
	}
	return cmd
}

// check refuses flags that make no sense together.
func (r *request) check(name string, flags *pflag.FlagSet) error {
	for _, flag := range []string{"collectors", "pools", "sources"} {
		if f := flags.Lookup(flag); f.Changed && f.Value.String() == "[]" { // an empty variable of a script must not grant everything
			return cli.Usagef("--%s is empty; leave it out for all", flag)
		}
	}
	narrowed := len(r.grant.Collectors)+len(r.grant.Pools)+len(r.grant.Sources) > 0
	switch {
	case len(r.roles) == 0 && !r.replace:
		return cli.Usagef("--role is missing; say %s", strings.Join(roleNames(), ", "))
	case r.replace && (len(r.roles) > 0 || narrowed):
		return cli.Usagef("--replace keeps the grants of %s; change them in %s", name, r.file)
	case len(r.roles) > 1 && len(r.grant.Collectors)+len(r.grant.Pools) > 0 && !slices.Contains(r.roles, auth.Collector):
		return cli.Usagef("--collectors and --pools are for the role %s", auth.Collector)
	case r.overlap > 0 && !r.replace:
		return cli.Usagef("--overlap is for --replace")
	case r.expires != nil && !r.expires.AsTime().After(time.Now()):
		return cli.Usagef("--expires: %s is over", human.Instant(r.expires))
	}
	return nil
}

func roleNames() []string {
	var names []string
	for _, role := range auth.Roles() {
		names = append(names, string(role))
	}
	return names
}

// make makes the token, and writes it to its file if it has one.
func (r *request) make(name string) (token string, err error) {
	token, hash := auth.NewToken()
	return token, edit(r.file, func(policy *auth.Policy, doc *document) error {
		at := slices.IndexFunc(policy.Tokens, func(t auth.Token) bool { return t.Name == name })
		switch {
		case at < 0 && r.replace:
			return unknownToken(name, r.file)
		case at >= 0 && r.replace:
			return r.renew(policy, doc, hash, name)
		case at >= 0:
			return cli.Advise(fmt.Errorf("%s has a token %s", r.file, name), "--replace makes another one for it, `waggle auth token revoke "+name+"` ends it")
		}
		made := auth.Token{Name: name, SHA256: hash}
		if r.expires != nil {
			made.Expires = expiry(r.expires)
		}
		err := doc.add("tokens", made)
		for _, grant := range r.grants() {
			err = errors.Join(err, doc.add("grants", grant))
		}
		return err
	}, func() error { return r.write(token) })
}

// grants are those of the roles. Of several roles each gets the limits that it can have.
func (r *request) grants() (grants []auth.Grant) {
	for _, role := range r.roles {
		grant := r.grant
		grant.Role = role
		if len(r.roles) > 1 && role == auth.Collector {
			grant.Sources = nil
		} else if len(r.roles) > 1 {
			grant.Collectors, grant.Pools = nil, nil
		}
		grants = append(grants, grant)
	}
	return grants
}

// renew adds another token of a name, with the end that is given, or that of the newest. All others end with the overlap.
func (r *request) renew(policy *auth.Policy, doc *document, hash, name string) error {
	found := false
	made, end := auth.Token{Name: name, SHA256: hash}, time.Now().Add(r.overlap).UTC().Truncate(time.Second)
	for i, old := range slices.Backward(policy.Tokens) {
		if old.Name != name {
			continue
		}
		if !found { // the newest
			found, made.Expires = true, old.Expires
		}
		switch {
		case r.overlap == 0:
			doc.removeAt("tokens", i)
		case old.Expires.IsZero() || old.Expires.After(end):
			if err := doc.set("tokens", i, "expires", end); err != nil {
				return err
			}
		}
	}
	if r.expires != nil {
		made.Expires = expiry(r.expires)
	}
	if !made.Expires.IsZero() && made.Expires.Before(time.Now()) {
		return cli.Usagef("the token of %s has expired; say when the new one ends by --expires", name)
	}
	return doc.add("tokens", made)
}

// expiry is a moment as the policy file has it: in whole seconds.
func expiry(t *timestamppb.Timestamp) time.Time { return t.AsTime().UTC().Truncate(time.Second) }

// write writes the token to the file of --out.
func (r *request) write(token string) error {
	switch {
	case r.out == "":
		return nil
	case r.replace:
		return cli.ReplaceFile(r.out, []byte(token+"\n"), tokenMode)
	}
	err := cli.CreateFile(r.out, []byte(token+"\n"), tokenMode)
	if errors.Is(err, fs.ErrExist) {
		return cli.Usagef("--out: %s exists", r.out)
	}
	return err
}

func unknownToken(name, file string) error {
	return cli.Advise(fmt.Errorf("%s has no token %s", file, name), "`waggle auth token list` shows those that it has")
}

func newTokenRevoke(c cli.Console) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "End a token, and take its grants",
		Long: `Take a token out of the policy file, and the grants to it alone. Grants to a pattern stay. Dispatchers that have
the file refuse the token within a second, and end its streams. The tasks of a collector go to others when its leases expire.`,
		Example: `  waggle auth token revoke eu-1`,
		Args:    cli.Exactly("NAME"),
	}
	registerFile(cmd, c, &file)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, taken := args[0], 0
		if _, err := os.Stat(file); err != nil {
			return err
		}
		err := edit(file, func(policy *auth.Policy, doc *document) error {
			at := slices.IndexFunc(policy.Tokens, func(t auth.Token) bool { return t.Name == name })
			if at < 0 {
				return unknownToken(name, file)
			}
			for i, token := range slices.Backward(policy.Tokens) {
				if token.Name == name {
					doc.removeAt("tokens", i)
				}
			}
			for i, grant := range slices.Backward(policy.Grants) {
				if grant.Identity == identityOf(name) {
					doc.removeAt("grants", i)
					taken++
				}
			}
			return nil
		}, func() error { return nil })
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "token %s revoked, and %s\n", name, human.Plural(taken, "grant"))
		return nil
	}
	return cmd
}
