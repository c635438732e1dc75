package root

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/dispatcher"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourceimport"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/notify"
	"github.com/waggle-crawl/waggle/store"
)

// serveOptions are the flags of a dispatcher.
type serveOptions struct {
	server server.Config
	store  dispatcher.StoreOptions
	log    cli.LogOptions

	notify notify.Config
}

func newServe(c cli.Console) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run a dispatcher",
		GroupID: "run",
		Long: `Run a dispatcher. It keeps everything in the directory waggle-data, or where --store says. Of several on one Redis one
owns the store: it has all tasks in memory, 650 bytes for each that waits. The others pass calls on to it, by its --advertise. When
it dies another one takes over after 3 s.

A Redis that is away or loads its files is waited for. Until it is there, /readyz is 503 and calls answer UNAVAILABLE.

SIGTERM or SIGINT drains: clients must call other dispatchers. The only dispatcher takes reports until a twentieth of
--drain-timeout passed without one, or, while collectors stop as well, for a quarter of it. A second signal ends the process at once; no lease is lost by that.

Each flag can be set by the variable behind it. Passwords in --store are better off in WAGGLE_STORE, where other users of the
machine do not see them.`,
		Example: `  waggle serve
  waggle serve --store file:/var/lib/waggle
  waggle serve --store redis://127.0.0.1:6379/0 --listen 0.0.0.0:7070 \
    --auth auth.yaml --tls-cert server.pem --tls-key server-key.pem`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.RefuseZero(cmd.Flags(), "shards", "ack-replicas"); err != nil {
				return err
			}
			o.server.TracerProvider, o.server.ReadSources = c.TracerProvider, sourceimport.ReadForConsole
			return cli.WithHeapFloor(c.Env, func() error { return serve(cmd.Context(), o, cmd.ErrOrStderr()) })
		},
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.StringVar(&o.server.Listen, "listen", client.DefaultServer, "`address` for gRPC, host:port or unix:PATH; beyond this machine it needs --auth and --tls-cert")
	flags.StringVar(&o.server.Advertise, "advertise", "", "`address` under which other dispatchers of the store reach this one (default: that of --listen)")
	flags.StringVar(&o.server.HTTP, "http", "127.0.0.1:7080", "`address` for the API over HTTP, /metrics, /healthz and /readyz; off: none")
	flags.StringArrayVar(&o.server.HTTPHosts, "http-host", nil, "`name` by which callers may reach the API over HTTP without --auth, beside localhost and IP addresses; may be repeated")
	o.store.Register(flags)
	flags.StringVar(&o.server.TLSCertFile, "tls-cert", "", "PEM `file` with the certificate to serve TLS with")
	flags.StringVar(&o.server.TLSKeyFile, "tls-key", "", "PEM `file` with its key")
	flags.StringVar(&o.server.TLSClientCAFile, "tls-client-ca", "", "PEM `file` with the authorities whose client certificates count")
	flags.StringVar(&o.server.PolicyFile, "auth", "", "YAML `file` with tokens and grants: who may do what (default: whoever connects may do everything)")
	flags.BoolVar(&o.server.Insecure, "insecure", false, "listen beyond this machine without --auth or TLS")
	flags.BoolVar(&o.server.MetricsToken, "metrics-token", false, "show /metrics only to tokens that may call GetStats")
	flags.BoolVar(&o.server.Reflection, "reflection", true, "let grpcurl work without .proto files")
	flags.DurationVar(&o.server.DrainTimeout, "drain-timeout", 0, "how long calls may go on once it is to stop (default 20s)")
	flags.IntVar(&o.server.MaxFetches, "max-fetches", 0, "`number` of FetchTask calls that may be parked at once (default 100,000)")
	flags.IntVar(&o.server.MaxFetchesPerCollector, "max-fetches-per-collector", 0, "`number` of them for one collector (default 100)")
	flags.DurationVar(&o.server.MaxConnectionAge, "max-connection-age", 0, "age at which clients are asked to connect anew, and find new dispatchers (default 30m)")
	flags.IntVar(&o.server.MaxConnections, "max-connections", 0, "`number` of connections at once (default 20,000)")
	flags.IntVar(&o.server.MaxAddressConnections, "max-connections-per-address", 0, "`number` of them from one address (default 2,000)")
	flags.Uint32Var(&o.server.MaxConcurrentStreams, "max-streams-per-connection", 0, "`number` of calls and heartbeat streams at once on one connection (default 4,000)")
	flags.IntVar(&o.server.MaxAddressStreams, "max-streams-per-address", 0, "`number` of them for one address (default 10,000)")
	flags.IntVar(&o.server.MaxAddressBytes, "max-bytes-per-address", 0, "`bytes` that unanswered requests and unread answers of one address may hold (default 64 MiB)")
	flags.IntVar(&o.server.MaxNewCollectors, "max-new-collectors", 0, "`number` of collector ids that were granted nothing yet, of one identity or else address (default 2,000)")
	flags.StringVar(&o.notify.URL, "notify", "", "`URL` to post each finding of waggle status to, when it begins and when it ends; deploy/notify.md has the messages")
	flags.StringVar(&o.notify.KeyFile, "notify-key-file", "", "`file` with the key that they are signed with: whsec_ and base64 (default: they are not signed)")
	flags.BoolVar(&o.server.LogCalls, "log-calls", false, "log calls that succeed, too")
	o.log.Register(flags)
	cli.FromEnv(cmd, c, flags)
	cmd.Flags().AddFlagSet(flags)
	return cmd
}

