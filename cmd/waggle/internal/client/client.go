// Package client is what the commands share that ask a dispatcher: the connection, lists, bulk calls, replies as tables
// or JSON, and what shells complete.
//
// A command that changes something gets its RunE from [Options.Call], and one that only looks from [Options.Look], which
// gives it --watch; [Options.List] is that for lists. In each of them a function gets a [Client], calls what it needs, and
// hands the reply to [Client.Show] with how people see it, so that --output json needs no more:
//
//	cmd := &cobra.Command{Use: "status", Short: "Show what stands still and why", Args: cli.Exactly()}
//	o.Look(cmd, func(ctx context.Context, c *client.Client, _ []string) error {
//		reply, err := c.Admin.GetStats(ctx, &pb.GetStatsRequest{})
//		return c.Show(reply, err, func() { writeStatus(c.Out, c.Now, reply) })
//	})
//	return o.Group(cmd)
//
// The function of Look runs once for each look, with the time of the look in Now, and writes only to Out and Err. Tables
// and sheets of package human fit Out, and color the words of states by themselves.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/collector"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxReply leaves room for 1,000 large tasks or sources in a page.
const maxReply = 64 << 20

// Options are the flags that all client commands share: they stand before the command or behind it.
type Options struct {
	Console    cli.Console
	flags      *pflag.FlagSet
	connection Connection
	output     string
	timeout    time.Duration
}

// NewOptions gives root the flags.
func NewOptions(root *cobra.Command, c cli.Console) *Options {
	o := &Options{Console: c, flags: pflag.NewFlagSet("client", pflag.ContinueOnError)}
	o.connection.Register(o.flags, "dispatcher to ask, `host:port`; several: the first that answers")
	registerOutput(o.flags, &o.output)
	o.flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "longest wait for an answer")
	root.PersistentFlags().AddFlagSet(o.flags)
	cli.FromEnv(root, c, o.flags)
	fromEnv := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		for about := cmd; about != nil; about = about.Parent() {
			if about.GroupID == operate { // the others ask no dispatcher
				return fromEnv(cmd, args)
			}
		}
		return nil
	}
	return o
}

// registerOutput adds the flag for the format of what is written.
func registerOutput(flags *pflag.FlagSet, into *string) {
	cli.ChoiceVar(flags, into, "output", "o", "table", "`format`: table for people, json for programs", "table", "json")
}

// AddOffline adds commands that ask no dispatcher to a group, below a title of their own.
func (o *Options) AddOffline(group *cobra.Command, title string, commands ...*cobra.Command) *cobra.Command {
	group.AddGroup(&cobra.Group{ID: offline, Title: title})
	o.Refuse(commands...)
	for _, cmd := range commands {
		cmd.GroupID = offline
	}
	group.GroupID = cmp.Or(group.GroupID, offline)
	group.AddCommand(commands...)
	return group
}

// Refuse makes commands that ask no dispatcher refuse the shared flags, but for those that they have themselves.
func (o *Options) Refuse(commands ...*cobra.Command) {
	for _, cmd := range commands {
		args := cmd.Args
		cmd.Args = func(cmd *cobra.Command, given []string) (err error) {
			o.flags.VisitAll(func(f *pflag.Flag) {
				if err == nil && f.Changed && cmd.Flags().Lookup(f.Name) == f {
					err = cli.Usagef("--%s is for commands that ask a dispatcher; %s does not", f.Name, cmd.CommandPath())
				}
			})
			if err != nil {
				return err
			}
			return args(cmd, given)
		}
	}
}

const (
	offline = "run"     // the group of commands that ask no dispatcher
	operate = "operate" // and of those that do
)

// Group completes a command that asks a dispatcher, or the group of such commands.
func (o *Options) Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.GroupID = operate
	cmd.AddCommand(commands...)
	return cmd
}

// Client asks one group of dispatchers, and writes what they answer.
type Client struct {
	Sources pb.SourceServiceClient
	Tasks   pb.TaskServiceClient
	Queues  pb.QueueServiceClient
	Holds   pb.HoldServiceClient
	Admin   pb.AdminServiceClient
	Health  healthpb.HealthClient

	JSON     bool // what is written is for programs
	Watching bool // it is written again and again
	Out      human.Output
	Err      io.Writer
	Now      time.Time
}

