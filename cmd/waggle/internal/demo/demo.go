// Package demo has the command that shows a dispatcher at work: a crawl of a small site, with a collector that dies.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/store/memstore"
)

const (
	demoSource = "demo"
	demoLease  = 3 * time.Second // short, so that the takeover shows
	demoSlots  = 3
	// demoVictim is which of the collectors is killed.
	demoVictim = 1
	// demoLimit is when the demo gives up, should the crawl not end.
	demoLimit = 50 * time.Second
	// demoPlainEvery is how often progress is written where lines stay.
	demoPlainEvery = 2 * time.Second
	// demoStop is how long the collectors have to end.
	demoStop = 8 * time.Second
)

// New makes the command.
func New() *cobra.Command {
	pages := 40
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "Show Waggle at work on a small site",
		GroupID: "run",
		Long: `See it work. The demo serves a small web site on several hosts of loopback, runs a
dispatcher on the memory store, and three collectors as processes of their own.
Half-way one of them gets a kill -9 while it fetches a page. At the end it counts,
page by page, what the web server and the dispatcher saw.

It needs nothing but this program, listens on free ports of loopback only, and
leaves nothing behind. It exits 0 only if every page was crawled exactly once and
no host was asked more often than its delay allows.`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pages < 2 || pages > 1000 {
				return cli.Usagef("--pages %d: say 2 to 1000", pages)
			}
			return runDemo(cmd.Context(), cmd.OutOrStdout(), pages)
		},
	}
	cmd.Flags().IntVar(&pages, "pages", pages, "`number` of pages of each host")
	return cmd
}

// demo is a running demo.
type demo struct {
	screen   *human.Screen
	site     *site
	dir      string // where the collectors keep the pages
	children []*process
	began    time.Time

	sources pb.SourceServiceClient
	tasks   pb.TaskServiceClient
	queues  pb.QueueServiceClient
	admin   pb.AdminServiceClient

	killing  sync.Once
	armed    atomic.Bool // the victim is to die at its next request
	killedAt chan visit
	killErr  error // read after killedAt

	progressAt time.Time // when it was last written

	held map[string]bool // URLs whose leases the victim left behind; nil: not known yet
}

// runDemo runs the demo and writes its table; the error says what did not hold.
func runDemo(ctx context.Context, out io.Writer, pages int) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, fmt.Errorf("the crawl did not end within %s", human.Duration(demoLimit)))
	defer cancel()
	d := &demo{screen: human.NewScreen(out, false), began: time.Now(), progressAt: time.Now(), killedAt: make(chan visit, 1)}
	if d.dir, err = os.MkdirTemp("", "waggle-demo-"); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	if d.site, err = newSite(ctx, pages); err != nil {
		return err
	}
	defer d.site.close()
	d.site.onPage = d.maybeKill
	stop, err := d.startDispatcher(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := d.register(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() {
		for _, child := range d.children {
			if child.cmd != nil && child.cmd.Process != nil {
				_ = child.kill() // one that has ended already is what is wanted
			}
		}
	}()
	if err := d.startCollectors(); err != nil {
		return err
	}
	crawlErr := d.crawl(ctx)
	if errors.Is(ctx.Err(), context.Canceled) { // whichever call noticed it
		crawlErr = errors.New("interrupted")
	}
	took := time.Since(d.began)
	d.screen.Show()
	if crawlErr != nil && !errors.Is(crawlErr, context.DeadlineExceeded) {
		return crawlErr
	}
	var stops errgroup.Group
	for i, child := range d.children {
		if i != demoVictim {
			stops.Go(func() error { return child.stop(demoStop) })
		}
	}
	stopErr := stops.Wait()
	result, err := d.result(context.WithoutCancel(ctx), took)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	result.write(out)
	if crawlErr != nil {
		crawlErr = context.Cause(ctx)
	}
	return errors.Join(crawlErr, stopErr, result.verdict())
}

// startDispatcher runs a dispatcher on the memory store, as `waggle serve` does, and connects to it. stop ends it.
func (d *demo) startDispatcher(ctx context.Context) (stop func() error, err error) {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	n, err := dispatcher.NewNode(server.Config{Listen: "127.0.0.1:0", HTTP: server.Off, DrainTimeout: 2 * time.Second}, store, zap.NewNop())
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if err := n.Server.Listen(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	conn, err := grpc.NewClient(n.Server.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	d.sources, d.tasks = pb.NewSourceServiceClient(conn), pb.NewTaskServiceClient(conn)
	d.queues, d.admin = pb.NewQueueServiceClient(conn), pb.NewAdminServiceClient(conn)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.Go(func() error { return n.Run(running, nil) })
	fmt.Fprintf(d.screen, "web site     %d pages on %d hosts, which all link to one another\n", d.site.pages(), len(d.site.hosts))
	fmt.Fprintf(d.screen, "dispatcher   %s, store in memory\n", n.Server.Address())
	for i := range 3 {
		d.children = append(d.children, &process{id: fmt.Sprintf("demo-%d", i+1), server: n.Server.Address(), out: d.dir})
	}
	return func() error {
		err := conn.Close()
		cancel()
		return errors.Join(err, g.Wait())
	}, nil
}

// register sets the delay of each host, then creates the source.
func (d *demo) register(ctx context.Context) error {
	spec := &pb.SourceSpec{Id: demoSource, LeaseDuration: durationpb.New(demoLease), Follow: &pb.Follow{}}
	for _, host := range d.site.hosts {
		_, err := d.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{
			Rule: &pb.QueueRule{Pattern: host.name, MinDelay: durationpb.New(host.delay), MaxInFlight: proto.Int32(1)},
			By:   "demo", Reason: "a small site",
		})
		if err != nil {
			return err
		}
		spec.Seeds = append(spec.Seeds, &pb.Seed{Url: host.url(0)})
	}
	_, err := d.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: spec})
	return err
}

