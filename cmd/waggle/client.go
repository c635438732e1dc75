package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// console is what a command gets of the process it runs in.
type console struct {
	// env looks up a variable of the environment.
	env func(name string) (value string, ok bool)
	// submitWait is how long tasks of a slow producer wait to be submitted together; zero: a second. Tests set it.
	submitWait time.Duration
}

const (
	defaultServer = "127.0.0.1:7070"

	// maxReply leaves room for 1,000 large tasks or sources in a page.
	maxReply = 64 << 20
)

// clientOptions are the flags that all client commands share.
type clientOptions struct {
	console console
	servers []string
	output  string
	timeout time.Duration
	tls     tlsOptions
}

func newClientOptions(c console) *clientOptions { return &clientOptions{console: c} }

// group completes a command that asks a dispatcher, or the group of such commands, and gives it the shared flags.
func (o *clientOptions) group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	flags := pflag.NewFlagSet("client", pflag.ContinueOnError)
	flags.StringSliceVar(&o.servers, "server", []string{defaultServer}, "dispatcher to ask, `host:port`; several: the first that answers")
	flags.StringVarP(&o.output, "output", "o", "table", "`format`: table for people, json for programs")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "longest wait for an answer")
	o.tls.register(flags)
	fromEnv(cmd, o.console, flags)
	cmd.PersistentFlags().AddFlagSet(flags)
	cmd.GroupID = "operate"
	cmd.AddCommand(commands...)
	return cmd
}

// client asks one group of dispatchers, and writes what they answer.
type client struct {
	sources pb.SourceServiceClient
	tasks   pb.TaskServiceClient
	queues  pb.QueueServiceClient
	admin   pb.AdminServiceClient

	json     bool // what is written is for programs
	out, err io.Writer
	now      time.Time
}

// call makes the RunE of a client command: it connects and runs f; an error of a call is explained.
func (o *clientOptions) call(f func(ctx context.Context, c *client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(o.output); err != nil {
			return err
		}
		if o.timeout <= 0 {
			return usagef("--timeout %s: say how long, for example 10s", o.timeout)
		}
		if err := checkBy(cmd); err != nil {
			return err
		}
		conn, err := o.dial()
		if err != nil {
			return err
		}
		c := &client{
			sources: pb.NewSourceServiceClient(conn), tasks: pb.NewTaskServiceClient(conn),
			queues: pb.NewQueueServiceClient(conn), admin: pb.NewAdminServiceClient(conn),
			json: o.output == "json", out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), now: time.Now(),
		}
		c.noteTimes(cmd.Flags())
		err = f(cmd.Context(), c, args)
		if err != nil && !errors.Is(err, errReported) {
			err = &callError{err: err, servers: o.servers, timeout: o.timeout, tls: o.tls.wanted()}
		}
		return errors.Join(err, conn.Close())
	}
}

// dial makes a connection that tries the servers in turn. Nothing is sent before its first call.
func (o *clientOptions) dial() (*grpc.ClientConn, error) {
	creds, err := o.tls.credentials()
	if err != nil {
		return nil, err
	}
	if err := checkServers(o.servers); err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithUnaryInterceptor(o.limit),
		grpc.WithUserAgent("waggle-command/" + version()),
	}
	target := o.servers[0]
	if len(o.servers) > 1 {
		list := manual.NewBuilderWithScheme("waggle-list")
		var state resolver.State
		for _, server := range o.servers {
			state.Addresses = append(state.Addresses, resolver.Address{Addr: server})
		}
		list.InitialState(state)
		options, target = append(options, grpc.WithResolvers(list)), "waggle-list:///servers"
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, usagef("--server %s: %w", strings.Join(o.servers, ","), err)
	}
	return conn, nil
}

// limit bounds each call by --timeout.
func (o *clientOptions) limit(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return sendable(invoke(ctx, method, req, reply, conn, opts...), req)
}

// checkServers refuses what can be no dispatcher's address, before anything waits for an answer from it. One alone may
// also be a name that gRPC resolves, such as unix:/path or dns:///host:port.
func checkServers(servers []string) error {
	if len(servers) == 0 {
		return usagef("--server is empty; say host:port")
	}
	for i, server := range servers {
		servers[i] = strings.TrimSpace(server)
		if servers[i] == "" {
			return usagef("--server has an empty address")
		}
		if !isAddress(servers[i]) && (len(servers) > 1 || !isTarget(servers[i])) {
			return usagef("--server %s: want host:port, as %s", servers[i], defaultServer)
		}
	}
	return nil
}

func isAddress(server string) bool {
	host, port, err := net.SplitHostPort(server)
	number, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil && number > 0 && !strings.Contains(host, "/")
}

func isTarget(server string) bool {
	scheme, _, _ := strings.Cut(server, ":")
	return slices.Contains([]string{"unix", "unix-abstract", "dns", "passthrough", "ipv4", "ipv6"}, scheme) && scheme != server
}

// tlsOptions are how a dispatcher proves who it is.
type tlsOptions struct {
	on bool
	ca string
}

func (t *tlsOptions) register(flags *pflag.FlagSet) {
	flags.BoolVar(&t.on, "tls", false, "connect by TLS")
	flags.StringVar(&t.ca, "tls-ca", "", "PEM `file` with the authorities to trust, instead of the system's; turns --tls on")
}

func (t *tlsOptions) wanted() bool { return t.on || t.ca != "" }

func (t *tlsOptions) credentials() (credentials.TransportCredentials, error) {
	if t.ca == "" {
		if t.on {
			return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), nil
		}
		return insecure.NewCredentials(), nil
	}
	pem, err := os.ReadFile(t.ca)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca: %s holds no PEM certificate", t.ca)
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}), nil
}
