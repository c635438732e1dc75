// Package demo has the command that shows a dispatcher at work: a crawl of a small site, with a collector that dies.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/dispatcher"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/store"
)

// New makes the command.
func New(c cli.Console) *cobra.Command {
	pages, console := 40, false
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "Show Waggle at work on a small site",
		GroupID: "run",
		Long: `See it work. The demo serves a small web site on several hosts of loopback, runs a dispatcher on the memory
store, and three collectors as processes of their own. Half-way one of them gets a kill -9 while it fetches a page. At the end
it counts, page by page, what the web server and the dispatcher saw.

It needs nothing but this program, listens on free ports of loopback only, and leaves nothing behind. It exits 0 only if every
page was crawled exactly once and no host was asked more often than its delay allows.

With --console it also serves the console, opens it in your browser, and goes on until Ctrl-C, so that you can look at the
crawl while it runs and after it.`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pages < 2 || pages > 1000 {
				return cli.Usagef("--pages %d: say 2 to 1000", pages)
			}
			return run(cmd.Context(), c, cmd.OutOrStdout(), pages, console)
		},
	}
	cmd.Flags().IntVar(&pages, "pages", pages, "`number` of pages of each host")
	cmd.Flags().BoolVar(&console, "console", console, "serve the console, open it in the browser, and go on until Ctrl-C")
	return cmd
}

// demo is a running demo.
type demo struct {
	screen     *human.Screen
	site       *site
	dir        string // where the collectors keep the pages
	conn       *grpc.ClientConn
	console    string // its address; empty: it is not served
	collectors map[string]*process
	began      time.Time
	held       map[string]bool // URLs whose leases the victim left behind; nil: not known yet
}

// run runs the demo and writes its table; the error is what did not hold.
func run(ctx context.Context, c cli.Console, out io.Writer, pages int, console bool) (err error) {
	interrupted := ctx.Done()
	ctx, cancel := context.WithTimeoutCause(ctx, crawlLimit, fmt.Errorf("the crawl did not end within %s", duration.Text(crawlLimit)))
	defer cancel()
	d := &demo{screen: human.NewScreen(out), began: time.Now(), collectors: map[string]*process{}}
	if d.dir, err = os.MkdirTemp("", "waggle-demo-"); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	if d.site, err = newSite(ctx, pages); err != nil {
		return err
	}
	defer d.site.close()
	fmt.Fprintf(d.screen, "web site     %d pages on %d hosts, which all link to one another\n", d.site.pages(), len(d.site.hosts))
	stop, err := d.startDispatcher(ctx, c, console)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := d.register(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() {
		for _, k := range d.collectors {
			_ = k.kill() // one that has ended already is what is wanted
		}
	}()
	if err := d.startCollectors(); err != nil {
		return err
	}
	crawlErr := d.crawl(ctx)
	took := time.Since(d.began)
	d.screen.Show()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrupted")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case crawlErr != nil:
		return crawlErr
	}
	var stops errgroup.Group
	for id, k := range d.collectors {
		if id != victim {
			stops.Go(k.stop)
		}
	}
	stopErr := stops.Wait()
	result, err := d.result(context.WithoutCancel(ctx), took)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	result.write(out)
	if console {
		fmt.Fprintf(out, "\nThe console goes on until Ctrl-C: %s\n", d.console)
		<-interrupted
	}
	return errors.Join(stopErr, result.verdict())
}

// startDispatcher runs a dispatcher on the memory store, as `waggle serve --store memory` does, and connects to it. stop ends it.
func (d *demo) startDispatcher(ctx context.Context, c cli.Console, console bool) (stop func() error, err error) {
	store, err := store.New(store.Config{})
	if err != nil {
		return nil, err
	}
	address := server.Off
	if console {
		address = "127.0.0.1:0"
	}
	node, err := dispatcher.NewNode(server.Config{
		Listen: "127.0.0.1:0", HTTP: address, DrainTimeout: 2 * time.Second, TracerProvider: c.TracerProvider,
	}, store, zap.NewNop())
	if err == nil {
		err = node.Server.Listen(ctx)
	}
	if err == nil {
		d.conn, err = grpc.NewClient(node.Server.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.Go(func() error { return node.Run(running) })
	fmt.Fprintf(d.screen, "dispatcher   %s, store in memory\n", node.Server.Address())
	if console {
		d.console = "http://" + node.Server.HTTPAddress() + "/"
		fmt.Fprintf(d.screen, "console      %s\n", d.console)
		if d.screen.Live { // somebody sits there
			openBrowser(ctx, d.console)
		}
	}
	return func() error {
		err := d.conn.Close()
		cancel()
		return errors.Join(err, g.Wait())
	}, nil
}

// register sets the delay of each host, then creates the source.
func (d *demo) register(ctx context.Context) error {
	spec := &pb.SourceSpec{Id: source, LeaseDuration: durationpb.New(lease), Follow: &pb.Follow{}}
	for _, host := range d.site.hosts {
		_, err := pb.NewQueueServiceClient(d.conn).SetQueueRule(ctx, &pb.SetQueueRuleRequest{
			Rule: &pb.QueueRule{Pattern: host.name, MinDelay: durationpb.New(host.delay), MaxInFlight: proto.Int32(1)},
			By:   "demo", Reason: "a small site",
		})
		if err != nil {
			return err
		}
		spec.Seeds = append(spec.Seeds, &pb.Seed{Url: host.url(0)})
	}
	_, err := pb.NewSourceServiceClient(d.conn).CreateSource(ctx, &pb.CreateSourceRequest{Spec: spec})
	return err
}

func (d *demo) startCollectors() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: find this program: %w", err)
	}
	for _, id := range []string{"demo-1", victim, "demo-3"} {
		if d.collectors[id], err = startProcess(program, id, d.conn.Target(), d.dir); err != nil {
			return err
		}
		fmt.Fprintf(d.screen, "collector    %s, process %d, %d slots\n", id, d.collectors[id].cmd.Process.Pid, slots)
	}
	return nil
}