func (d *demo) startCollectors() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: find this program: %w", err)
	}
	for _, child := range d.children {
		if err := child.start(program, demoSlots); err != nil {
			return err
		}
		fmt.Fprintf(d.screen, "collector    %s, process %d, %d slots\n", child.id, child.cmd.Process.Pid, demoSlots)
	}
	return nil
}

// crawl shows progress until every task has settled.
func (d *demo) crawl(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var killed time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case page := <-d.killedAt:
			if d.killErr != nil {
				return d.killErr
			}
			killed = time.Now()
			fmt.Fprintf(d.screen, "kill -9      %s, while it fetches %s; its leases run out in %s\n", d.children[demoVictim].id, page.url, human.Duration(demoLease))
		case <-tick.C:
			// Half a second is long enough for reports on their way to arrive, and too short for a lease to run out.
			if !killed.IsZero() && d.held == nil && time.Since(killed) > 500*time.Millisecond {
				if err := d.findHeld(ctx); err != nil {
					return fmt.Errorf("demo: %w", err)
				}
			}
			settled, err := d.look(ctx)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			switch {
			case settled && killed.IsZero():
				return fmt.Errorf("the crawl ended before %s could be killed; --pages gives it more to do", d.children[demoVictim].id)
			case settled && d.held != nil:
				return nil
			}
		}
	}
}

// look shows how far the crawl is, and reports whether every task has settled.
func (d *demo) look(ctx context.Context) (settled bool, err error) {
	stats, err := d.admin.GetStats(ctx, &pb.GetStatsRequest{})
	if err != nil {
		return false, err
	}
	answered := d.site.answered()
	pages := 0
	for _, n := range answered {
		pages += n
	}
	d.armed.Store(pages >= d.site.pages()/2)
	for i, child := range d.children {
		if i != demoVictim && child.gone() {
			return false, fmt.Errorf("collector %s ended by itself: %w\n%s", child.id, child.err, child.output.String())
		}
	}
	d.progress(answered, pages, stats)
	tasks := stats.GetTasks()
	return tasks.GetScheduled()+tasks.GetReady()+tasks.GetLeased() == 0, nil
}

// progress shows how far the crawl is: on a terminal in a line that changes, elsewhere now and then.
func (d *demo) progress(answered map[string]int, pages int, stats *pb.GetStatsResponse) {
	if !d.screen.Live && time.Since(d.progressAt) < demoPlainEvery {
		return
	}
	d.progressAt = time.Now()
	var hosts []string
	for _, host := range d.site.hosts {
		hosts = append(hosts, strconv.Itoa(answered[host.name]))
	}
	living := 0
	for _, child := range d.children {
		if !child.gone() {
			living++
		}
	}
	text := fmt.Sprintf("%4.1fs        %d of %d pages (by host %s), %d leased, %d collectors",
		time.Since(d.began).Seconds(), pages, d.site.pages(), strings.Join(hosts, " "), stats.GetTasks().GetLeased(), living)
	if d.screen.Live {
		d.screen.Show(text)
	} else {
		fmt.Fprintln(d.screen, text)
	}
}

// findHeld lists what the victim left behind.
func (d *demo) findHeld(ctx context.Context) error {
	reply, err := d.admin.ListLeases(ctx, &pb.ListLeasesRequest{PageSize: 1000})
	if err != nil {
		return err
	}
	d.held = map[string]bool{}
	for _, lease := range reply.GetLeases() {
		if lease.GetHolder().GetCollectorId() == d.children[demoVictim].id {
			d.held[lease.GetUrl()] = true
		}
	}
	return nil
}

// maybeKill kills the victim in the middle of a request, once it is time.
func (d *demo) maybeKill(v visit) {
	if victim := d.children[demoVictim]; v.agent == victim.id && d.armed.Load() {
		d.killing.Do(func() {
			d.killErr = victim.kill()
			d.killedAt <- v
		})
	}
}

// result counts.
func (d *demo) result(ctx context.Context, took time.Duration) (*result, error) {
	r := &result{took: took, pages: d.site.pages(), requeued: len(d.held), victim: d.children[demoVictim].id}
	visits := d.site.log()
	if err := noteStarts(d.dir, visits); err != nil {
		return nil, err
	}
	r.requests = len(visits)
	byPage := map[string][]visit{}
	for _, v := range visits {
		byPage[v.url] = append(byPage[v.url], v)
	}
	stats, err := d.admin.GetStats(ctx, &pb.GetStatsRequest{})
	if err != nil {
		return nil, err
	}
	r.settled, r.expired = stats.GetCounters().GetSettled(), stats.GetCounters().GetExpired()
	unexplained := 0
	for _, host := range d.site.hosts {
		r.gaps = append(r.gaps, gapOf(host, visits))
		for page := range host.pages {
			url := host.url(page)
			reply, err := d.tasks.GetTask(ctx, &pb.GetTaskRequest{SourceId: demoSource, Url: url})
			if err != nil && status.Code(err) != codes.NotFound {
				return nil, err
			}
			unexplained += r.count(reply.GetTask(), byPage[url], d.held[url])
		}
	}
	// What a collector that lives was too slow to renew is asked for again, too.
	r.duplicates += max(0, unexplained-r.otherwise())
	return r, nil
}
