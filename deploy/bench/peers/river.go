package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/process"
)

// riverClients is River in this process, on a PostgreSQL of its own with the settings that initdb writes. River fetches and
// completes many jobs by one statement.
func riverClients(_ context.Context, o *options) ([]*system, error) {
	pg, err := findPostgres()
	if err != nil {
		return nil, err
	}
	s := &system{name: "River: " + aCall(o.batch), answers: synced}
	for _, c := range []struct {
		workers  int
		cooldown time.Duration
	}{
		{1000, river.FetchCooldownMin}, {2000, river.FetchCooldownMin}, {2000, 20 * time.Millisecond}, {4000, 20 * time.Millisecond},
	} {
		s.settings = append(s.settings, setting{
			text: fmt.Sprintf("%d workers, a fetch each %s at most", c.workers, c.cooldown),
			measure: func(ctx context.Context) (rate, error) {
				p := &riverPeer{batch: o.batch, workers: c.workers, cooldown: c.cooldown}
				return pg.measure(ctx, o.tasks, p)
			},
		})
	}
	return []*system{s}, nil
}

// postgres is where the programs are, and who may run them: PostgreSQL refuses root.
type postgres struct {
	bin string
	as  *syscall.Credential // nil: who runs this program
}

func findPostgres() (pg postgres, err error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // where Debian has them
	if path, lookErr := exec.LookPath("initdb"); lookErr == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		return pg, errors.Join(errors.New("there is no PostgreSQL"), err)
	}
	pg.bin = filepath.Dir(found[len(found)-1])
	if os.Geteuid() != 0 {
		return pg, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return pg, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	pg.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return pg, errors.Join(uidErr, gidErr)
}

// command is one of PostgreSQL's programs, run in dir.
func (pg postgres) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(pg.bin, program), args...)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: pg.as}
	// It leaves shared memory behind when it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	return cmd
}

func (pg postgres) measure(ctx context.Context, tasks int, p *riverPeer) (r rate, err error) {
	dir, err := os.MkdirTemp("", "waggle-bench-")
	if err != nil {
		return r, fmt.Errorf("make a directory for PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if pg.as != nil {
		if err := os.Chown(dir, int(pg.as.Uid), int(pg.as.Gid)); err != nil {
			return r, fmt.Errorf("make a directory for PostgreSQL: %w", err)
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := pg.command(ctx, dir, "initdb", "-D", data, "-A", "trust", "-U", "river", "-E", "UTF8", "--locale=C").CombinedOutput(); err != nil {
		return r, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	server, err := process.Start(dir, pg.command(ctx, dir, "postgres", "-D", data, "-k", dir, "-c", "listen_addresses="))
	if err != nil {
		return r, err
	}
	defer server.Stop()
	p.pool, err = pgxpool.New(ctx, "user=river dbname=postgres pool_max_conns=32 host="+dir)
	if err != nil {
		return r, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer p.pool.Close()
	if err := server.AwaitReady(ctx, func() error { return p.pool.Ping(ctx) }); err != nil {
		return r, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(p.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return r, fmt.Errorf("migrate: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return r, fmt.Errorf("migrate: %w", err)
	}
	return lives(ctx, tasks, p)
}

// riverPeer is River with one setting.
type riverPeer struct {
	ledger
	pool           *pgxpool.Pool
	batch, workers int
	cooldown       time.Duration
}

// riverTask is the arguments of a job.
type riverTask struct {
	Payload string `json:"payload"`
}

// Kind is the name of such jobs.
func (riverTask) Kind() string { return "crawl" }

func (p *riverPeer) client(cfg river.Config) (*river.Client[pgx.Tx], error) {
	cfg.Logger = slog.New(slog.DiscardHandler)
	client, err := river.NewClient(riverpgxv5.New(p.pool), &cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}

func (p *riverPeer) submit(ctx context.Context, n int) error {
	client, err := p.client(river.Config{})
	if err != nil {
		return err
	}
	first := p.add(n)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(producersOf(p.batch))
	for from := 0; from < n; from += p.batch {
		all.Go(func() error {
			jobs := make([]river.InsertManyParams, min(p.batch, n-from))
			for i := range jobs {
				jobs[i].Args = riverTask{string(payload(first + from + i))}
			}
			_, err := client.InsertManyFast(ctx, jobs)
			return err
		})
	}
	return all.Wait()
}

// work runs a client until it has written that n more jobs are completed. What it completes while it stops counts for the
// next work.
func (p *riverPeer) work(ctx context.Context, n int) (took time.Duration, err error) {
	done := p.await(n)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverTask]) error {
		p.receive([]byte(job.Args.Payload))
		return nil
	}))
	client, err := p.client(river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: p.workers}},
		Workers: workers, FetchCooldown: p.cooldown, FetchPollInterval: 100 * time.Millisecond,
	})
	if err != nil {
		return 0, err
	}
	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 1_000_000, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer cancel()
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for range completed {
			p.report(1)
		}
	}()
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, fmt.Errorf("start a client: %w", err)
	}
	select {
	case <-done:
		took = time.Since(began)
	case <-ctx.Done():
		err = ctx.Err()
	}
	err = errors.Join(err, client.Stop(ctx))
	cancel()
	<-counted
	return took, err
}

func (p *riverPeer) check(ctx context.Context) error {
	var left int
	if err := p.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed' OR attempt <> 1").Scan(&left); err != nil {
		return fmt.Errorf("count jobs: %w", err)
	}
	if left > 0 {
		return fmt.Errorf("%d jobs are left, or were tried again", left)
	}
	return p.ledger.check()
}