// crawl kills the victim half-way, and shows progress until every task has settled.
func (d *demo) crawl(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var killed time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case page := <-d.site.halfway:
			if err := d.collectors[victim].kill(); err != nil {
				return err
			}
			killed = time.Now()
			fmt.Fprintf(d.screen, "kill -9      %s, while it fetches %s; its leases run out in %s\n", victim, page, duration.Text(lease))
		case <-tick.C:
			// Half a second is long enough for reports on their way to arrive, and too short for a lease to expire.
			if !killed.IsZero() && d.held == nil && time.Since(killed) > 500*time.Millisecond {
				if err := d.findHeld(ctx); err != nil {
					return fmt.Errorf("demo: %w", err)
				}
			}
			settled, err := d.look(ctx)
			switch {
			case err != nil:
				return fmt.Errorf("demo: %w", err)
			case settled && killed.IsZero():
				return fmt.Errorf("the crawl ended before %s could be killed; --pages gives it more to do", victim)
			case settled && d.held != nil:
				return nil
			}
		}
	}
}

// look shows how far the crawl is, and reports whether every task has settled.
func (d *demo) look(ctx context.Context) (settled bool, err error) {
	stats, err := pb.NewAdminServiceClient(d.conn).GetStats(ctx, &pb.GetStatsRequest{})
	if err != nil {
		return false, err
	}
	living := 0
	for id, k := range d.collectors {
		if !k.gone() {
			living++
		} else if id != victim {
			return false, fmt.Errorf("collector %s ended by itself: %w\n%s", id, k.err, k.output.String())
		}
	}
	tasks := stats.GetTasks()
	d.screen.Show(fmt.Sprintf("%4.1fs        %d of %d pages, %d leased, %d collectors",
		time.Since(d.began).Seconds(), d.site.progress(), d.site.pages(), tasks.GetLeased(), living))
	return tasks.GetScheduled()+tasks.GetReady()+tasks.GetLeased() == 0, nil
}

// findHeld lists what the victim left behind.
func (d *demo) findHeld(ctx context.Context) error {
	reply, err := pb.NewAdminServiceClient(d.conn).ListLeases(ctx, &pb.ListLeasesRequest{PageSize: 1000})
	if err != nil {
		return err
	}
	d.held = map[string]bool{}
	for _, lease := range reply.GetLeases() {
		if lease.GetHolder().GetCollectorId() == victim {
			d.held[lease.GetUrl()] = true
		}
	}
	return nil
}

// result counts.
func (d *demo) result(ctx context.Context, took time.Duration) (*result, error) {
	starts, err := readStarts(d.dir)
	if err != nil {
		return nil, err
	}
	stats, err := pb.NewAdminServiceClient(d.conn).GetStats(ctx, &pb.GetStatsRequest{})
	if err != nil {
		return nil, err
	}
	counters, unexplained := stats.GetCounters(), 0
	r := &result{took: took, pages: d.site.pages(), settled: counters.GetSettled(), expired: counters.GetExpired()}
	for _, host := range d.site.hosts {
		r.gaps = append(r.gaps, gapOf(host, starts[host.name]))
		for page := range d.site.perHost {
			url := host.url(page)
			reply, err := pb.NewTaskServiceClient(d.conn).GetTask(ctx, &pb.GetTaskRequest{SourceId: source, Url: url})
			if err != nil && status.Code(err) != codes.NotFound {
				return nil, err
			}
			unexplained += r.count(reply.GetTask(), d.site.requests(url), d.held[url])
		}
	}
	// A page is requested again, too, after a living collector was too slow to renew its lease.
	r.duplicates += max(0, unexplained-r.otherwise())
	return r, nil
}