// serve runs a dispatcher until ctx ends.
func serve(ctx context.Context, o serveOptions, logTo io.Writer) error {
	log, err := o.log.Logger(logTo)
	if err != nil {
		return err
	}
	if err := o.server.Validate(); err != nil {
		return cli.Usagef("%w", flagNames(err))
	}
	if err := o.store.Validate(); err != nil {
		return err
	}
	if err := o.checkNotify(); err != nil {
		return cli.Usagef("%w", flagNames(err))
	}
	var opened *store.Store
	if !o.store.Owned() {
		if opened, err = o.store.Open(ctx, log); err != nil {
			return err
		}
	}
	n, err := dispatcher.NewNode(o.server, opened, log)
	if err != nil {
		return errors.Join(flagNames(err), dispatcher.CloseStore(opened))
	}
	if o.notify.URL != "" {
		if err := n.Notify(o.notify); err != nil {
			return errors.Join(flagNames(err), dispatcher.CloseStore(opened))
		}
	}
	if err := n.Server.Listen(ctx); err != nil {
		return errors.Join(listenAdvice(err), dispatcher.CloseStore(opened))
	}
	log.Info("waggle "+cli.Version(), zap.String("dispatcher", n.ID), zap.String("store", o.store.Name()), zap.Bool("tls", o.server.TLSCertFile != ""), zap.Bool("auth", o.server.PolicyFile != ""))
	if o.server.Insecure && !auth.IsLocal(o.server.Listen) && (o.server.PolicyFile == "" || o.server.TLSCertFile == "") {
		log.Warn("anyone who reaches the address can use it, or read tokens on their way: --insecure", zap.String("listen", o.server.Listen))
	}
	if o.store.URL == dispatcher.MemoryStore {
		log.Warn("the store is memory: nothing is kept over a restart, and other dispatchers do not share it; --store file:DIR keeps")
	}
	if o.store.Owned() {
		if err := n.Server.CheckAdvertised(); err != nil {
			return cli.Usagef("%w", flagNames(err))
		}
		return n.RunOwned(ctx, &o.store)
	}
	return n.Run(ctx)
}

// checkNotify checks the flags for notices.
func (o *serveOptions) checkNotify() error {
	switch {
	case o.notify.URL != "":
		return o.notify.Validate()
	case o.notify.KeyFile != "":
		return errors.New("--notify-key-file is for --notify")
	default:
		return nil
	}
}

// flagNames writes flags where an error names fields of a Config.
func flagNames(err error) error {
	return cli.Rename(err, "server: ", "", "notify: ", "", "Config.URL", "--notify", "Config.KeyFile", "--notify-key-file", "Config.Listen", "--listen", "Config.Advertise", "--advertise", "Config.HTTP", "--http",
		"Config.TLSCertFile", "--tls-cert", "Config.TLSClientCAFile", "--tls-client-ca", "Config.PolicyFile", "--auth", "Config.MetricsToken", "--metrics-token",
		"TLSCertFile", "--tls-cert", "TLSKeyFile", "--tls-key", "PolicyFile", "--auth", "Insecure", "--insecure", "Config.DrainTimeout", "--drain-timeout",
		"Config.MaxFetchesPerCollector", "--max-fetches-per-collector", "Config.MaxFetches", "--max-fetches", "Config.MaxConnectionAge ", "--max-connection-age ",
		"Config.MaxConnections", "--max-connections", "Config.MaxAddressConnections", "--max-connections-per-address",
		"Config.MaxConcurrentStreams", "--max-streams-per-connection", "Config.MaxAddressStreams", "--max-streams-per-address",
		"Config.MaxAddressBytes", "--max-bytes-per-address", "Config.MaxNewCollectors", "--max-new-collectors")
}

// listenAdvice adds what to do about a port that cannot be had.
func listenAdvice(err error) error {
	named := flagNames(err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return cli.Advise(named, "another dispatcher? `waggle stats` asks it",
			"a second one on this machine needs both addresses of its own: say --listen 127.0.0.1:7071 --http 127.0.0.1:7081")
	case errors.Is(err, syscall.EACCES):
		return cli.Advise(named, "ports below 1024 are for root")
	default:
		return fmt.Errorf("cannot listen: %w", named)
	}
}
