// Package cert has the commands of a small certificate authority, for a first setup of TLS.
package cert

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
)

const (
	authorityDays = 3650
	leafDays      = 365
	// maxDays bounds --days: twenty years.
	maxDays = 7300
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.AddOffline(&cobra.Command{
		Use: "cert", Short: "Make certificates for TLS",
		Long: `Make certificates for TLS, by an authority of your own in a directory. It is for a first setup: where there is an
authority already (SPIRE, cert-manager, step-ca), use that one.

Keys are ECDSA P-256 without a password, in files that only their owner can read. ca-key.pem can make certificates for
everybody: keep it on no machine that serves.`,
		Example: `  waggle cert ca pki
  waggle cert server pki dispatcher.example.org 10.0.0.5
  waggle cert client pki spiffe://example.org/collector/eu-1`,
	}, "Make certificates:", newAuthority(), newServer(), newClient())
}

// options are the flags of every certificate.
type options struct {
	days  int
	renew bool
}

func (o *options) register(cmd *cobra.Command, days int, renew string) {
	cmd.Flags().IntVar(&o.days, "days", days, "`number` of days it is valid")
	cmd.Flags().BoolVar(&o.renew, "renew", false, renew)
}

// until is when a certificate that is made now ends.
func (o *options) until(now time.Time) (time.Time, error) {
	if o.days < 1 || o.days > maxDays {
		return time.Time{}, cli.Usagef("--days: %d is not within 1 to %d", o.days, maxDays)
	}
	return now.AddDate(0, 0, o.days), nil
}

func newAuthority() *cobra.Command {
	var o options
	var dropOld bool
	cmd := &cobra.Command{
		Use: "ca DIR", Short: "Make a certificate authority",
		Long: `Make a certificate authority: DIR/ca.pem, which everybody gets, and DIR/ca-key.pem, which stays here.

--renew makes another one beside it: ca.pem then has both, and whoever has it trusts the certificates of both. Copy ca.pem to
every machine, renew the certificates, and then take the old authority out with --drop-old. Dispatchers read the files again by
themselves.`,
		Example: `  waggle cert ca pki
  waggle cert ca pki --renew
  waggle cert ca pki --drop-old`,
		Args: cli.Exactly("DIR"),
	}
	o.register(cmd, authorityDays, "make a new one, and trust the old one, too")
	cmd.Flags().BoolVar(&dropOld, "drop-old", false, "make nothing; leave only the newest in ca.pem")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		now, out, dir := time.Now(), cmd.OutOrStdout(), args[0]
		if dropOld && o.renew {
			return cli.Usagef("--renew and --drop-old: renew the certificates between them")
		}
		if dropOld {
			dropped, err := dropOldAuthorities(dir)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s trusts the newest authority only; taken out: %d\n", authorityFile(dir), dropped)
			return nil
		}
		until, err := o.until(now)
		if err != nil {
			return err
		}
		trusted, err := makeAuthority(dir, now, until, o.renew)
		if err != nil {
			return err
		}
		wrote(out, authorityFile(dir), "to trust: give it to dispatchers and clients; valid until "+day(until))
		wrote(out, authorityKeyFile(dir), "secret: it makes certificates; keep it here")
		if trusted > 1 {
			next(out, "copy %s to every machine, then renew each certificate with --renew, then `waggle cert ca %s --drop-old`", authorityFile(dir), dir)
			return nil
		}
		next(out, "`waggle cert server %s NAME` with the name or address by which clients reach the dispatcher", dir)
		return nil
	}
	return cmd
}

func newServer() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "server DIR NAME|IP...", Short: "Make the certificate of a dispatcher",
		Long: `Make the certificate of a dispatcher: DIR/server.pem and DIR/server-key.pem. NAME and IP are those by which
clients reach it: what stands in their --server. With --renew and without names it keeps those that it has.`,
		Example: `  waggle cert server pki dispatcher.example.org 10.0.0.5
  waggle cert server pki --renew`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("DIR is missing")
			}
			return nil
		},
	}
	o.register(cmd, leafDays, "replace the certificate and its key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := args[0]
		names := args[1:]
		if len(names) == 0 {
			var err error
			if names, err = renewedNames(dir, o.renew); err != nil {
				return err
			}
		}
		wants, err := serverLeaf(names)
		if err != nil {
			return cli.Usagef("%w", err)
		}
		if err := o.issue(cmd.OutOrStdout(), dir, wants); err != nil {
			return err
		}
		certFile, keyFile := wants.files(dir)
		if o.renew {
			next(cmd.OutOrStdout(), "nothing, if `waggle serve` reads these files: it serves them at once; other dispatchers need a copy of both")
			return nil
		}
		next(cmd.OutOrStdout(), "`waggle auth token new NAME --role admin --out NAME.token`, then `waggle serve --auth auth.yaml --tls-cert %s --tls-key %s --tls-client-ca %s`; clients need `--tls-ca %[3]s`",
			certFile, keyFile, authorityFile(dir))
		return nil
	}
	return cmd
}

func newClient() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "client DIR NAME", Short: "Make the certificate of a client",
		Long: `Make the certificate of a client: a collector, a program or an operator. NAME is a SPIFFE id or a DNS name. It is
the identity for the grants of auth.yaml: a SPIFFE id as it is, a DNS name as dns:NAME. The files are DIR/NAME.pem and
DIR/NAME-key.pem; of a SPIFFE id each "/" becomes "_".`,
		Example: `  waggle cert client pki spiffe://example.org/collector/eu-1
  waggle cert client pki feeds.example.org`,
		Args: cli.Exactly("DIR", "NAME"),
	}
	o.register(cmd, leafDays, "replace the certificate and its key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := args[0]
		wants, err := clientLeaf(args[1])
		if err != nil {
			return cli.Usagef("%w", err)
		}
		if err := o.issue(cmd.OutOrStdout(), dir, wants); err != nil {
			return err
		}
		certFile, keyFile := wants.files(dir)
		next(cmd.OutOrStdout(), "grant %s a role in auth.yaml; the client needs `--tls-ca %s --client-cert %s --client-key %s`",
			wants.identity, authorityFile(dir), certFile, keyFile)
		return nil
	}
	return cmd
}

// issue makes a certificate by the authority in a directory, and writes what it made.
func (o *options) issue(out io.Writer, dir string, wants *leaf) error {
	now := time.Now()
	until, err := o.until(now)
	if err != nil {
		return err
	}
	if err := wants.issue(dir, now, until, o.renew); err != nil {
		return err
	}
	certFile, keyFile := wants.files(dir)
	wrote(out, certFile, "for "+wants.String()+"; valid until "+day(until))
	wrote(out, keyFile, "secret: its key")
	return nil
}

func wrote(out io.Writer, path, what string) { fmt.Fprintf(out, "%s  %s\n", path, what) }

func next(out io.Writer, format string, args ...any) {
	fmt.Fprintf(out, "next: "+format+"\n", args...)
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
