package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	defaultServer = "127.0.0.1:7070"

	// maxReply leaves room for 1,000 large tasks or sources in a page.
	maxReply = 64 << 20

	// pageSize of lists that are read page by page.
	pageSize = 500
)

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

// clientOptions are the flags that all client commands share.
type clientOptions struct {
	console console
	servers []string
	output  string
	timeout time.Duration
	tls     tlsOptions
}

func newClientOptions(c console) *clientOptions { return &clientOptions{console: c} }

// register adds the shared flags to a group of client commands.
func (o *clientOptions) register(cmd *cobra.Command) {
	flags := pflag.NewFlagSet("client", pflag.ContinueOnError)
	flags.StringSliceVar(&o.servers, "server", []string{defaultServer}, "dispatcher to ask, `host:port`; several: the first that answers")
	flags.StringVarP(&o.output, "output", "o", "table", "`format`: table for people, json for programs")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "longest wait for an answer")
	o.tls.register(flags)
	fromEnv(cmd, o.console, flags)
	cmd.PersistentFlags().AddFlagSet(flags)
	cmd.GroupID = "operate"
}

// client asks one group of dispatchers, and writes what it is told.
type client struct {
	sources pb.SourceServiceClient
	tasks   pb.TaskServiceClient
	queues  pb.QueueServiceClient
	admin   pb.AdminServiceClient

	options  *clientOptions
	out, err io.Writer
	now      time.Time
}

// call makes the RunE of a client command: it connects, runs f, and turns what
// the dispatcher refuses into words.
func (o *clientOptions) call(f func(ctx context.Context, c *client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if o.output != "table" && o.output != "json" {
			return usagef(cmd, "--output %q: say table or json", o.output)
		}
		if o.timeout <= 0 {
			return usagef(cmd, "--timeout %s: say how long, for example 10s", o.timeout)
		}
		if err := checkBy(cmd); err != nil {
			return err
		}
		conn, err := o.dial(cmd)
		if err != nil {
			return err
		}
		c := &client{
			sources: pb.NewSourceServiceClient(conn), tasks: pb.NewTaskServiceClient(conn),
			queues: pb.NewQueueServiceClient(conn), admin: pb.NewAdminServiceClient(conn),
			options: o, out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), now: time.Now(),
		}
		err = f(cmd.Context(), c, args)
		var usage *usageError
		if errors.As(err, &usage) && usage.cmd == nil {
			usage.cmd = cmd
		}
		return errors.Join(o.explained(err), conn.Close())
	}
}

// explained notes with an error of a call what the explanation needs.
func (o *clientOptions) explained(err error) error {
	if err == nil || errors.Is(err, errReported) {
		return err
	}
	return &callError{err: err, servers: o.servers, timeout: o.timeout, tls: o.tls.wanted()}
}

// dial makes a connection that tries the servers in turn. Nothing is sent before its first call.
func (o *clientOptions) dial(cmd *cobra.Command) (*grpc.ClientConn, error) {
	creds, err := o.tls.credentials()
	if err != nil {
		return nil, err
	}
	if err := checkServers(cmd, o.servers); err != nil {
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
		return nil, usagef(cmd, "--server %s: %w", strings.Join(o.servers, ","), err)
	}
	return conn, nil
}

// limit bounds each call by --timeout.
func (o *clientOptions) limit(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return sendable(invoke(ctx, method, req, reply, conn, opts...), req)
}

// show writes a message as JSON when that is wanted, else by people.
func (c *client) show(message proto.Message, people func()) error {
	if c.options.output == "table" {
		people()
		return nil
	}
	return writeJSON(c.out, message)
}

// writeJSON writes a message with the field names of the .proto files, every
// field that has a value or a default, and always the same white space.
func writeJSON(out io.Writer, message proto.Message) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	indented.WriteByte('\n')
	_, err = indented.WriteTo(out)
	return err
}

// writeValue writes what is no message in the same white space, its text as it is, too.
func writeValue(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// page is a reply that holds part of a list.
type page interface{ GetNextPageToken() string }

// readPages reads pages until there are limit things, or all of them when limit
// is 0. ask reads a page of at most size; take keeps it and answers how many
// things it held. The result is true when more follow.
func readPages[P page](limit int, ask func(size int32, token string) (P, error), take func(P) int) (more bool, err error) {
	token, have := "", 0
	for {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-have)
		}
		reply, err := ask(int32(size), token)
		if err != nil {
			return false, err
		}
		have += take(reply)
		token = reply.GetNextPageToken()
		if token == "" || limit > 0 && have >= limit {
			return token != "", nil
		}
	}
}

// limitFlag adds --limit to a list command.
func limitFlag(cmd *cobra.Command) *int {
	return cmd.Flags().Int("limit", 200, "`number` to list at most; 0: all")
}

// checkLimit refuses a limit that means nothing.
func checkLimit(limit int) error {
	if limit < 0 {
		return usagef(nil, "--limit %d: say how many, or 0 for all", limit)
	}
	return nil
}

// note writes a line for people beside what a command shows.
func (c *client) note(format string, args ...any) {
	fmt.Fprintf(c.err, "waggle: "+format+"\n", args...)
}

// noteMore says on stderr that a list was cut.
func (c *client) noteMore(more bool, limit int) {
	if more {
		fmt.Fprintf(c.err, "more follow after these %s; --limit 0 lists all\n", count(limit))
	}
}