// Call makes the RunE of a client command: it connects and runs f; an error of a call is explained.
func (o *Options) Call(f func(ctx context.Context, c *Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if o.timeout <= 0 {
			return cli.Usagef("--timeout %s: want more than 0, for example 10s", o.timeout)
		}
		if err := cli.CheckBy(cmd); err != nil {
			return err
		}
		conn, err := o.dial(cmd)
		if err != nil {
			return err
		}
		c := o.client(conn)
		o.writeTo(c, cmd)
		err = f(cmd.Context(), c, args)
		if err != nil && !errors.Is(err, cli.ErrReported) {
			err = o.explained(err)
		}
		return errors.Join(err, conn.Close())
	}
}

// Local completes a command that asks no dispatcher, and writes as client commands do. Its Client has no services.
func (o *Options) Local(cmd *cobra.Command, f func(ctx context.Context, c *Client, args []string) error) *cobra.Command {
	output, flags := "", pflag.NewFlagSet("local", pflag.ContinueOnError)
	registerOutput(flags, &output)
	cli.FromEnv(cmd, o.Console, flags)
	cmd.Flags().AddFlagSet(flags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := &Client{JSON: output == "json", Now: time.Now()}
		o.writeTo(c, cmd)
		return f(cmd.Context(), c, args)
	}
	return cmd
}

func (o *Options) writeTo(c *Client, cmd *cobra.Command) {
	c.Out, c.Err = human.NewOutput(cmd.OutOrStdout(), o.Console.Env), cmd.ErrOrStderr()
}

func (o *Options) client(conn *grpc.ClientConn) *Client {
	return &Client{
		Sources: pb.NewSourceServiceClient(conn), Tasks: pb.NewTaskServiceClient(conn),
		Queues: pb.NewQueueServiceClient(conn), Holds: pb.NewHoldServiceClient(conn), Admin: pb.NewAdminServiceClient(conn),
		Health: healthpb.NewHealthClient(conn),
		JSON:   o.output == "json", Now: time.Now(),
	}
}

func (o *Options) explained(err error) *Error {
	explained := o.connection.Explained(err)
	explained.timeout = o.timeout
	return explained
}

// dial makes a connection to the first of the servers that answers. Nothing is sent before its first call.
func (o *Options) dial(cmd *cobra.Command) (*grpc.ClientConn, error) {
	if err := o.connection.Resolve(cmd, o.Console); err != nil {
		return nil, err
	}
	var cfg collector.Config
	o.connection.Fill(&cfg)
	var spans []grpc.DialOption
	if o.Console.TracerProvider != nil {
		spans = append(spans, grpc.WithStatsHandler(otelgrpc.NewClientHandler(
			otelgrpc.WithTracerProvider(o.Console.TracerProvider), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
			otelgrpc.WithPropagators(propagation.TraceContext{}),
		)))
	}
	conn, err := cfg.Dial(append(spans,
		grpc.WithDefaultServiceConfig("{}"), // the first that answers
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithUnaryInterceptor(o.limit),
		grpc.WithUserAgent("waggle-command/"+cli.Version()),
	)...)
	if err != nil {
		return nil, o.connection.FlagNames(err)
	}
	return conn, nil
}

// limit bounds each call by --timeout.
func (o *Options) limit(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return invoke(ctx, method, req, reply, conn, opts...)
}

// Show writes a reply, a message or another value, unless there is an err: as JSON for programs, else by people.
func (c *Client) Show(reply any, err error, people func()) error {
	switch {
	case err != nil:
		return err
	case c.JSON:
		return WriteJSON(c.Out, reply)
	}
	people()
	return nil
}

// Note writes a line for people beside what a command shows.
func (c *Client) Note(format string, args ...any) {
	fmt.Fprintf(c.Err, "waggle: "+format+"\n", args...)
}

// Progress shows on a terminal how many things are done, above which Note writes from now on.
func (c *Client) Progress(thing string) *human.Progress {
	p := human.NewProgress(c.Err, func(n int64) string { return human.Plural(n, thing) })
	c.Err = p
	return p
}

// WriteSample writes what a call does or would do, and the first ids of all that it concerns.
func WriteSample(out io.Writer, text string, sample []string, all int) {
	fmt.Fprintln(out, text)
	for _, id := range sample {
		fmt.Fprintf(out, "  %s\n", human.Plain(id))
	}
	if more := all - len(sample); more > 0 && len(sample) > 0 {
		fmt.Fprintf(out, "  and %s more\n", human.Count(more))
	}
}
